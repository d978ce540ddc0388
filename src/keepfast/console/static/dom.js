// Elements, and how values look. Whatever comes from an ensemble is set as text, never as markup.

export const SVG = "http://www.w3.org/2000/svg";

// h("div", { class: "a", onclick: f }, "text", child, [children])
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}
export function s(name, props, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}
function fill(element, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else if (key === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}
export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// Characters that hide something or change the order of others are shown by their numbers.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const BREAKS = /[\t\n]/g;
const shownCharacter = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
// A text of several lines.
export const visible = (text) => String(text).replace(HIDDEN, shownCharacter);
// A name or a path: on one line, whatever it holds.
export const inline = (text) => visible(text).replace(BREAKS, shownCharacter);
// So long that nobody reads it: its ends.
export function shortened(text, most = 120) {
  const shown = inline(text);
  return shown.length <= most ? shown : `${shown.slice(0, most - 20)}…${shown.slice(-18)} (${text.length.toLocaleString("en")} characters)`;
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}
export const count = (number) => number === null || number === undefined ? "–" : Number(number).toLocaleString("en");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export function rate(number) {
  if (number === null || number === undefined) return "–";
  return number >= 10000 ? `${(number / 1000).toFixed(0)}k` : number >= 100 ? `${Math.round(number)}` : `${Math.round(number * 10) / 10}`;
}
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}
export const ago = (ms) => ms ? `${duration(Date.now() - ms)} ago` : "–";
export function moment(value) {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return String(value);
  return date.toISOString().replace("T", " ").replace(/\.000Z$/, "Z").replace("Z", " UTC");
}
export const clock = (ms) => new Date(ms).toISOString().slice(11, 23);

// Values of znodes: base64 in, bytes out.
export function bytesOf(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) found[i] = text.charCodeAt(i);
  return found;
}
export function base64Of(data) {
  let text = "";
  for (let i = 0; i < data.length; i += 0x8000) text += String.fromCharCode(...data.subarray(i, i + 0x8000));
  return btoa(text);
}
export function textOf(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

const ICONS = {
  overview: "M3 12a9 9 0 1 1 18 0 9 9 0 0 1-18 0zM12 12l4-4M12 7v1M7 12h1M16 12h1",
  tree: "M5 4v13a2 2 0 0 0 2 2h4M5 9h6M11 6h8v6h-8zM11 16h8v5h-8z",
  sessions: "M8 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2 20c0-3.3 2.7-6 6-6s6 2.7 6 6M16 5a3 3 0 0 1 0 6M18 14.5c2.4.7 4 2.8 4 5.5",
  feed: "M3 12h4l3-8 4 16 3-8h4",
  past: "M12 21a9 9 0 1 0-9-9M3 5v7h7M12 7v5l3.5 2",
  proof: "M12 3l8 3v6c0 4.5-3.2 8-8 9-4.8-1-8-4.5-8-9V6zM8.5 12l2.5 2.5 4.5-5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  search: "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM16.5 16.5L21 21",
  close: "M6 6l12 12M18 6L6 18",
  back: "M15 5l-7 7 7 7",
  crown: "M4 18h16M4 15l-1-8 5 4 4-6 4 6 5-4-1 8z",
  pause: "M8 5v14M16 5v14", play: "M7 5l12 7-12 7z",
  plus: "M12 5v14M5 12h14", edit: "M4 20h4L20 8l-4-4L4 16zM13 7l4 4", trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3", download: "M12 4v11M7 11l5 5 5-5M4 20h16", refresh: "M20 11a8 8 0 1 0-2 6M20 5v6h-6",
};
export function icon(name, label) {
  const element = s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": label ? null : "true", role: label ? "img" : null });
  if (label) element.append(s("title", {}, label));
  element.append(s("path", { d: ICONS[name] }));
  return element;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS there is no clipboard for pages but on loopback: the old way.
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", class: "quiet copy", "aria-label": `${label}: ${shortened(text, 60)}`, title: label }, icon("copy"));
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    await copyText(text);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1200);
  });
  return button;
}
export function command(text) {
  return h("div", { class: "command" }, h("code", {}, inline(text)), copyButton(text, "Copy the command"));
}
