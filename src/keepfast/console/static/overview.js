// The servers, the quorum, and what is wrong: first, in words, with the command that helps.
import { stream } from "./api.js";
import { ago, bytes, command, count, duration, h, icon, inline, rate, replace, s } from "./dom.js";
import { newest, spark } from "./spark.js";

const ROLES = { leader: "leads", follower: "follows", observer: "observes", standalone: "standalone", down: "down", looking: "looking", unknown: "unknown" };

export class OverviewView {
  constructor(place) {
    this.banner = h("section", { class: "banner", "aria-live": "polite" }, h("p", { class: "dim" }, "Asking the servers…"));
    this.problems = h("section", { class: "problems", "aria-label": "What is wrong" });
    this.servers = h("section", { class: "servers", "aria-label": "Servers" });
    place.append(h("h1", { class: "offscreen" }, "Overview"), this.banner, this.problems, this.servers);
    this.cards = new Map();
    this.stops = [stream.on("overview", (overview) => this.update(overview))];
    if (OverviewView.last) this.update(OverviewView.last);
  }
  show() { /* nothing in the address */ }
  close() { for (const stop of this.stops) stop(); }

  update(overview) {
    OverviewView.last = overview;
    this.showBanner(overview);
    this.showProblems(overview.findings);
    const seen = new Set();
    for (const server of overview.servers) {
      seen.add(server.address);
      let card = this.cards.get(server.address);
      if (!card) {
        card = h("article", { class: "server" });
        this.cards.set(server.address, card);
        this.servers.append(card);
      }
      showServer(card, server);
    }
    for (const [address, card] of this.cards) if (!seen.has(address)) { card.remove(); this.cards.delete(address); }
  }

  showBanner(overview) {
    const key = JSON.stringify([overview.level, overview.sentence, overview.quorum, overview.findings.length, overview.servers.map((one) => [one.id, one.role])]);
    if (key === this.bannerKey) return;
    this.bannerKey = key;
    const titles = { good: "All is well", warning: "Worth a look", bad: "Something is wrong" };
    const marks = { good: "✓", warning: "!", bad: "✗" };
    this.banner.className = `banner ${overview.level}`;
    replace(this.banner,
      h("div", { class: "words" }, h("h2", {}, h("span", { class: "mark", "aria-hidden": "true" }, marks[overview.level]), titles[overview.level]), h("p", {}, overview.sentence)),
      quorumPicture(overview));
  }

  showProblems(findings) {
    const key = JSON.stringify(findings);
    if (key === this.problemsKey) return;
    this.problemsKey = key;
    replace(this.problems, findings.map((one) => h("article", { class: `problem-card ${one.level}`, "data-kind": one.kind },
      h("p", { class: "sentence" }, h("span", { class: `chip ${one.level}` }, one.kind), " ", inline(one.sentence)),
      one.hint && h("p", { class: "dim" }, one.hint),
      one.command && command(one.command))));
  }
}

function quorumPicture(overview) {
  const { quorum, servers } = overview;
  const members = servers.map((one) => ({ name: one.id === null ? "?" : String(one.id), role: one.role, isServing: one.is_serving, isVoter: one.id === null || !quorum.voters.length || quorum.voters.includes(one.id) }));
  for (const id of quorum.unasked) members.push({ name: String(id), isUnasked: true, isVoter: quorum.voters.includes(id) });
  const size = 46, gap = 12, width = Math.max(members.length * (size + gap) - gap, size);
  const root = s("svg", { viewBox: `-4 -4 ${width + 8} ${size + 30}`, class: "quorum", role: "img",
    "aria-label": `${quorum.present} of ${quorum.count} voters serve, ${quorum.needed} are needed${quorum.unasked.length ? `; not asked: ${quorum.unasked.join(", ")}` : ""}` });
  members.forEach((one, index) => {
    const x = index * (size + gap) + size / 2, y = size / 2;
    root.append(s("circle", { cx: x, cy: y, r: size / 2 - 1.5, class: `member ${one.isServing ? "serving" : one.isUnasked ? "unasked" : "away"}${one.role === "leader" ? " leader" : ""}${one.isVoter ? "" : " observer"}` }),
      s("text", { x, y: y + 6, "text-anchor": "middle", class: one.isServing ? "serving" : "away" }, one.name));
  });
  const done = Math.min(quorum.present / Math.max(quorum.count, 1), 1) * width, need = quorum.needed / Math.max(quorum.count, 1) * width;
  root.append(s("rect", { x: 0, y: size + 10, width, height: 7, rx: 3.5, class: "track" }),
    s("rect", { x: 0, y: size + 10, width: done, height: 7, rx: 3.5, class: quorum.has_quorum ? "done" : "short" }),
    s("line", { x1: need, y1: size + 6, x2: need, y2: size + 21, class: "need" }));
  return h("div", { class: "quorum-box" }, root, h("p", { class: "dim" }, quorum.is_alone ? "no quorum needed" : quorum.unasked.length ? `${quorum.present} present, ${quorum.unasked.length} not asked, ${quorum.needed} needed` : `${quorum.present} present, ${quorum.needed} needed`));
}

// -- one server ----------------------------------------------------------------------------------
function showServer(card, server) {
  const level = !server.is_reached || !server.is_serving || server.disk.is_full ? "bad" : server.standing && server.standing !== "whole" ? "warning" : "good";
  card.className = `server ${level} ${server.role}`;
  card.dataset.address = server.address;
  card.setAttribute("aria-label", server.id === null ? server.address : `Server ${server.id}`);
  replace(card,
    h("header", {},
      h("span", { class: "badge-id", "aria-hidden": "true" }, server.id === null ? "?" : server.id),
      h("div", { class: "names" }, h("h3", {}, server.id === null ? inline(server.address) : `Server ${server.id}`), h("p", { class: "dim mono" }, inline(server.address))),
      h("span", { class: `role ${server.role}` }, server.role === "leader" && icon("crown"), ROLES[server.role] || inline(server.role))),
    standing(server),
    server.is_reached ? figures(server) : h("p", { class: "away-note" }, server.seen ? `Last answered ${ago(server.seen)}.` : "It has not answered yet."),
    server.is_reached && sparks(server),
    server.is_reached && footer(server));
}
function standing(server) {
  if (!server.is_reached) return h("p", { class: "standing bad" }, h("b", {}, "not reached"), " ", inline(server.problem));
  if (server.disk.is_full) return h("p", { class: "standing bad" }, h("b", {}, "disk full"), " it keeps serving reads, and accepts writes again once there is space");
  if (server.problem) return h("p", { class: "standing bad" }, h("b", {}, server.standing || "does not serve"), " ", inline(server.problem));
  const classes = { whole: "good", "": "unknown" };
  return h("p", { class: `standing ${classes[server.standing] || "warning"}` }, h("b", {}, server.standing || "unknown"), " ", inline(server.standing_reason));
}
function figures(server) {
  const rows = [["epoch", server.epoch], ["zxid", server.zxid && h("span", { class: "mono" }, server.zxid)], server.role !== "standalone" && ["lag", server.lag === null ? "–" : server.lag === 0 ? "none" : count(server.lag)],
    ["clients", count(server.connections)], server.sessions !== null && ["sessions", count(server.sessions)], server.znodes !== null && ["znodes", count(server.znodes)], server.watches !== null && ["watches", count(server.watches)]];
  return h("dl", { class: "figures" }, rows.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value === null || value === undefined ? "–" : value))));
}
function sparks(server) {
  const { requests, latency, writes } = server.series;
  if (!server.has_figures) return h("p", { class: "dim small" }, "No figures: 4lw.commands.whitelist does not allow mntr there.");
  const one = (label, points, text, colour) => h("div", { class: "spark-box" }, h("div", {}, h("span", { class: "dim" }, label), h("b", {}, text)), spark(points, `${label}: ${text} now`, colour));
  const now = newest(latency);
  return h("div", { class: "sparks" },
    one("requests", requests, `${rate(newest(requests))}/s`, "accent"),
    one("writes", writes, `${rate(newest(writes))}/s`, "good"),
    one("latency", latency, now === null ? "–" : `${now < 10 ? now.toFixed(2) : Math.round(now)} ms`, "risk"));
}
function footer(server) {
  const { disk, snapshot } = server;
  const parts = [];
  if (disk.free !== null) parts.push(h("span", { class: disk.is_full ? "bad" : "" }, `${bytes(disk.free)} free`));
  if (disk.logs !== null) parts.push(h("span", {}, `${bytes(disk.snapshots === disk.logs ? disk.logs : disk.logs + disk.snapshots)} on disk`));
  if (snapshot) parts.push(h("span", { title: `zxid ${snapshot.zxid}` }, snapshot.zxid === "0x0" ? "initial snapshot only" : `snapshot ${ago(snapshot.at)}`));
  else if (server.kind === "keepfast") parts.push(h("span", {}, "no snapshot yet"));
  if (server.uptime_ms !== null) parts.push(h("span", {}, `up ${duration(server.uptime_ms)}`));
  const kind = { keepfast: "Keepfast", apache: "Apache" }[server.kind] || "";
  return h("footer", {}, h("p", {}, parts), h("p", { class: "dim" }, `${kind} ${inline(server.version)}`, server.catch_up && ` · last catch-up ${inline(server.catch_up)}`));
}
