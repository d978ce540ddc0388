// A tree of any size: only the rows that can be seen exist, and only the pages of children that were looked
// at are asked for. A branch knows how many rows it has; where a row is follows from the branches that are open.
import { get } from "./api.js";
import { bytes, count, h, replace, shortened } from "./dom.js";

const ROW = 30, PAGE = 100, SPARE = 8, INDENT = 18;
const KEYS = new Set(["ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft", "PageDown", "PageUp", "Home", "End", "Enter", " "]);
const join = (path, name) => path === "/" ? `/${name}` : `${path}/${name}`;
export const parentOf = (path) => path === "/" ? null : path.slice(0, path.lastIndexOf("/")) || "/";
export const nameOf = (path) => path === "/" ? "/" : path.slice(path.lastIndexOf("/") + 1);

class Branch {
  constructor(path, depth, parent, index) {
    Object.assign(this, { path, depth, parent, index });
    this.filter = "";
    this.total = 0;
    this.matching = 0;
    this.pages = new Map();
    this.loading = new Set();
    this.open = new Map(); // index of a child -> its branch
  }
  get sorted() { return [...this.open].sort((one, other) => one[0] - other[0]); }
  get rows() {
    let sum = this.matching;
    for (const child of this.open.values()) sum += child.rows;
    return sum;
  }
  child(index) {
    const page = this.pages.get(Math.floor(index / PAGE));
    return page ? page[index % PAGE] : undefined;
  }
  find(row) {
    let extra = 0;
    for (const [index, child] of this.sorted) {
      const at = index + extra;
      if (row <= at) break;
      if (row <= at + child.rows) return child.find(row - at - 1);
      extra += child.rows;
    }
    return { branch: this, index: row - extra };
  }
  // The row of a child among all rows below the root.
  row(index) {
    let sum = index;
    for (const [other, child] of this.open) if (other < index) sum += child.rows;
    return this.parent ? this.parent.row(this.index) + 1 + sum : 1 + sum;
  }
}

export class TreeList {
  // `onSelect(path)`: a znode was chosen; `at`: a zxid of the past, or null.
  constructor(place, at, onSelect) {
    this.at = at;
    this.onSelect = onSelect;
    this.selected = "/";
    this.cursor = 0;
    this.unfolding = 0;
    this.keys = []; // pressed while no row was the chosen one's yet
    this.rootInfo = { children: 1 };
    this.root = new Branch("/", 1, null, 0);
    this.isRootOpen = true;
    this.spacer = h("div", { class: "spacer" });
    this.box = h("div", { class: "treelist", role: "tree", tabindex: "0", "aria-label": "Znodes", "aria-activedescendant": "tree-row" }, this.spacer);
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.press(event));
    this.box.addEventListener("click", (event) => this.click(event));
    place.append(this.box);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.box);
    this.isClosed = false;
  }
  close() { this.isClosed = true; this.observer.disconnect(); }
  get rows() { return 1 + (this.isRootOpen ? this.root.rows : 0); }

  // -- loading
  async load(branch, page, around) {
    const key = around === undefined ? page : `a${around}`;
    if (branch.loading.has(key)) return null;
    branch.loading.add(key);
    try {
      const answer = await get("children", { path: branch.path, filter: branch.filter, first: around === undefined ? page * PAGE : null, count: PAGE, around, at: this.at });
      if (this.isClosed) return null;
      if (answer.matching !== branch.matching && branch.pages.size) { branch.pages.clear(); }
      branch.total = answer.total;
      branch.matching = answer.matching;
      branch.pages.set(Math.floor(answer.first / PAGE), answer.children);
      this.draw();
      return answer;
    } finally { branch.loading.delete(key); }
  }
  // Open all branches down to a path, choose it, and bring it into view; gives whether it is there. Until then
  // the cursor is on no row of that path, so keys wait: whoever presses one early means the znode that is asked for.
  async reveal(path, isAnew = false) {
    clearTimeout(this.timer);
    this.unfolding += 1;
    try {
      if (isAnew) {
        await this.load(this.root, 0);
        if (this.root.total === 0) this.rootInfo = { children: 0 };
      }
      return await this.unfold(path);
    } finally {
      this.unfolding -= 1;
      if (!this.unfolding) for (const key of this.keys.splice(0)) this.act(key);
    }
  }
  async unfold(path) {
    let branch = this.root;
    this.isRootOpen = true;
    const names = path === "/" ? [] : path.slice(1).split("/");
    let cursor = 0;
    for (let i = 0; i < names.length; i += 1) {
      let index = this.indexIn(branch, names[i]);
      if (index < 0) {
        const answer = await this.load(branch, 0, names[i]);
        index = answer ? answer.index : this.indexIn(branch, names[i]);
      }
      if (index === undefined || index < 0) { this.selected = path; this.draw(); return false; }
      cursor = branch.row(index);
      if (i < names.length - 1) branch = await this.expand(branch, index, false);
      if (!branch) return false;
    }
    this.selected = path;
    this.cursor = cursor;
    this.scrollTo(cursor);
    this.draw();
    return true;
  }
  indexIn(branch, name) {
    for (const [page, rows] of branch.pages) {
      const at = rows.findIndex((one) => one.name === name);
      if (at >= 0) return page * PAGE + at;
    }
    return -1;
  }
  async expand(branch, index, shouldLoad = true) {
    let child = branch.open.get(index);
    if (child) return child;
    const info = branch.child(index);
    if (!info) return null;
    child = new Branch(join(branch.path, info.name), branch.depth + 1, branch, index);
    child.matching = child.total = info.children || 0;
    branch.open.set(index, child);
    if (shouldLoad) await this.load(child, 0);
    this.draw();
    return child;
  }
  branchOf(path) {
    if (path === "/") return this.root;
    let branch = this.root;
    for (const name of path.slice(1).split("/")) {
      const index = this.indexIn(branch, name);
      branch = index < 0 ? null : branch.open.get(index);
      if (!branch) return null;
    }
    return branch;
  }
  // Show only the children of a path whose names contain a text; the server picks them.
  async filter(path, text) {
    let branch = this.branchOf(path);
    if (!branch) {
      await this.reveal(path);
      const up = this.branchOf(parentOf(path) || "/");
      branch = up && await this.expand(up, this.indexIn(up, nameOf(path)), false);
    }
    if (!branch) return null;
    branch.filter = text;
    await this.reload(branch);
    return branch;
  }
  // The children are others now: ask again, and keep open what is still there.
  async reload(branch) {
    const names = [...branch.open.values()].map((one) => one.path);
    branch.pages.clear();
    branch.open.clear();
    branch.matching = 0;
    await this.load(branch, 0);
    const selected = this.selected;
    for (const path of names) {
      const index = this.indexIn(branch, nameOf(path));
      if (index >= 0) await this.expand(branch, index);
    }
    this.selected = selected;
    this.draw();
  }
  async refresh(path) {
    const branch = this.branchOf(path);
    if (branch) await this.reload(branch);
    else {
      const up = parentOf(path) && this.branchOf(parentOf(path));
      if (up) await this.reload(up);
    }
  }

  // -- choosing
  at_(row) {
    if (row === 0) return { path: "/", info: this.rootInfo, branch: null, index: 0, depth: 0 };
    const { branch, index } = this.root.find(row - 1);
    const info = branch.child(index);
    return { branch, index, depth: branch.depth, info, path: info ? join(branch.path, info.name) : null };
  }
  choose(row, isAtOnce = false) {
    this.cursor = Math.min(Math.max(row, 0), this.rows - 1);
    const here = this.at_(this.cursor);
    if (here.path) this.selected = here.path;
    this.scrollTo(this.cursor);
    this.draw();
    clearTimeout(this.timer);
    // Whoever holds a key down passes many rows, and wants none of them.
    if (here.path && isAtOnce) this.onSelect(here.path);
    else if (here.path) this.timer = setTimeout(() => this.onSelect(here.path), 60);
  }
  async toggle(row, wanted) {
    const here = this.at_(row);
    if (row === 0) { this.isRootOpen = wanted === undefined ? !this.isRootOpen : wanted; this.draw(); return; }
    if (!here.info) return;
    const isOpen = here.branch.open.has(here.index);
    if (isOpen && wanted !== true) here.branch.open.delete(here.index);
    else if (!isOpen && wanted !== false && here.info.children > 0) await this.expand(here.branch, here.index);
    this.draw();
  }
  click(event) {
    const element = event.target.closest("[data-row]");
    if (!element) return;
    const row = Number(element.dataset.row);
    if (event.target.closest(".twisty")) this.toggle(row);
    else this.choose(row, true);
  }
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS.has(event.key)) return;
    event.preventDefault();
    if (this.unfolding) this.keys.push(event.key);
    else this.act(event.key);
  }
  act(key) {
    const page = Math.max(Math.floor(this.box.clientHeight / ROW) - 1, 1);
    const here = this.at_(this.cursor);
    const isOpen = here.branch ? here.branch.open.has(here.index) : this.isRootOpen;
    if (key === "ArrowDown") this.choose(this.cursor + 1);
    else if (key === "ArrowUp") this.choose(this.cursor - 1);
    else if (key === "PageDown") this.choose(this.cursor + page);
    else if (key === "PageUp") this.choose(this.cursor - page);
    else if (key === "Home") this.choose(0);
    else if (key === "End") this.choose(this.rows - 1);
    else if (key === "ArrowRight") { if (isOpen) this.choose(this.cursor + 1); else this.toggle(this.cursor, true); }
    else if (key === "ArrowLeft") {
      if (isOpen) this.toggle(this.cursor, false);
      else if (here.branch) this.choose(here.branch.parent ? here.branch.parent.row(here.branch.index) : 0);
    } else this.choose(this.cursor);
  }
  scrollTo(row) {
    const top = row * ROW, box = this.box;
    this.spacer.style.height = `${this.rows * ROW}px`;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
  }

  // -- drawing
  draw() {
    if (this.isClosed || this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => { this.isPlanned = false; if (!this.isClosed) this.paint(); });
  }
  paint() {
    const rows = this.rows;
    this.spacer.style.height = `${rows * ROW}px`;
    const first = Math.max(Math.floor(this.box.scrollTop / ROW) - SPARE, 0);
    const last = Math.min(first + Math.ceil(this.box.clientHeight / ROW) + 2 * SPARE, rows);
    const shown = [];
    for (let row = first; row < last; row += 1) shown.push(this.row(row));
    replace(this.spacer, shown);
  }
  row(row) {
    const here = this.at_(row), { info } = here;
    if (!info && here.branch) this.load(here.branch, Math.floor(here.index / PAGE)).catch(() => {});
    const isSelected = here.path !== null && here.path === this.selected;
    const isOpen = here.branch ? here.branch.open.has(here.index) : this.isRootOpen;
    const hasChildren = info && info.children > 0;
    const element = h("div", { class: `treerow${isSelected ? " selected" : ""}${info && info.not_shown ? ` ${info.not_shown}` : ""}`, role: "treeitem", "data-row": row,
      "aria-level": here.depth + 1, "aria-selected": isSelected ? "true" : "false", "aria-expanded": hasChildren ? String(isOpen) : null,
      "aria-setsize": here.branch ? here.branch.matching : 1, "aria-posinset": here.index + 1, id: row === this.cursor ? "tree-row" : null });
    element.style.top = `${row * ROW}px`;
    element.style.paddingLeft = `${8 + here.depth * INDENT}px`;
    if (!info) { element.append(h("span", { class: "skeleton" })); return element; }
    element.append(h("span", { class: `twisty${hasChildren ? "" : " none"}`, "aria-hidden": "true" }, hasChildren ? (isOpen ? "▾" : "▸") : ""),
      h("span", { class: `name ${info.kind || ""}`, title: here.path === "/" ? "/" : shortened(info.name, 300) }, here.path === "/" ? "/" : shortened(info.name, 80)));
    if (info.not_shown === "forbidden") element.append(h("span", { class: "tag" }, "not yours to read"));
    if (info.kind && info.kind !== "persistent") element.append(h("span", { class: `tag ${info.kind}` }, info.kind));
    if (hasChildren && here.branch) element.append(h("span", { class: "amount" }, count(info.children)));
    else if (info.length) element.append(h("span", { class: "size" }, bytes(info.length)));
    return element;
  }
}
