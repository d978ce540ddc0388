// The tree as it is now, and one znode of it.
import { get, lines, state } from "./api.js";
import { createChild, deleteZnode, editAcl, editValue } from "./changes.js";
import { append, h, icon, plural, replace, shortened } from "./dom.js";
import { timelineCard } from "./feed.js";
import { TreeList, nameOf, parentOf } from "./treelist.js";
import { summaryOf } from "./values.js";
import { ZnodePanel, treeAddress } from "./znode.js";

const LOOK_MS = 2000;

export class TreeView {
  constructor(place) {
    this.place = place;
    this.left = h("div", { class: "pane tree-pane" });
    this.right = h("div", { class: "pane znode-pane", "aria-live": "off" });
    this.root = h("div", { class: "split" }, this.left, this.right);
    place.append(h("h1", { class: "offscreen" }, "Tree"), this.root);
    this.build();
    this.panel = new ZnodePanel(this.right, { actions: (znode) => this.actions(znode), more: (znode) => this.history(znode.path), onBack: () => this.root.classList.remove("detail") });
    this.timer = setInterval(() => this.look(), LOOK_MS);
    this.path = null;
  }
  actions(znode) {
    if (!state.hello.allows_writes) return [];
    const changed = () => this.again(znode.path);
    const isOurs = znode.path !== "/" && !znode.path.startsWith("/zookeeper");
    return [h("button", { type: "button", onclick: () => editValue(znode.path, changed) }, icon("edit"), "Edit"),
      h("button", { type: "button", onclick: () => createChild(znode.path, (answer) => this.created(answer)) }, icon("plus"), "Create a child"),
      znode.acl && h("button", { type: "button", onclick: () => editAcl(znode, changed) }, icon("lock"), "Edit the ACL"),
      isOurs && h("button", { type: "button", onclick: () => deleteZnode(znode.path, () => this.gone(znode.path)) }, icon("trash"), "Delete")];
  }
  // Kept while the znode is shown: a history that was asked for stays open when the value changes.
  history(path) {
    if (!this.card || this.cardPath !== path) {
      const onRestore = state.hello.allows_writes && ((row) => row.change === "deleted"
        ? createChild(parentOf(path), (answer) => this.created(answer), { name: nameOf(path), data: row.old }) : editValue(path, () => this.again(path), row.old));
      this.card = timelineCard(path, { onRestore: onRestore || null });
      this.cardPath = path;
    }
    return this.card;
  }
  async again(path) {
    await this.panel.show(path);
    await this.refresh(path);
  }
  // A list that cannot be had now is asked for again by `look`.
  async refresh(path) {
    try { await this.list.refresh(path); } catch (error) { this.status.textContent = error.message; this.needsStart = true; }
  }
  async created(answer) {
    await this.refresh(parentOf(answer.path));
    location.hash = treeAddress(answer.path);
    if (answer.path === this.path) this.again(answer.path);
  }
  async gone(path) {
    await this.refresh(parentOf(path));
    if (this.path === path) location.hash = treeAddress(parentOf(path));
    else this.again(this.path);
  }
  build() {
    this.text = h("input", { type: "search", placeholder: "Search the tree", "aria-label": "Search for", autocomplete: "off", spellcheck: "false" });
    this.by = h("select", { "aria-label": "Search by" }, h("option", { value: "path" }, "path"), h("option", { value: "value" }, "value"));
    const form = h("form", { class: "search", role: "search" }, this.text, this.by, h("button", { "aria-label": "Search", title: "Search" }, icon("search")));
    form.addEventListener("submit", (event) => { event.preventDefault(); this.search(); });
    this.narrow = h("input", { type: "search", class: "narrow", placeholder: "Filter children", "aria-label": "Filter the children of the chosen znode", autocomplete: "off", spellcheck: "false" });
    this.narrow.addEventListener("input", () => { clearTimeout(this.wait); this.wait = setTimeout(() => this.filter(), 200); });
    this.status = h("p", { class: "dim tree-status", role: "status" });
    this.results = h("div", { class: "results", hidden: true });
    this.left.append(form, this.narrow, this.status, this.results);
    this.list = new TreeList(this.left, null, (path) => { location.hash = treeAddress(path); });
  }
  close() {
    clearInterval(this.timer);
    this.list.close();
    if (this.abort) this.abort.abort();
  }
  async show(argument, query) {
    if (query.get("search")) { this.text.focus(); if (this.path) return; }
    const path = argument.startsWith("/") ? argument : "/";
    const isFirst = this.path === null;
    if (path === this.path) return;
    this.path = path;
    this.narrow.value = "";
    this.narrow.placeholder = `Filter children of ${shortened(path, 40)}`;
    if (!isFirst || argument) this.root.classList.add("detail");
    this.panel.show(path);
    try {
      if (this.list.selected !== path || isFirst) await this.list.reveal(path, isFirst);
      this.status.textContent = "";
    } catch (error) { this.status.textContent = error.message; this.needsStart = true; }
  }
  async filter() {
    try {
      const branch = await this.list.filter(this.path, this.narrow.value);
      this.status.textContent = this.narrow.value && branch ? `${plural(branch.matching, "child").replace("childs", "children")} of ${branch.total.toLocaleString("en")}` : "";
    } catch (error) { this.status.textContent = error.message; }
  }
  // Is the znode still as it is shown?
  async look() {
    if (document.hidden || this.path === null || this.isLooking || document.querySelector("dialog[open]")) return;
    this.isLooking = true;
    const path = this.path;
    try {
      const found = await get("mark", { path });
      if (path !== this.path) return;
      if (this.needsStart) { this.needsStart = false; await this.list.reveal(path, true); this.status.textContent = ""; }
      const { znode } = this.panel, shown = znode && znode.path === path ? znode.mark : "gone";
      if (!this.panel.isForbidden && shown !== (found.exists ? found.mark : "gone")) {
        await this.panel.show(path, { isQuiet: true });
        if (!this.narrow.value) await this.list.refresh(path);
      }
    } catch (error) {
      if (error.status === 503) { this.status.textContent = error.message; this.needsStart = true; }
    } finally { this.isLooking = false; }
  }

  // -- search
  async search() {
    if (this.abort) this.abort.abort();
    const text = this.text.value, by = this.by.value;
    this.results.hidden = !text;
    this.list.box.hidden = Boolean(text);
    this.narrow.hidden = Boolean(text);
    if (!text) { this.status.textContent = ""; return; }
    const abort = this.abort = new AbortController();
    const head = h("p", { class: "dim", role: "status" }, "Searching…"), found = h("ul", { class: "found" });
    const stop = h("button", { type: "button", onclick: () => { abort.abort(); this.text.value = ""; this.search(); } }, "Close");
    replace(this.results, h("div", { class: "results-bar" }, head, stop), found);
    let hits = 0;
    try {
      await lines("search", { text, by, under: "/" }, (line) => {
        if (line.error) head.textContent = line.error;
        else if (line.found) {
          hits += 1;
          const item = h("li", {}, h("a", { href: treeAddress(line.found) }, shortened(line.found, 160)));
          if (line.data) append(item, [summaryOf(line.data, 120)]);
          found.append(item);
        } else if (line.end) head.textContent = `${plural(hits, "match").replace("matchs", "matches")} among ${line.seen.toLocaleString("en")} znodes${line.is_whole ? "" : "; there may be more"}`;
        else head.textContent = `${hits} found, ${line.seen.toLocaleString("en")} znodes looked at…`;
      }, abort.signal);
    } catch (error) { if (error.name !== "AbortError") head.textContent = error.message; }
  }
}
