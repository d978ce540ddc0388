// The audit in the background, with the lanes and findings of its report, and the audits before it.
import { address, get, post, state, stream } from "./api.js";
import { ago, count, h, icon, inline, moment, plural, replace, shortened } from "./dom.js";
import { treeAddress } from "./znode.js";

export class ProofView {
  constructor(place) {
    this.run = h("button", { type: "button", class: "primary", onclick: () => this.start() }, icon("proof"), "Run the audit");
    this.stop = h("button", { type: "button", hidden: true, onclick: () => post("audits/cancel", {}).catch(() => {}) }, "Stop it");
    this.bar = h("progress", { hidden: true, "aria-label": "Progress of the audit" });
    this.status = h("p", { class: "dim", role: "status", "aria-live": "polite" });
    this.body = h("div", { class: "audit" });
    this.list = h("aside", { class: "card audits", "aria-label": "Past audits" });
    place.append(h("div", { class: "view-head" }, h("h1", {}, "Proof"), this.status, h("span", { class: "grow" }), this.bar, this.stop, this.run), h("div", { class: "proof-split" }, this.body, this.list));
    this.stops = [stream.on("audit", (progress) => this.progress(progress))];
    this.shown = null;
  }
  show(argument) {
    this.wanted = argument || null;
    this.load();
  }
  close() { for (const stop of this.stops) stop(); this.isClosed = true; }
  async load() {
    try {
      const found = await get("audits");
      if (this.isClosed) return;
      this.audits = found.audits;
      this.drawList();
      this.progress(found.progress, true);
      const name = this.wanted || (found.audits[0] && found.audits[0].id);
      if (name && name !== this.shown) await this.open(name);
      else if (!name) replace(this.body, h("div", { class: "empty-state card" }, h("p", {}, "No audit was run here yet."), h("p", {}, "It reads the files of all servers and proves that they hold one history, or names the server, the zxid and the znodes where they part. It changes nothing.")));
    } catch (error) { this.status.textContent = error.message; }
  }
  async start() {
    this.run.disabled = true;
    try { this.progress(await post("audits", {})); } catch (error) { this.status.textContent = error.message; this.run.disabled = false; }
  }
  progress(progress, isQuiet = false) {
    this.run.disabled = progress.is_running;
    this.stop.hidden = this.bar.hidden = !progress.is_running;
    if (progress.is_running) {
      const { done, total } = progress;
      if (total) { this.bar.max = total; this.bar.value = done; } else this.bar.removeAttribute("value");
      this.status.textContent = total ? `${inline(progress.step)}: ${count(done)} of ${plural(total, "task")}` : `${inline(progress.step)}…`;
    } else if (progress.error) this.status.textContent = inline(progress.error);
    else if (!isQuiet && progress.id) { this.status.textContent = ""; this.wanted = progress.id; this.load(); }
  }
  drawList() {
    replace(this.list, h("h2", {}, "Audits"), this.audits.length ? h("ul", {}, this.audits.map((one) => h("li", {}, h("a", { href: `#proof/${one.id}`, "aria-current": one.id === this.shown ? "true" : null, title: one.summary },
      h("span", { class: `mark ${one.class}`, "aria-hidden": "true" }, one.mark), h("span", {}, h("b", {}, one.verdict), one.is_complete ? "" : " (not all could be checked)"), h("span", { class: "dim" }, `${moment(one.finished)} · ${ago(Date.parse(one.finished))}`))))) : h("p", { class: "dim" }, "None yet."),
      h("p", { class: "dim" }, lastPassed(this.audits)));
  }
  async open(name) {
    const audit = await get(`audits/${encodeURIComponent(name)}`);
    if (this.isClosed) return;
    this.shown = name;
    this.drawList();
    replace(this.body, h("section", { class: `banner ${audit.class === "risk" ? "warning" : audit.class === "good" && !audit.is_complete ? "unknown" : audit.class}` }, h("div", { class: "words" }, h("h2", {}, h("span", { class: "mark", "aria-hidden": "true" }, audit.mark), audit.verdict[0].toUpperCase() + audit.verdict.slice(1)), h("p", {}, inline(audit.summary)), h("p", { class: "dim small" }, `${moment(audit.finished)}, took ${audit.seconds} s`)),
      !state.hello.user && h("a", { class: "button", href: address(`audits/${name}/report`), download: "" }, icon("download"), "The report")));
    audit.ensembles.forEach((one, index) => this.ensemble(one, index));
  }
  ensemble(one, index) {
    const listed = (title, items, name = "ul") => items.length > 0 && h("section", { class: "card" }, h("h3", {}, title), h(name, { class: "plain" }, items.map((text) => h("li", {}, inline(text)))));
    this.body.append(h("h2", {}, shortened(one.name, 80), " ", h("span", { class: "dim small" }, `${plural(one.servers.length, "server")}, ${plural(one.records, "record")}${one.committed ? `, a majority holds all up to ${one.committed}` : ""}`)));
    for (const part of [listed("What to do", one.steps, "ol"), listed("How it most likely came about", one.causes.map((cause) => `${cause.kinds.join(", ")}: ${cause.text}`)), listed("Not checked", one.unchecked)]) if (part) this.body.append(part);
    let lanes = null;
    if (one.lanes) {
      const section = h("section", { class: "card lanes" }, h("h3", {}, "Servers over zxids"));
      this.body.append(section);
      lanes = new globalThis.KeepfastLanes(section, one.lanes, `console-${index}`, inline(one.name));
    }
    this.body.append(findings(one, lanes));
  }
}
function lastPassed(audits) {
  // What was not checked never reads as a pass.
  const last = audits.find((one) => one.verdict === "consistent" && one.is_complete);
  return last ? `Last passed ${ago(Date.parse(last.finished))}.` : audits.length ? "None of these passed in full." : "";
}
function findings(one, lanes) {
  if (!one.findings.length) return h("section", { class: "card" }, h("h3", {}, "Findings"), h("p", { class: "dim" }, "None."));
  const rows = one.findings.map((finding) => h("li", { class: "finding" }, h("div", { class: "when" }, h("span", { class: `chip ${finding.severity}` }, finding.severity), h("b", {}, `${finding.check} ${finding.kind}`), finding.server !== null && h("span", {}, `server ${inline(finding.server)}`), h("span", { class: "mono dim" }, finding.zxids.join(" to ")),
    finding.place && lanes && h("button", { type: "button", class: "link", onclick: () => { lanes.show(finding.place[0], finding.place[1], finding.server); lanes.section.scrollIntoView({ block: "center" }); } }, "show in the lanes")),
    h("p", {}, inline(finding.evidence)), finding.file && h("p", { class: "dim mono small" }, `${shortened(finding.file, 160)}${finding.offset === null ? "" : ` at ${finding.offset}`}`),
    finding.paths.length > 0 && h("p", { class: "small" }, finding.paths.slice(0, 8).map((path) => [h("a", { class: "mono", href: treeAddress(path) }, shortened(path, 80)), " "]), finding.paths_total > 8 && `and ${count(finding.paths_total - 8)} more`), finding.advice && h("p", { class: "dim" }, inline(finding.advice))));
  return h("section", { class: "card" }, h("h3", {}, `Findings (${count(one.findings_total)})`), h("ul", { class: "findings" }, rows));
}
