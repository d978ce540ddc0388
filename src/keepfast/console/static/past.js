// The tree as it was, by a slider; what differs between two moments; commands that bring it back.
import { get, state } from "./api.js";
import { command, count, h, inline, moment, plural, replace, shortened } from "./dom.js";
import { TreeList } from "./treelist.js";
import { summaryOf } from "./values.js";
import { ZnodePanel, treeAddress } from "./znode.js";

const quote = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
const places = () => Array.isArray(state.hello.places) ? state.hello.places.map(quote).join(" ") : "DIR...";

// A slider over all that the logs hold, and a box for an exact moment.
class MomentPicker {
  constructor(label, onPick) {
    this.onPick = onPick;
    this.points = [];
    this.slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": label });
    this.exact = h("input", { type: "text", class: "mono", "aria-label": `${label}: a zxid or a time`, placeholder: "0x… or 2026-11-17T09:00Z", autocomplete: "off", spellcheck: "false" });
    this.text = h("output", { class: "dim" });
    this.element = h("div", { class: "picker" }, h("span", { class: "label" }, label), this.slider, this.exact, this.text);
    this.slider.addEventListener("input", () => this.preview());
    this.slider.addEventListener("change", () => this.pick(this.points[this.slider.value][0]));
    this.exact.addEventListener("change", () => { if (this.exact.value.trim()) this.pick(this.exact.value.trim()); });
  }
  use(points) {
    this.points = points;
    this.slider.max = Math.max(points.length - 1, 0);
    this.slider.disabled = !points.length;
  }
  preview() {
    const [zxid, time] = this.points[this.slider.value];
    this.exact.value = zxid;
    this.text.textContent = moment(time);
  }
  set(at) {
    this.value = at;
    this.exact.value = at;
    const wanted = /^0x/.test(at) ? Number(at) : null;
    let index = this.points.findIndex(([zxid, time]) => wanted === null ? time >= Date.parse(at) : Number(zxid) >= wanted);
    if (index < 0) index = this.points.length - 1;
    if (index >= 0) { this.slider.value = index; this.text.textContent = moment(this.points[index][1]); }
  }
  pick(at) { this.set(at); this.onPick(at); }
}

export class PastView {
  constructor(place) {
    this.picker = new MomentPicker("Moment", (at) => this.go(this.path || "/", at));
    this.other = new MomentPicker("Compare with", (at) => this.compare(at));
    this.other.element.hidden = true;
    this.isComparing = false;
    this.mode = h("div", { class: "segments", role: "group", "aria-label": "Show" },
      h("button", { type: "button", "aria-pressed": "true", onclick: () => this.setMode(false) }, "Tree"), h("button", { type: "button", "aria-pressed": "false", onclick: () => this.setMode(true) }, "Differences"));
    this.status = h("p", { class: "dim", role: "status" });
    this.left = h("div", { class: "pane tree-pane" });
    this.right = h("div", { class: "pane znode-pane" });
    this.split = h("div", { class: "split past-split" }, this.left, this.right);
    this.differences = h("div", { class: "differences", hidden: true });
    this.commands = h("div", { class: "card commands" });
    place.append(h("div", { class: "view-head" }, h("h1", {}, "Past"), h("span", { class: "grow" }), this.mode), h("div", { class: "card pickers" }, this.picker.element, this.other.element, this.status), this.split, this.differences, this.commands);
  }
  close() { this.isClosed = true; if (this.list) this.list.close(); }
  async show(argument, query) {
    try {
      if (!this.range) await this.loadRange();
    } catch (error) { this.status.textContent = error.message; return; }
    if (this.isClosed) return;
    const path = argument.startsWith("/") ? argument : "/";
    const at = query.get("at") || this.at || (this.range.points.length ? this.range.points[this.range.points.length - 1][0] : null);
    if (at === null) { this.status.textContent = "There are no records in these directories yet."; return; }
    if (query.get("with")) { this.setMode(true, true); this.other.set(query.get("with")); }
    if (argument) this.split.classList.add("detail");
    await this.open(path, at);
  }
  async loadRange() {
    this.range = await get("range");
    this.picker.use(this.range.points);
    this.other.use(this.range.points);
  }
  go(path, at) { const to = treeAddress(path, at); if (location.hash === to) this.open(path, at); else location.hash = to; }
  async open(path, at) {
    this.path = path;
    this.picker.set(at);
    const isAnew = at !== this.at;
    if (isAnew) {
      this.at = at;
      this.status.textContent = "Working out the tree at this moment…";
      this.left.replaceChildren();
      this.right.replaceChildren();
      if (this.list) this.list.close();
      try {
        const about = await get("about", { at });
        if (this.at !== at || this.isClosed) return;
        this.describe(about);
      } catch (error) { this.status.textContent = error.message; this.drawCommands(); return; }
      this.list = new TreeList(this.left, at, (chosen) => this.go(chosen, at));
      this.panel = new ZnodePanel(this.right, { at, onBack: () => this.split.classList.remove("detail") });
    }
    this.drawCommands();
    this.panel.show(path);
    if (isAnew || this.list.selected !== path) await this.list.reveal(path, isAnew);
    if (this.isComparing && this.other.value) this.compare(this.other.value);
  }
  describe(about) {
    const who = about.agreeing.length ? `${about.agreeing.length === 1 ? "server" : "servers"} ${about.agreeing.join(", ")} prove${about.agreeing.length === 1 ? "s" : ""} it` : "";
    const parts = [`${plural(about.znodes, "znode")} at ${about.zxid}`, who, about.differing.length && `server ${about.differing.join(", ")} differs`, about.note, about.caution];
    this.status.textContent = parts.filter(Boolean).map(inline).join(" · ");
  }
  setMode(isComparing, isQuiet = false) {
    this.isComparing = isComparing;
    const [tree, differences] = this.mode.children;
    tree.setAttribute("aria-pressed", String(!isComparing));
    differences.setAttribute("aria-pressed", String(isComparing));
    this.other.element.hidden = !isComparing;
    this.split.hidden = isComparing;
    this.differences.hidden = !isComparing;
    if (isComparing && !isQuiet) {
      if (!this.other.value && this.range && this.range.points.length) this.other.set(this.range.points[this.range.points.length - 1][0]);
      if (this.other.value) this.compare(this.other.value);
    }
    this.drawCommands();
  }
  async compare(at) {
    const wanted = `${this.at} ${at}`;
    this.compared = wanted;
    replace(this.differences, h("p", { class: "dim", role: "status" }, "Comparing…"));
    try {
      const found = await get("compare", { from: this.at, to: at, path: "/" });
      if (this.compared !== wanted) return;
      const cell = (label, value) => h("div", { class: "side" }, h("h4", {}, label), value ? summaryOf(value, 2000) : h("span", { class: "dim" }, "not there"));
      const rows = found.differences.map((one) => h("details", { class: "feed-row" }, h("summary", {}, h("span", { class: `chip ${one.kind === "changed" ? "set" : one.kind}` }, one.kind), h("a", { class: "mono path", href: treeAddress(one.path, one.kind === "deleted" ? this.at : at) }, shortened(one.path, 160)), h("span", { class: "dim" }, one.fields.join(", "))),
        h("div", { class: "beside" }, cell(`at ${this.at}`, one.old), cell(`at ${at}`, one.new))));
      replace(this.differences, h("p", { class: "dim", role: "status" }, found.total ? `${plural(found.total, "znode")} differ${found.total === 1 ? "s" : ""}${found.total > rows.length ? `; the first ${count(rows.length)}` : ""}` : "No znode differs."), rows.length > 0 && h("div", { class: "card feed" }, rows));
    } catch (error) { replace(this.differences, h("p", { class: "dim" }, error.message)); }
  }
  drawCommands() {
    const at = this.at, path = this.path && this.path !== "/" ? this.path : null;
    replace(this.commands, h("h3", {}, "Bring it back"), h("p", { class: "dim" }, "A directory that a server starts on, with the tree of this moment:"), command(`keepfast restore ${places()} --at ${at} --to restored`),
      path && [h("p", { class: "dim" }, "The commands that create this subtree again:"), command(`keepfast undelete ${places()} --path ${quote(path)} --at ${at}`)],
      this.isComparing && this.other.value && [h("p", { class: "dim" }, "The same differences on a terminal:"), command(`keepfast diff ${places()} --from ${at} --to ${this.other.value}`)]);
  }
}
