// A value as text, JSON or hex.
import { address } from "./api.js";
import { bytes, bytesOf, h, icon, replace, textOf, visible } from "./dom.js";

const MAX_COLOURED = 200000, PIECE = 4096;

export function isJson(text) {
  if (text === null || !/^\s*[[{]/.test(text)) return false;
  try { JSON.parse(text); return true; } catch { return false; }
}
// Rows of 16 bytes, or of 8 where there is no room for them.
const NARROW = matchMedia("(max-width: 800px)");
export function hexDump(data) {
  const rows = [], size = NARROW.matches ? 8 : 16;
  for (let at = 0; at < data.length; at += size) {
    const row = data.subarray(at, at + size);
    const cells = [...row].map((one) => one.toString(16).padStart(2, "0"));
    const text = [...row].map((one) => one >= 32 && one < 127 ? String.fromCharCode(one) : "·").join("");
    const halves = [cells.slice(0, 8), ...(size > 8 ? [cells.slice(8)] : [])].map((half) => half.join(" ").padEnd(23));
    rows.push([at.toString(16).padStart(6, "0"), ...halves, text].join("  "));
  }
  return rows.join("\n");
}
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;
function coloured(text) {
  if (text.length > MAX_COLOURED) return inPieces(visible(text));
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    parts.push(visible(text.slice(end, match.index)));
    const kind = match[1] ? (match[2] ? "key" : "string") : match[3] ? "word" : "number";
    parts.push(h("span", { class: `json-${kind}` }, visible(match[1] || match[0])), match[2] || "");
    end = match.index + match[0].length;
  }
  parts.push(visible(text.slice(end)));
  return parts;
}
// A line of a megabyte takes a browser half a minute to break: pieces are laid out when they are scrolled to.
function inPieces(text) {
  if (text.length <= 16 * PIECE) return [text];
  const pieces = [];
  for (let at = 0, end = 0; at < text.length; at = end) {
    // A piece is a block: it ends with a line, if a line ends in it.
    end = text.lastIndexOf("\n", at + PIECE - 1) + 1;
    if (end <= at) end = at + PIECE;
    pieces.push(h("span", { class: "piece" }, text.slice(at, end)));
  }
  return pieces;
}
// A small form of a value: for lists and comparisons.
export function summaryOf(document, most = 400) {
  if (!document) return h("span", { class: "dim" }, "–");
  if (document.is_hidden) return h("span", { class: "dim" }, "not shown: its ACL does not let you read it");
  if (document.is_null) return h("span", { class: "dim" }, "null");
  if (!document.length) return h("span", { class: "dim" }, "empty");
  const data = bytesOf(document.base64), text = textOf(data);
  const shown = text === null ? hexDump(data.subarray(0, 256)) : visible(text.slice(0, most));
  const isCut = !document.is_whole || (text !== null && text.length > most);
  return h("pre", { class: text === null ? "value hex" : "value" }, shown, isCut ? h("span", { class: "dim" }, ` … ${bytes(document.length)}`) : "");
}

export class ValueBox {
  constructor(place, { onWhole = null } = {}) {
    this.onWhole = onWhole;
    this.bar = h("div", { class: "value-bar" });
    this.body = h("pre", { class: "value", tabindex: "0", "aria-label": "Value" });
    place.append(this.bar, this.body);
    this.mode = null;
  }
  show(document, path, at) {
    this.document = document;
    this.path = path;
    this.at = at;
    this.data = bytesOf(document.base64);
    this.text = textOf(this.data);
    if (this.text === null && !document.is_whole) this.text = textOf(this.data.subarray(0, this.data.length - 3));
    const natural = document.is_null || !document.length ? "text" : isJson(this.text) ? "json" : this.text === null ? "hex" : "text";
    if (!this.mode || (this.mode === "json" && !isJson(this.text)) || (this.mode === "text" && this.text === null)) this.mode = natural;
    else if (!this.isChosen) this.mode = natural;
    this.draw();
  }
  draw() {
    const { document } = this;
    const modes = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]].map(([name, label]) => h("button", { type: "button", "aria-pressed": String(this.mode === name), onclick: () => { this.mode = name; this.isChosen = true; this.draw(); } }, label));
    const length = document.is_null ? "null: no data at all" : bytes(document.length);
    replace(this.bar, h("div", { class: "segments", role: "group", "aria-label": "Show as" }, modes), h("span", { class: "dim" }, length), h("span", { class: "grow" }),
      !this.at && document.length > 0 && h("a", { class: "button quiet", href: address("data", { path: this.path }), download: "znode.bin", title: "Save the value" }, icon("download")),
      !document.is_whole && this.onWhole && h("button", { type: "button", onclick: () => this.onWhole() }, `Show all ${bytes(document.length)}`));
    this.body.classList.toggle("empty", !document.length);
    this.body.classList.toggle("hex", this.mode === "hex");
    if (document.is_hidden) this.body.textContent = "not shown: its ACL does not let you read it";
    else if (document.is_null) this.body.textContent = "null";
    else if (!document.length) this.body.textContent = "empty";
    else if (this.mode === "hex") replace(this.body, inPieces(hexDump(this.data)));
    else if (this.mode === "json") {
      if (isJson(this.text)) replace(this.body, coloured(JSON.stringify(JSON.parse(this.text), null, 2)));
      else this.body.textContent = document.is_whole ? "This is not JSON." : "Only its first part is here; show all of it to see it as JSON.";
    } else replace(this.body, this.text === null ? "This is not text; Hex shows its bytes." : inPieces(visible(this.text)));
    if (!document.is_whole && this.mode !== "json") this.body.append(h("span", { class: "dim" }, `\n… the first ${bytes(this.data.length)} of ${bytes(document.length)}`));
  }
}
