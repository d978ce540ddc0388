// Changes as they are committed, and one znode's own.
import { get, state, stream } from "./api.js";
import { clock, count, h, icon, inline, moment, plural, replace, shortened } from "./dom.js";
import { summaryOf } from "./values.js";
import { treeAddress } from "./znode.js";

const MAX_KEPT = 500;
const CHANGES = ["created", "data set", "deleted", "ACL set", "session opened", "session closed", "failed"];
const COLOURS = { created: "created", deleted: "deleted", "data set": "set", "ACL set": "set", failed: "failed", gap: "bad", broken: "bad" };

// Old and new side by side.
export function beside(row) {
  const isBoth = row.change === "data set";
  const side = (title, value, unknown) => h("div", { class: "side" }, h("h4", {}, title), value ? summaryOf(value, 4000) : h("span", { class: "dim" }, unknown));
  if (row.change === "created") return h("div", { class: "beside" }, side("value", row.new, "not read"));
  if (row.change === "deleted") return h("div", { class: "beside" }, side("value before", row.old, "not known"));
  if (!isBoth) return null;
  return h("div", { class: "beside" }, side(`before${row.old_version === null ? "" : `, version ${row.old_version}`}`, row.old, "not known"), side(`after${row.new_version === null ? "" : `, version ${row.new_version}`}`, row.new, "not read"));
}
const hasSession = (row) => row.session && row.session !== "0x0";
function rowElement(row) {
  const details = h("details", { class: "feed-row" }, h("summary", {},
    h("time", { class: "mono dim", title: moment(row.at) }, clock(row.at)), h("span", { class: `chip ${COLOURS[row.change] || ""}` }, row.change),
    row.path ? h("span", { class: "mono path" }, shortened(row.path, 140)) : h("span", { class: "dim path" }, row.error ? `error ${row.error}` : row.op || ""),
    hasSession(row) && h("span", { class: "mono dim session" }, row.session), row.zxid && h("span", { class: "mono dim zxid" }, row.zxid)));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const body = beside(row);
    // Below the line, not in it: a line that opens and holds links is neither to a screen reader.
    const links = [row.path && h("a", { href: treeAddress(row.path) }, "Open it in the tree"), hasSession(row) && h("a", { href: `#sessions/${row.session}` }, "Show its session")];
    details.append(body || h("p", { class: "dim" }, row.op ? `a ${row.op} transaction` : "no values"), h("p", { class: "links" }, links));
  });
  return details;
}

export class FeedView {
  constructor(place) {
    const box = (label, element) => h("label", { class: "field" }, h("span", {}, label), element);
    this.path = h("input", { type: "search", placeholder: "/all", autocomplete: "off", spellcheck: "false", "aria-label": "Only at or below this path" });
    this.change = h("select", { "aria-label": "Only this kind" }, h("option", { value: "" }, "every kind"), CHANGES.map((one) => h("option", { value: one }, one)));
    this.session = h("input", { type: "search", placeholder: "0x…", autocomplete: "off", spellcheck: "false", "aria-label": "Only this session" });
    for (const element of [this.path, this.session]) element.addEventListener("input", () => { clearTimeout(this.wait); this.wait = setTimeout(() => this.start(), 300); });
    this.change.addEventListener("change", () => this.start());
    this.pause = h("button", { type: "button", onclick: () => this.turn() });
    this.status = h("p", { class: "dim", role: "status" });
    this.list = h("div", { class: "card feed", role: "log", "aria-label": "Changes, the newest first" });
    this.empty = h("div", { class: "empty-state" }, "Nothing has changed yet.");
    place.append(h("div", { class: "view-head" }, h("h1", {}, "Live feed"), this.status, h("span", { class: "grow" }), this.pause),
      h("div", { class: "filters" }, box("path", this.path), box("kind", this.change), box("session", this.session)), this.list, this.empty);
    this.isPaused = false;
    this.held = [];
    this.stops = [stream.on("feed", (row) => this.add(row)), stream.on("feed-state", (found) => { this.source = found; this.drawStatus(); }), stream.on("feed-start", () => this.load()),
      stream.on("dropped", ({ count: lost }) => { this.lost = (this.lost || 0) + lost; this.drawStatus(); })];
    this.drawPause();
  }
  show(argument, query) {
    for (const name of ["path", "session"]) if (query.has(name)) this[name].value = query.get(name);
    this.start();
  }
  close() { for (const stop of this.stops) stop(); stream.setFeed(null); this.isClosed = true; }
  get filters() { return { path: this.path.value.trim(), change: this.change.value, session: this.session.value.trim() }; }
  async start() {
    stream.setFeed(this.filters);
    await this.load();
  }
  async load() {
    try {
      const found = await get("feed", this.filters);
      if (this.isClosed) return;
      this.held = [];
      this.kind = found.source;
      this.list.replaceChildren();
      for (const row of found.rows.slice(-MAX_KEPT)) this.list.prepend(rowElement(row));
      this.drawStatus();
    } catch (error) { this.status.textContent = error.message; }
  }
  add(row) {
    if (this.isPaused) { this.held.push(row); if (this.held.length > MAX_KEPT) this.held.shift(); this.drawStatus(); return; }
    this.list.prepend(rowElement(row));
    while (this.list.childElementCount > MAX_KEPT) this.list.lastElementChild.remove();
    this.drawStatus();
  }
  turn() {
    this.isPaused = !this.isPaused;
    if (!this.isPaused) { for (const row of this.held) this.add(row); this.held = []; }
    this.drawPause();
    this.drawStatus();
  }
  drawPause() { replace(this.pause, icon(this.isPaused ? "play" : "pause"), this.isPaused ? "Resume" : "Pause"); this.pause.setAttribute("aria-pressed", String(this.isPaused)); }
  drawStatus() {
    const parts = [this.source && this.source.text, this.kind === "watches" && "who changed it is only in the logs: --data", this.isPaused && `paused, ${plural(this.held.length, "change")} waiting`, this.lost && `${count(this.lost)} left out: too fast`];
    this.status.textContent = parts.filter(Boolean).map(inline).join(" · ");
    this.empty.hidden = this.list.childElementCount > 0;
    this.list.hidden = this.list.childElementCount === 0;
  }
}

// The changes of one znode, as a section of its panel.
export function timelineCard(path, { onRestore = null } = {}) {
  const body = h("div", { class: "timeline" });
  const load = async () => {
    replace(body, h("p", { class: "dim", role: "status" }, state.hello.has_data ? "Reading the logs…" : "Looking…"));
    try {
      const found = await get("timeline", { path });
      const rows = found.changes.map((row) => h("li", {}, h("div", { class: "when" }, h("span", { class: `chip ${COLOURS[row.change] || ""}` }, row.change), h("time", { class: "dim" }, moment(row.at)), row.zxid && h("a", { class: "mono dim", href: state.hello.has_data ? treeAddress(path, row.zxid) : "#feed" }, row.zxid),
        hasSession(row) && h("a", { class: "mono dim", href: `#sessions/${row.session}` }, `by ${row.session}`),
        onRestore && row.old && !row.old.is_hidden && row.old.is_whole && row.change !== "created" && h("button", { type: "button", onclick: () => onRestore(row) }, row.change === "deleted" ? "Create it again" : "Set back to before")), beside(row)));
      const note = [plural(found.total, "change"), found.from && `from ${found.from} to ${found.to}`, found.end].filter(Boolean).join(" · ");
      replace(body, h("p", { class: "dim" }, inline(note)), rows.length ? h("ol", {}, rows) : h("p", { class: "dim" }, "No change of it is in what was read."));
    } catch (error) { replace(body, h("p", { class: "dim" }, error.message)); }
  };
  const button = h("button", { type: "button", onclick: load }, icon("past"), "Show its history");
  body.append(button);
  return h("section", { class: "card" }, h("h3", {}, "History"), body);
}
