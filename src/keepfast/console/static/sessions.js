// Who is connected, from where, since when, with which ephemerals and watches.
import { get } from "./api.js";
import { ago, copyButton, count, duration, h, inline, moment, plural, replace, shortened } from "./dom.js";
import { treeAddress } from "./znode.js";

const LOOK_MS = 3000;

export class SessionsView {
  constructor(place) {
    this.filter = h("input", { type: "search", placeholder: "Filter by id or address", "aria-label": "Filter sessions", autocomplete: "off", spellcheck: "false" });
    this.filter.addEventListener("input", () => { clearTimeout(this.wait); this.wait = setTimeout(() => this.load(), 200); });
    this.status = h("p", { class: "dim", role: "status" });
    this.notes = h("div", { class: "notes" });
    this.body = h("div", { class: "session-list" });
    place.append(h("div", { class: "view-head" }, h("h1", {}, "Sessions"), this.status, h("span", { class: "grow" }), h("div", { class: "narrow-box" }, this.filter)), this.notes, this.body);
    this.open = new Set();
    this.timer = setInterval(() => { if (!document.hidden) this.load(); }, LOOK_MS);
  }
  show(argument) {
    if (argument) { this.filter.value = argument; this.open.add(argument); }
    this.load();
  }
  close() { clearInterval(this.timer); this.isClosed = true; }
  async load() {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const found = await get("sessions", { filter: this.filter.value });
      if (!this.isClosed) this.draw(found);
    } catch (error) { this.status.textContent = error.message; } finally { this.isLoading = false; }
  }
  draw(found) {
    this.status.textContent = found.matching === found.total ? plural(found.total, "session") : `${count(found.matching)} of ${plural(found.total, "session")}`;
    replace(this.notes, found.notes.map((text) => h("p", { class: "dim" }, inline(text))));
    const focused = document.activeElement && document.activeElement.closest ? document.activeElement.closest("[data-session]") : null;
    const kept = focused && focused.dataset.session;
    replace(this.body, found.sessions.map((one) => this.card(one)));
    if (kept) { const again = this.body.querySelector(`[data-session="${CSS.escape(kept)}"] summary`); if (again) again.focus(); }
    if (!found.sessions.length) this.body.append(h("div", { class: "empty-state" }, found.total ? "No session matches." : "Nobody is connected."));
  }
  card(one) {
    const paths = (title, list, total, word) => total > 0 && h("section", {}, h("h3", {}, `${title} (${count(total)})`),
      h("ul", { class: "paths" }, list.map((path) => h("li", {}, h("a", { href: treeAddress(path), class: "mono" }, shortened(path, 140))))), total > list.length && h("p", { class: "dim" }, `and ${count(total - list.length)} more ${word}`));
    const details = h("details", { class: `card session${one.server ? "" : " away"}`, "data-session": one.id, open: this.open.has(one.id) },
      h("summary", {}, h("span", { class: "mono id" }, one.id), h("span", { class: "from" }, one.server ? inline(one.address) : "not connected"),
        h("span", { class: "dim" }, one.server ? `at ${inline(one.server)}` : "its ephemerals stay until it expires"),
        h("span", { class: "badges" }, one.ephemeral_count > 0 && h("span", { class: "chip ephemeral" }, plural(one.ephemeral_count, "ephemeral")), one.watch_count > 0 && h("span", { class: "chip" }, one.watch_count === 1 ? "1 watch" : `${count(one.watch_count)} watches`)),
        h("span", { class: "dim seen" }, one.seen ? `seen ${ago(one.seen)}` : "")),
      h("div", { class: "columns" }, h("dl", { class: "facts" }, [
        ["connected since", one.since ? `${moment(one.since)} (${duration(Date.now() - one.since)})` : "–"], ["timeout", one.timeout_ms ? duration(one.timeout_ms) : "–"],
        ["last operation", one.last_operation ? inline(one.last_operation) : "–"], ["last zxid", h("span", { class: "mono" }, one.last_zxid || "–")],
        ["packets", `${count(one.received)} received, ${count(one.sent)} sent, ${count(one.queued)} queued`],
        ["latency", one.latency_ms[0] === null ? "–" : `least ${one.latency_ms[0]}, mean ${one.latency_ms[1]}, most ${one.latency_ms[2]} ms`]].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
        h("div", {}, paths("Ephemerals", one.ephemerals, one.ephemeral_count, "ephemerals"), paths("Watches", one.watches, one.watch_count, "watches"), !one.ephemeral_count && !one.watch_count && h("p", { class: "dim" }, "No ephemerals, no watches on data."))),
      h("p", { class: "more" }, h("a", { href: `#feed?session=${one.id}` }, "its changes in the feed"), copyButton(one.id, "Copy the id")));
    details.addEventListener("toggle", () => { if (details.open) this.open.add(one.id); else this.open.delete(one.id); });
    return details;
  }
}
