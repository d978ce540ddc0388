// Requests to the console, and its event stream.

export const state = { hello: null };

export class Failure extends Error {
  constructor(sentence, status, document) {
    super(sentence);
    this.status = status;
    this.document = document || {};
  }
}

export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.map(([key, value]) => `${key}=${encodeURIComponent(String(value).toWellFormed ? String(value).toWellFormed() : value)}`).join("&");
}
export const address = (path, parameters) => `/api/${path}${parameters ? `?${query(parameters)}` : ""}`;

async function answerOf(response) {
  let document = null;
  try { document = await response.json(); } catch { /* not JSON: the status says enough */ }
  if (response.ok) return document;
  if (response.status === 401) dispatchEvent(new Event("login-needed"));
  throw new Failure((document && document.error) || `the console answered ${response.status}`, response.status, document);
}
async function send(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("the console does not answer; is it still running?", 0);
  }
  return answerOf(response);
}
export const get = (path, parameters, signal) => send(address(path, parameters), { signal });
export function post(path, document) {
  const token = (state.hello && state.hello.token) || "none";
  return send(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-keepfast-token": token },
    body: JSON.stringify(document),
  });
}
export async function hello() {
  state.hello = await get("hello");
  return state.hello;
}

// Lines of JSON as they arrive.
export async function lines(path, parameters, onLine, signal) {
  const response = await fetch(address(path, parameters), { signal });
  if (!response.ok) return answerOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return null;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) onLine(JSON.parse(part));
  }
}

// One stream for the whole page: browsers allow few. It is closed while the page is hidden.
class Stream {
  constructor() {
    this.listeners = new Map();
    this.feed = null;
    this.source = null;
    this.isUp = null;
    document.addEventListener("visibilitychange", () => this.open());
  }
  on(kind, listener) {
    if (!this.listeners.has(kind)) this.listeners.set(kind, new Set());
    this.listeners.get(kind).add(listener);
    return () => this.listeners.get(kind).delete(listener);
  }
  notify(kind, value) { for (const listener of this.listeners.get(kind) || []) listener(value); }
  setFeed(filters) { this.feed = filters; this.open(); }
  open() {
    if (this.source) this.source.close();
    this.source = null;
    if (document.hidden || this.isOver) return;
    this.source = new EventSource(address("events", this.feed ? { feed: 1, ...this.feed } : null));
    this.source.onopen = () => this.setUp(true);
    this.source.onerror = () => {
      this.setUp(false);
      // A browser gives up where the answer is no stream: the console may be starting, or wants a login.
      if (this.source && this.source.readyState === EventSource.CLOSED) {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => { get("hello").then((known) => known.is_in ? this.open() : dispatchEvent(new Event("login-needed"))).catch(() => this.open()); }, 1500);
      }
    };
    for (const kind of ["overview", "feed", "feed-state", "feed-start", "audit", "dropped"]) {
      this.source.addEventListener(kind, (event) => this.notify(kind, JSON.parse(event.data)));
    }
    this.source.addEventListener("bye", () => this.setUp(false));
  }
  close() { this.isOver = true; if (this.source) this.source.close(); }
  setUp(isUp) {
    if (this.isUp === isUp) return;
    this.isUp = isUp;
    this.notify("up", isUp);
  }
}
export const stream = new Stream();
