"use strict";
// The lanes: a picture of servers over zxids. The audit's report holds it inline, the console loads it as a
// script of its own; both make one by `new KeepfastLanes(section, data, name, title)`. Texts come from audited
// files: they are only ever set as text, never as markup.
globalThis.KeepfastLanes = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 30, TOP = 78, MANY = 12, BOTTOM = 12, BAR = 14, RECORDS = 6;
  const WORDS = {
    run: "records, a bar for each log", stale: "stale: never committed, a later epoch continued without it",
    uncommitted: "uncommitted: at the end, on a minority", gap: "gap that a snapshot explains",
    hole: "hole that nothing explains", damaged: "damaged bytes",
  };
  const HATCHED = new Set(["stale", "uncommitted", "damaged", "hole", "fold"]);
  const ORDER = ["run", "gap", "hole", "uncommitted", "stale", "damaged"];

  function svg(name, attributes, parent, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.appendChild(element);
    return element;
  }
  function html(name, className, parent, text) {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    if (parent) parent.appendChild(element);
    return element;
  }
  const BUTTONS = [
    ["in", "+", "Zoom in"], ["out", "\u2212", "Zoom out"], ["left", "\u2190", "Move left"],
    ["right", "\u2192", "Move right"], ["all", "All"], ["divergence", "Divergence"],
  ];
  const HINT = "Keys in the picture: + \u2212 \u2190 \u2192 0, Enter for details; the wheel zooms with Ctrl, or after a click";
  const base = (path) => path.slice(path.lastIndexOf("/") + 1);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  class Lanes {
    // Fills `section`, an element of the class "lanes"; `data` is what lanes.py makes, `name` is unique in
    // the page, `title` says whose lanes these are.
    constructor(section, data, name, title) {
      this.section = section;
      this.data = data;
      this.name = name;
      this.build(title);
      this.from = -this.data.width * 0.01;
      this.to = this.data.width * 1.01;
      this.marked = null;
      this.cursor = null;
      this.onlyFlagged = false;
      this.pointers = new Map();
      this.tools.querySelector("[data-do=divergence]").hidden = !this.data.divergence;
      this.listen();
      this.legend();
      this.draw(); // at once: a page that is printed or saved may never get to the first frame
      new ResizeObserver(() => this.draw()).observe(this.picture);
    }

    build(title) {
      this.tools = html("div", "tools", this.section);
      for (const [action, text, label] of BUTTONS) {
        const button = html("button", "", this.tools, text);
        button.type = "button";
        button.dataset.do = action;
        if (label) button.setAttribute("aria-label", label);
      }
      const choice = html("label", "", this.tools);
      html("input", "", choice).type = "checkbox";
      choice.append(" only servers with findings");
      html("span", "dim hint", this.tools, HINT);
      this.picture = html("div", "picture", this.section);
      this.picture.tabIndex = 0;
      this.picture.setAttribute("role", "application");
      this.picture.setAttribute("aria-label", `Lanes of the servers of ${title}; the tables below say the same`);
      html("div", "legend", this.section).setAttribute("aria-hidden", "true");
      this.panel = html("div", "details", this.section);
      this.panel.hidden = true;
      this.panel.setAttribute("aria-live", "polite");
    }

    get lanes() {
      const shown = this.data.lanes.filter((lane) => !this.onlyFlagged || lane.flagged);
      // Among many, those that somebody is looking for come first.
      if (shown.length > MANY) shown.sort((one, other) => other.flagged - one.flagged);
      return shown;
    }
    get plot() { return Math.max(this.width - this.gutter - 8, 40); }
    x(point) { return this.gutter + (point - this.from) / (this.to - this.from) * this.plot; }
    point(x) { return this.from + (x - this.gutter) / this.plot * (this.to - this.from); }

    // -- zoom and move
    set(from, to) {
      const whole = this.data.width * 1.02, least = this.least();
      const size = clamp(to - from, least, whole);
      const middle = (from + to) / 2;
      const low = -this.data.width * 0.01;
      this.from = clamp(middle - size / 2, low, low + whole - size);
      this.to = this.from + size;
      this.draw();
    }
    least() {
      // A handful of zxids of the longest stretch.
      return Math.min(...this.data.stretches.map(([, , n, left, right]) => (right - left) / n * 8), this.data.width);
    }
    zoom(factor, at) {
      const point = at === undefined ? (this.from + this.to) / 2 : at;
      this.set(point - (point - this.from) * factor, point + (this.to - point) * factor);
    }
    move(share) {
      const step = (this.to - this.from) * share;
      this.set(this.from + step, this.to + step);
    }
    show(left, right, server) {
      const margin = Math.max((right - left) * 0.6, this.data.width * 0.02);
      this.marked = server;
      this.set(left - margin, right + margin);
      this.detail(left + this.half(left));
    }
    half(point) {
      // Half of a zxid's width: its middle is inside of it, its edge is its neighbour's too.
      const here = this.data.stretches.find(([, , , left, right]) => left <= point && point < right);
      return here ? (here[4] - here[3]) / here[2] / 2 : 0;
    }
    run(action) {
      const { divergence, width } = this.data;
      if (action === "in") this.zoom(0.6);
      else if (action === "out") this.zoom(1 / 0.6);
      else if (action === "left") this.move(-0.25);
      else if (action === "right") this.move(0.25);
      else if (action === "all") { this.marked = null; this.cursor = null; this.panel.hidden = true; this.set(-width * 0.01, width * 1.01); }
      else if (action === "divergence") this.show(divergence[0], divergence[0], null);
    }

    listen() {
      const { picture } = this;
      this.tools.addEventListener("click", (event) => {
        const button = event.target.closest("button[data-do]");
        if (button) this.run(button.dataset.do);
      });
      this.tools.addEventListener("change", (event) => { this.onlyFlagged = event.target.checked; this.draw(); });
      picture.addEventListener("keydown", (event) => {
        const keys = { "+": "in", "=": "in", "-": "out", "_": "out", "0": "all", ArrowLeft: "left", ArrowRight: "right", d: "divergence" };
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        if (event.key === "Escape") picture.blur();
        else if (event.key === "Home") this.set(-1, this.to - this.from - 1);
        else if (event.key === "End") this.set(this.data.width - (this.to - this.from), this.data.width);
        else if (event.key === "Enter") this.detail((this.from + this.to) / 2);
        else if (keys[event.key] === "divergence" && !this.data.divergence) return;
        else if (keys[event.key]) this.run(keys[event.key]);
        else return;
        event.preventDefault();
      });
      picture.addEventListener("wheel", (event) => {
        const isMeant = event.ctrlKey || event.metaKey || document.activeElement === picture;
        if (!isMeant) return;
        event.preventDefault();
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          this.move((event.deltaX || event.deltaY) / 1200);
        } else this.zoom(Math.exp(clamp(event.deltaY, -120, 120) / 300), this.point(this.place(event)));
      }, { passive: false });
      picture.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        this.pointers.set(event.pointerId, event.clientX);
        this.moved = this.pointers.size > 1;
        this.held = [event.clientX, this.from, this.to];
        this.spread = null;
      });
      picture.addEventListener("pointermove", (event) => this.drag(event));
      for (const name of ["pointerup", "pointercancel"]) {
        picture.addEventListener(name, (event) => {
          this.pointers.delete(event.pointerId);
          picture.classList.remove("held");
          this.spread = null;
        });
      }
      picture.addEventListener("click", (event) => {
        if (!this.moved) this.detail(this.point(this.place(event)));
      });
      picture.addEventListener("dblclick", (event) => this.zoom(0.4, this.point(this.place(event))));
    }
    place(event) {
      const box = this.picture.getBoundingClientRect();
      return (event.clientX - box.left) / box.width * this.width;
    }
    drag(event) {
      if (!this.pointers.has(event.pointerId)) return;
      this.pointers.set(event.pointerId, event.clientX);
      const xs = [...this.pointers.values()];
      if (xs.length === 2) {
        const spread = Math.abs(xs[0] - xs[1]);
        if (this.spread) this.zoom(clamp(this.spread / Math.max(spread, 1), 0.5, 2));
        this.spread = spread;
        this.moved = true;
      } else if (xs.length === 1 && this.held) {
        const shift = event.clientX - this.held[0];
        if (Math.abs(shift) < 4 && !this.moved) return;
        if (!this.moved) this.picture.setPointerCapture(event.pointerId);
        this.moved = true;
        this.picture.classList.add("held");
        const step = shift / this.plot * (this.held[2] - this.held[1]);
        this.set(this.held[1] - step, this.held[2] - step);
      }
    }

    // -- what is at a point
    zxid(point) {
      for (const [epoch, counter, count, left, right] of this.data.stretches) {
        if (point < left) return null;
        if (point <= right) {
          const step = clamp(Math.floor((point - left) / (right - left) * count), 0, count - 1);
          return `0x${epoch.toString(16)}${(counter + step).toString(16).padStart(8, "0")}`.replace(/^0x0+(?=.)/, "0x");
        }
      }
      return null;
    }
    detail(point) {
      const zxid = this.zxid(point);
      this.cursor = point;
      this.draw();
      const near = (this.to - this.from) / this.plot * 7;
      const groups = new Map();
      for (const lane of this.data.lanes) {
        const lines = [];
        for (const [kind, left, right, first, last, file, text] of lane.spans) {
          if (left <= point && point <= right) {
            lines.push(`${kind} ${first === last ? first : `${first} to ${last}`}${file ? `, ${base(file)}` : ""}${text ? `: ${text}` : ""}`);
          }
        }
        for (const [left, , isValid, isBase, at, file, text] of lane.snapshots) {
          if (Math.abs(left - point) <= near) {
            lines.push(`snapshot ${at}${isBase ? ", base of recovery" : ""}${isValid ? "" : ", NOT VALID"}, ${base(file)}${text ? `: ${text}` : ""}`);
          }
        }
        const key = lines.join("\n") || "nothing";
        groups.set(key, [...(groups.get(key) || []), lane.name]);
      }
      this.panel.replaceChildren();
      const head = html("p", "", this.panel);
      html("b", "", head, zxid ? `At ${zxid}` : "Between the zxids that anybody holds");
      html("span", "dim", head, this.when(point));
      const records = (this.data.records || []).filter(([left, right]) => left - near <= point && point <= right + near);
      for (const [, , text] of records.slice(0, RECORDS)) html("p", "record", this.panel, text);
      if (records.length > RECORDS) html("p", "record dim", this.panel, `and ${records.length - RECORDS} more so close to here`);
      const body = html("tbody", "", html("table", "", this.panel));
      for (const [text, names] of groups) {
        const row = html("tr", "", body);
        html("td", "", row, names.length > 12 ? `${names.length} servers: ${names.slice(0, 12).join(", ")}, …` : `server ${names.join(", ")}`);
        const cell = html("td", "", row);
        for (const line of text.split("\n")) html("p", "", cell, line);
      }
      this.panel.hidden = false;
    }

    // -- drawing
    draw() {
      this.width = Math.max(this.picture.clientWidth, 280);
      this.gutter = this.width < 560 ? 78 : 132;
      const lanes = this.lanes, height = TOP + lanes.length * ROW + BOTTOM;
      const id = `clip-${this.name}`;
      const root = svg("svg", { viewBox: `0 0 ${this.width} ${height}`, "aria-hidden": "true" });
      const clip = svg("clipPath", { id }, this.defs(root));
      svg("rect", { x: this.gutter, y: 0, width: this.plot, height }, clip);
      const plot = svg("g", { "clip-path": `url(#${id})` }, root);
      this.ground(plot, height);
      this.times(plot);
      lanes.forEach((lane, index) => this.lane(plot, root, lane, TOP + index * ROW));
      this.lines(plot, height);
      this.picture.replaceChildren(root);
    }
    // A name of its own in each picture: a pattern of one that is closed paints nothing.
    pattern(name) { return `${name}-${this.name}`; }
    hatched(element, kind) {
      if (HATCHED.has(kind)) element.style.fill = `url(#${this.pattern(kind)})`;
      return element;
    }
    defs(root) {
      const defs = svg("defs", {}, root);
      const pattern = (name, size, turn, className, isCross) => {
        const id = this.pattern(name);
        const one = svg("pattern", { id, width: size, height: size, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` }, defs);
        svg("line", { x1: 0, y1: 0, x2: 0, y2: size, class: className }, one);
        if (isCross) svg("line", { x1: 0, y1: 0, x2: size, y2: 0, class: className }, one);
      };
      pattern("stale", 5, 45, "pattern-bad");
      pattern("uncommitted", 5, -45, "pattern-risk");
      pattern("damaged", 6, 45, "pattern-bad", true);
      pattern("hole", 10, 45, "pattern-bad");
      pattern("fold", 6, 90, "pattern-fold");
      return defs;
    }
    ground(plot, height) {
      let before = null, end = -Infinity, freeFrom = -Infinity;
      this.data.stretches.forEach(([epoch, counter, count, left, right], index) => {
        const x = this.x(left), width = this.x(right) - x;
        if (index) this.fold(plot, this.x(before), x, height);
        before = right;
        if (x > this.width || x + width < this.gutter) return;
        svg("rect", { x, y: 0, width, height, class: epoch % 2 ? "band odd" : "band" }, plot);
        const seenFrom = Math.max(x, this.gutter), seen = Math.min(x + width, this.width) - seenFrom;
        const name = seen > 62 ? `epoch ${epoch}` : `${epoch}`;
        const middle = seenFrom + seen / 2, half = name.length * 3.4;
        if (seen > 12 && middle - half > end) {
          svg("text", { x: middle, y: 16, "text-anchor": "middle" }, plot, name);
          end = middle + half + 4;
        }
        freeFrom = this.ticks(plot, epoch, counter, count, left, right, freeFrom);
      });
    }
    // When: below the zxids, wherever there is room for it.
    times(plot) {
      let freeFrom = this.gutter;
      for (const [point, , text] of this.data.times || []) {
        const x = this.x(point), shown = text.slice(0, 19).replace("T", " ");
        if (x < freeFrom - 2 || x + shown.length * 6.8 > this.width) continue;
        svg("line", { x1: x, y1: 38, x2: x, y2: 47, class: "row" }, plot);
        svg("text", { x: x + 2, y: 47, class: "zxid time" }, plot, shown);
        freeFrom = x + shown.length * 6.8 + 12;
      }
    }
    // The known moments around a point, in words; empty where none is known.
    when(point) {
      let before = null, after = null;
      for (const [at, , text] of this.data.times || []) {
        if (at <= point) before = text;
        else { after = text; break; }
      }
      if (before && after) return ` · between ${before} and ${after}`;
      return before ? ` · after ${before}` : "";
    }
    fold(plot, from, to, height) {
      if (to < this.gutter || from > this.width) return;
      this.hatched(svg("rect", { x: from, y: 0, width: Math.max(to - from, 1), height, class: "fold" }, plot), "fold");
    }
    ticks(plot, epoch, counter, count, left, right, freeFrom) {
      const unit = (this.x(right) - this.x(left)) / count, room = 104;
      let step = 1;
      while (unit * step < room && step < count) step *= 2;
      const first = Math.max(0, Math.floor((this.gutter - this.x(left)) / unit / step) * step);
      for (let at = first; at < count; at += step) {
        const x = this.x(left) + unit * at;
        if (x > this.width) break;
        if (x < freeFrom || x < this.gutter - 2) continue;
        const text = `0x${epoch.toString(16)}${(counter + at).toString(16).padStart(8, "0")}`.replace(/^0x0+(?=.)/, "0x");
        if (x + text.length * 6.8 > this.x(right) + 4) break;
        svg("line", { x1: x, y1: 24, x2: x, y2: 30, class: "row" }, plot);
        svg("text", { x: x + 2, y: 34, class: "zxid" }, plot, text);
        freeFrom = x + text.length * 6.8 + 10;
      }
      return freeFrom;
    }
    lane(plot, root, lane, y) {
      const middle = y + ROW / 2, group = svg("g", {}, plot);
      if (lane.name === this.marked) svg("rect", { x: 0, y, width: this.width, height: ROW, class: "row-mark" }, root);
      svg("line", { x1: this.gutter, y1: y + ROW, x2: this.width, y2: y + ROW, class: "row" }, group);
      for (const kind of ORDER) {
        let last = null;
        for (const span of lane.spans) {
          if (span[0] === kind) last = this.span(group, span, middle, last) || last;
        }
      }
      for (const mark of lane.snapshots) this.snapshot(group, mark, middle);
      if (lane.diverges) {
        const x = this.x(lane.diverges[0]);
        const flag = svg("g", {}, group);
        svg("line", { x1: x, y1: y + 2, x2: x, y2: y + ROW - 2, class: "cut" }, flag);
        svg("path", { d: `M${x} ${y + 2}l9 4l-9 4z`, class: "cut-head" }, flag);
        svg("title", {}, flag, `server ${lane.name} differs from ${lane.diverges[1]} on`);
      }
      this.label(root, lane, y, middle);
    }
    label(root, lane, y, middle) {
      const [accepted, current] = lane.epochs, isNarrow = this.gutter < 100;
      const most = isNarrow ? 9 : 12;
      const name = lane.name.length > most ? `${lane.name.slice(0, most - 1)}…` : lane.name;
      const text = svg("text", { x: 8, y: middle + 4, class: lane.flagged ? "bad" : "" }, root, (lane.flagged ? "▲ " : "") + name);
      svg("title", {}, text, `server ${lane.name}${lane.observer ? " (observer)" : ""}; accepted epoch ${accepted === null ? "none" : accepted}, current epoch ${current === null ? "none" : current}`);
      if (!isNarrow && current !== null) {
        const shown = accepted === current ? `e${current}` : `e${current}/${accepted}`;
        svg("text", { x: this.gutter - 8, y: middle + 4, class: "dim", "text-anchor": "end" }, root, lane.observer ? `${shown} obs` : shown);
      }
    }
    span(group, [kind, left, right, first, last, file, text], middle, before) {
      let x = this.x(left), end = this.x(right);
      if (end < this.gutter - 4 || x > this.width + 4) return null;
      x = Math.max(x, this.gutter - 4);
      end = Math.min(end, this.width + 4);
      const width = Math.max(end - x - (end - x > 5 ? 1 : 0), kind === "run" ? 1.5 : 4);
      if (before && width < 2 && x - before.end < 0.75) {
        // Thinner than a pixel: one bar for all of them.
        before.end = x + width;
        before.element.setAttribute("width", before.end - before.x);
        return null;
      }
      const high = kind === "run" || kind === "gap" ? BAR : BAR + 4;
      const element = svg("rect", { x, y: middle - high / 2, width, height: high, rx: 2, class: `span ${kind}` }, group);
      this.hatched(element, kind);
      svg("title", {}, element, `${WORDS[kind] || kind}\n${first} to ${last}${file ? `\n${base(file)}` : ""}${text ? `\n${text}` : ""}`);
      return { element, x, end: x + width };
    }
    snapshot(group, [at, until, isValid, isBase, zxid, file, text], middle) {
      const x = this.x(at), end = this.x(until);
      if (end < this.gutter - 8 || x > this.width + 8) return;
      const mark = svg("g", {}, group);
      if (end > x + 1) svg("line", { x1: x, y1: middle - 10, x2: end, y2: middle - 10, class: "fuzzy" }, mark);
      const size = isBase ? 7 : 5.5;
      svg("path", { d: `M${x} ${middle - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}z`,
        class: `snapshot${isBase ? " base" : ""}${isValid ? "" : " invalid"}` }, mark);
      svg("title", {}, mark, `snapshot ${zxid}${isBase ? ", base of recovery" : ""}${isValid ? "" : ", not valid"}\n${base(file)}${text ? `\n${text}` : ""}`);
    }
    // Beside a line, on the side that is wanted if there is room; always whole inside the picture.
    caption(plot, x, y, className, text, isLeft) {
      // Of the widest of the usual fonts: the picture is not in the page yet, so nothing can be measured.
      const width = text.length * 7.7;
      const left = x - 5 - width, right = x + 5, most = this.width - 5 - width;
      let at = isLeft ? left : right;
      if (isLeft && left < this.gutter + 3) [at, isLeft] = [right, false];
      else if (!isLeft && right > most) [at, isLeft] = [left, true];
      svg("text", { x: clamp(at, this.gutter + 3, most) + (isLeft ? width : 0), y, class: `label ${className}`,
        "text-anchor": isLeft ? "end" : "start" }, plot, text);
    }
    lines(plot, height) {
      const { committed, divergence } = this.data;
      if (committed) {
        const x = this.x(committed[0]);
        const line = svg("line", { x1: x, y1: 22, x2: x, y2: height, class: "frontier" }, plot);
        svg("title", {}, line, `a majority holds everything up to ${committed[1]}`);
        this.caption(plot, x, 74, "good", `committed ${committed[1]}`, true);
      }
      if (divergence) {
        const x = this.x(divergence[0]);
        const line = svg("line", { x1: x, y1: 22, x2: x, y2: height, class: "cut" }, plot);
        svg("title", {}, line, `the servers part at ${divergence[1]}`);
        this.caption(plot, x, 61, "bad", `parts at ${divergence[1]}`, false);
      }
      if (this.cursor !== null) {
        const x = this.x(this.cursor);
        svg("line", { x1: x, y1: 50, x2: x, y2: height, class: "cursor" }, plot);
      }
    }
    legend() {
      const legend = this.section.querySelector(".legend");
      const entry = (text, draw) => {
        const item = html("span", "", legend);
        draw(svg("svg", { viewBox: "0 0 26 14" }, item));
        html("span", "", item, text);
      };
      const kinds = new Set(this.data.lanes.flatMap((lane) => lane.spans.map((span) => span[0])));
      for (const kind of ORDER) {
        if (kinds.has(kind)) entry(WORDS[kind], (root) => this.hatched(svg("rect", { x: 1, y: 2, width: 24, height: 10, rx: 2, class: `span ${kind}` }, root), kind));
      }
      const marks = this.data.lanes.flatMap((lane) => lane.snapshots);
      const diamond = (className) => (root) => svg("path", { d: "M13 1l6 6l-6 6l-6 -6z", class: className }, root);
      if (marks.some(([, , isValid, isBase]) => isValid && !isBase)) entry("snapshot", diamond("snapshot"));
      if (marks.some(([, , , isBase]) => isBase)) entry("snapshot from which a start would replay", diamond("snapshot base"));
      if (marks.some(([, , isValid]) => !isValid)) entry("snapshot that is not valid", diamond("snapshot invalid"));
      if (marks.some(([at, until]) => until > at)) entry("effects of later records in a snapshot (normal)", (root) => svg("line", { x1: 2, y1: 7, x2: 24, y2: 7, class: "fuzzy" }, root));
      if (this.data.divergence) entry("from here on a server differs", (root) => svg("line", { x1: 13, y1: 0, x2: 13, y2: 14, class: "cut" }, root));
      if (this.data.committed) entry("a majority holds everything up to here", (root) => svg("line", { x1: 13, y1: 0, x2: 13, y2: 14, class: "frontier" }, root));
      if (this.data.stretches.length > 1) entry("zxids that nobody holds, folded; the scale differs by stretch", (root) => this.hatched(svg("rect", { x: 8, y: 0, width: 10, height: 14, class: "fold" }, root), "fold"));
    }
  }
  return Lanes;
})();
