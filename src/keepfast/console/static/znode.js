// Everything about one znode.
import { Failure, get, state } from "./api.js";
import { command, copyButton, count, h, icon, inline, moment, plural, replace, shortened } from "./dom.js";
import { nameOf } from "./treelist.js";
import { ValueBox } from "./values.js";

const LETTERS = { c: "create", d: "delete", r: "read", w: "write", a: "admin" };
export const treeAddress = (path, at) => `#${at ? "past" : "tree"}/${encodeURIComponent(path)}${at ? `?at=${at}` : ""}`;

// The znodes that every tree begins with have no time.
const since = (time) => new Date(time).getTime() === 0 ? "with the tree" : moment(time);

export class ZnodePanel {
  // `at`: a zxid of the past or null; `actions(znode)`: buttons; `more(znode)`: sections after the others.
  constructor(place, { at = null, actions = () => [], more = () => [], onBack = null } = {}) {
    Object.assign(this, { at, actions, more, onBack });
    this.place = place;
    this.znode = null;
  }
  async show(path, { isQuiet = false, whole = null } = {}) {
    this.path = path;
    this.isForbidden = false;
    if (this.abort) this.abort.abort();
    this.abort = new AbortController();
    try {
      const znode = await get("znode", { path, at: this.at, whole }, this.abort.signal);
      this.znode = znode;
      this.draw();
    } catch (error) {
      if (error.name === "AbortError" || (isQuiet && !(error instanceof Failure && error.status === 404))) return;
      this.znode = null;
      this.isForbidden = error.status === 403;
      this.fail(error);
    }
  }
  fail(error) {
    const isGone = error.status === 404;
    replace(this.place, this.head(this.path, null), h("div", { class: "empty-state" }, h("p", {}, isGone ? "There is no such znode" + (this.at ? " at this moment." : " now.") : error.message),
      isGone && state.hello.has_data && !this.at && this.undelete()), isGone && !this.at && this.more({ path: this.path }));
  }
  undelete() {
    const places = Array.isArray(state.hello.places) ? state.hello.places.join(" ") : "DIR...";
    return [h("p", { class: "dim" }, "If it was deleted, this gives the commands that bring it back:"), command(`keepfast undelete ${places} --path ${this.path}`)];
  }
  head(path, znode) {
    const parts = path === "/" ? [] : path.slice(1).split("/");
    const crumbs = [h("a", { href: treeAddress("/", this.at) }, "/")];
    parts.forEach((name, index) => {
      const to = `/${parts.slice(0, index + 1).join("/")}`;
      if (index) crumbs.push(h("span", { class: "dim" }, "/"));
      crumbs.push(h("a", { href: treeAddress(to, this.at) }, shortened(name, 60)));
    });
    return h("header", { class: "znode-head" },
      this.onBack && h("button", { type: "button", class: "quiet back", "aria-label": "Back to the tree", onclick: this.onBack }, icon("back")),
      h("div", { class: "grow" }, h("h2", { title: shortened(path, 300) }, path === "/" ? "/" : shortened(nameOf(path), 120)),
        h("p", { class: "crumbs mono" }, crumbs, copyButton(path, "Copy the path"))),
      znode && h("span", { class: `chip kind ${znode.kind}` }, znode.kind));
  }
  draw() {
    const { znode, at } = this;
    const data = h("section", { class: "card data-card" });
    if (!this.box || this.boxPath !== znode.path) { this.box = new ValueBox(data, { onWhole: () => this.show(this.path, { whole: 1 }) }); this.boxPath = znode.path; }
    else data.append(this.box.bar, this.box.body);
    this.box.show(znode.data, znode.path, at);
    replace(this.place, this.head(znode.path, znode), h("div", { class: "actions" }, this.actions(znode)), data,
      h("div", { class: "columns" }, this.statCard(znode), h("div", {}, this.aclCard(znode), this.quotaCard(znode))),
      this.more(znode));
  }
  statCard(znode) {
    const { stat } = znode;
    const below = h("span");
    const countAll = h("button", { type: "button", class: "link", onclick: async () => {
      below.textContent = " counting…";
      try { below.textContent = ` ${plural((await get("count", { path: znode.path, at: this.at })).below, "znode")} below`; } catch (error) { below.textContent = ` ${error.message}`; }
    } }, "count all below");
    const rows = [
      ["children", [count(stat.num_children), " ", stat.num_children > 0 && countAll, below]],
      ["data version", stat.version], ["created", [since(stat.ctime), h("span", { class: "mono dim" }, ` ${stat.czxid}`)]],
      ["modified", [since(stat.mtime), h("span", { class: "mono dim" }, ` ${stat.mzxid}`)]],
      ["children changed", h("span", { class: "mono" }, stat.pzxid)], ["child version", stat.cversion], ["ACL version", stat.aversion],
      znode.owner && ["owner", this.at ? h("span", { class: "mono" }, znode.owner) : h("a", { class: "mono", href: `#sessions/${znode.owner}` }, `session ${znode.owner}`)],
      znode.ttl_ms && ["TTL", `${count(znode.ttl_ms)} ms`],
    ];
    return h("section", { class: "card" }, h("h3", {}, "Stat"), h("dl", { class: "facts" }, rows.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }
  aclCard(znode) {
    if (znode.acl === null) return h("section", { class: "card" }, h("h3", {}, "ACL"), h("p", { class: "dim" }, "You may not read it."));
    const entries = znode.acl.map((one) => h("li", {}, h("span", { class: "mono" }, `${inline(one.scheme)}:${shortened(one.id, 80)}`),
      h("span", { class: "perms", title: [...one.perms].map((c) => LETTERS[c]).join(", ") }, [..."cdrwa"].map((c) => h("span", { class: one.perms.includes(c) ? "on" : "off" }, c)))));
    return h("section", { class: "card" }, h("h3", {}, "ACL"), znode.acl.length ? h("ul", { class: "acl" }, entries) : h("p", { class: "dim" }, "No entry: everybody may do everything."));
  }
  quotaCard(znode) {
    if (!znode.quota) return null;
    const { limits, used, path } = znode.quota;
    const one = (label, name, hard) => {
      const soft = limits[name], firm = limits[hard], most = firm > 0 ? firm : soft;
      if (!(most > 0)) return null;
      const share = Math.min(used[name] / most, 1);
      return h("div", { class: "quota" }, h("span", {}, `${label}: ${count(used[name])} of ${count(most)}${firm > 0 ? "" : " (soft)"}`), h("meter", { min: 0, max: 1, high: 0.8, value: share, "aria-label": label }));
    };
    return h("section", { class: "card" }, h("h3", {}, "Quota"), path !== znode.path && h("p", { class: "dim" }, "of ", h("a", { href: treeAddress(path) }, shortened(path, 60))), one("znodes", "count", "countHardLimit"), one("bytes", "bytes", "byteHardLimit"));
  }
}
