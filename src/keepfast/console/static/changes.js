// Dialogs that change something: each asks once, and says what was done and how to take it back.
import { get, post } from "./api.js";
import { message } from "./messages.js";
import { base64Of, bytes, bytesOf, count, h, inline, plural, replace, shortened, textOf } from "./dom.js";
import { summaryOf } from "./values.js";

const encoder = new TextEncoder();

function dialog(title, ...content) {
  const problem = h("p", { class: "problem", role: "alert" });
  const element = h("dialog", { "aria-label": title }, h("h2", {}, title), content, problem);
  element.addEventListener("close", () => element.remove());
  document.body.append(element);
  element.showModal();
  return { element, problem, close: () => element.close() };
}
function buttons(label, level, onDo) {
  const run = h("button", { type: "submit", class: level }, label);
  return { run, element: h("div", { class: "buttons" }, h("button", { type: "button", onclick: (event) => event.target.closest("dialog").close() }, "Cancel"), run), onDo };
}
function done(answer, onDone) {
  const undo = answer.undo && { label: "Undo", run: async () => {
    try { const back = await post("undo", { id: answer.undo.id }); message(back.sentence); onDone(back); } catch (error) { message(error.message, "bad"); }
  } };
  message(answer.sentence, "good", undo);
  onDone(answer);
}

// A value to type: as text, or as hex where it is not text.
class Editor {
  constructor(document) {
    const data = document ? bytesOf(document.base64) : new Uint8Array();
    const text = textOf(data);
    this.isNull = h("input", { type: "checkbox", id: "edit-null" });
    this.isNull.checked = Boolean(document && document.is_null);
    this.mode = text === null ? "hex" : "text";
    this.area = h("textarea", { rows: 12, spellcheck: "false", "aria-label": this.mode === "hex" ? "Value in hex" : "Value" });
    this.area.value = text === null ? [...data].map((one) => one.toString(16).padStart(2, "0")).join(" ").replace(/((?:.. ){15}..) /g, "$1\n") : text;
    this.area.disabled = this.isNull.checked;
    this.isNull.addEventListener("change", () => { this.area.disabled = this.isNull.checked; });
    this.element = h("div", { class: "editor" }, this.mode === "hex" && h("p", { class: "dim" }, "This value is not text; its bytes in hex:"), this.area, h("label", { class: "check" }, this.isNull, " null: no data at all"));
  }
  get base64() {
    if (this.isNull.checked) return null;
    if (this.mode === "text") return base64Of(encoder.encode(this.area.value));
    const digits = this.area.value.replace(/\s+/g, "");
    if (!/^(?:[0-9a-fA-F]{2})*$/.test(digits)) throw new Error("the hex digits do not come in pairs");
    return base64Of(Uint8Array.from(digits.match(/../g) || [], (pair) => parseInt(pair, 16)));
  }
}

export async function editValue(path, onDone, value = null) {
  // As it is now, and all of it: an edit of a part would lose the rest.
  const znode = await get("znode", { path, whole: 1 });
  if (!znode.data.is_whole) { message("This value is too large to be edited here", "bad"); return; }
  const editor = new Editor(value || znode.data);
  const conflict = h("div", { class: "conflict" });
  const { run, element } = buttons("Save", "primary");
  let version = znode.stat.version;
  const form = h("form", {}, h("p", { class: "dim" }, `The version that was read is ${version}; if somebody changed it meanwhile, nothing is overwritten.`), editor.element, conflict, element);
  const box = dialog(`Edit ${shortened(path, 60)}`, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    run.disabled = true;
    box.problem.textContent = "";
    try {
      const answer = await post("change", { kind: "set", path, base64: editor.base64, version });
      box.close();
      done(answer, onDone);
    } catch (error) {
      box.problem.textContent = error.message;
      const theirs = error.document && error.document.theirs;
      if (theirs) {
        // Both, side by side; the next save is over theirs, knowingly.
        version = theirs.stat.version;
        let ours = { is_null: true };
        try { const mine = editor.base64; ours = mine === null ? { is_null: true, length: 0 } : { base64: mine, length: bytesOf(mine).length, is_whole: true }; } catch { /* not a value yet */ }
        replace(conflict, h("div", { class: "beside" }, h("div", { class: "side" }, h("h4", {}, `theirs, version ${version}`), summaryOf(theirs.data, 4000)), h("div", { class: "side" }, h("h4", {}, "yours"), summaryOf(ours, 4000))));
        run.textContent = "Save over theirs";
        run.className = "danger";
      }
      run.disabled = false;
    }
  });
  editor.area.focus();
}

export function createChild(parent, onDone, preset = null) {
  const name = h("input", { type: "text", id: "create-name", required: true, autocomplete: "off", spellcheck: "false", value: preset ? preset.name : "" });
  const mode = h("select", { id: "create-mode" }, [["persistent", "persistent"], ["persistent-sequential", "sequential: a number is added"], ["container", "container: goes when it is empty"], ["ttl", "with a time to live"]].map(([value, text]) => h("option", { value }, text)));
  const ttl = h("input", { type: "number", id: "create-ttl", min: 1, value: 60000 });
  const ttlRow = h("div", { hidden: true }, h("label", { for: "create-ttl" }, "Milliseconds to live"), ttl);
  mode.addEventListener("change", () => { ttlRow.hidden = mode.value !== "ttl"; });
  const editor = new Editor(preset ? preset.data : null);
  const { run, element } = buttons("Create", "primary");
  const form = h("form", {}, h("label", { for: "create-name" }, "Name"), name, h("label", { for: "create-mode" }, "Kind"), mode, ttlRow, h("span", { class: "label" }, "Value"), editor.element, element);
  const box = dialog(`Create a child of ${shortened(parent, 60)}`, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    run.disabled = true;
    try {
      const answer = await post("change", { kind: "create", path: `${parent === "/" ? "" : parent}/${name.value}`, base64: editor.base64, mode: mode.value, ttl_ms: mode.value === "ttl" ? Number(ttl.value) : 0 });
      box.close();
      done(answer, onDone);
    } catch (error) { box.problem.textContent = error.message; run.disabled = false; }
  });
  name.focus();
}

export async function deleteZnode(path, onDone) {
  let preview;
  try { preview = await get("preview", { path }); } catch (error) { message(error.message, "bad"); return; }
  const { run, element } = buttons(preview.total === 1 ? "Delete it" : `Delete all ${count(preview.total)}`, "danger");
  const list = h("ul", { class: "paths preview" }, preview.paths.map((one) => h("li", { class: "mono" }, shortened(one, 140))), preview.total > preview.paths.length && h("li", { class: "dim" }, `and ${count(preview.total - preview.paths.length)} more`));
  const form = h("form", {}, h("p", {}, `${plural(preview.total, "znode")} with ${bytes(preview.size)} of data would go, in one transaction${preview.ephemerals ? `; ${plural(preview.ephemerals, "ephemeral")} among them could not be brought back` : ""}:`), list, element);
  const box = dialog(`Delete ${shortened(path, 60)}?`, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    run.disabled = true;
    try {
      const answer = await post("change", { kind: "delete", path, mark: preview.mark });
      box.close();
      done(answer, onDone);
    } catch (error) { box.problem.textContent = error.message; }
  });
}

export function editAcl(znode, onDone) {
  const rows = h("div", { class: "acl-rows" });
  const add = (entry) => {
    const row = h("div", { class: "acl-row" }, h("input", { type: "text", class: "mono", "aria-label": "Scheme", value: entry.scheme, list: "schemes" }), h("input", { type: "text", class: "mono", "aria-label": "Id", value: entry.id }),
      h("span", { class: "letters", role: "group", "aria-label": "Permissions" }, [..."cdrwa"].map((letter) => { const box = h("input", { type: "checkbox", "aria-label": { c: "create", d: "delete", r: "read", w: "write", a: "admin" }[letter], "data-letter": letter }); box.checked = entry.perms.includes(letter); return h("label", {}, box, letter); })),
      h("button", { type: "button", class: "quiet", "aria-label": "Remove this entry", onclick: () => row.remove() }, "✕"));
    rows.append(row);
  };
  for (const entry of znode.acl) add(entry);
  const { run, element } = buttons("Save", "primary");
  const form = h("form", {}, h("p", { class: "dim" }, "Hashes of passwords are not shown; an entry that keeps its id keeps its password. Without an entry with admin for you, you cannot change it again."), h("datalist", { id: "schemes" }, ["world", "digest", "ip", "sasl", "x509", "auth"].map((one) => h("option", { value: one }))), rows,
    h("button", { type: "button", onclick: () => add({ scheme: "world", id: "anyone", perms: "r" }) }, "Add an entry"), element);
  const box = dialog(`ACL of ${shortened(znode.path, 60)}`, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    run.disabled = true;
    const acl = [...rows.children].map((row) => { const [scheme, id] = row.querySelectorAll("input[type=text]"); return { scheme: scheme.value, id: id.value, perms: [...row.querySelectorAll("[data-letter]")].filter((one) => one.checked).map((one) => one.dataset.letter).join("") }; });
    try {
      const answer = await post("change", { kind: "acl", path: znode.path, version: znode.stat.aversion, acl });
      box.close();
      done(answer, onDone);
    } catch (error) { box.problem.textContent = inline(error.message); run.disabled = false; }
  });
}
