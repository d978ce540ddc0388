"use strict";
// Opens the sections of a report, each with its lanes (lanes.js), and makes tables searchable.
(() => {
  // -- light and dark ---------------------------------------------------------------------------
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });

  // -- filters ----------------------------------------------------------------------------------
  for (const filter of document.querySelectorAll("[data-filter]")) {
    const table = filter.parentElement.querySelector(`[data-table="${filter.dataset.filter}"]`);
    const rows = [...table.tBodies[0].rows];
    const input = filter.querySelector("input[type=search]");
    const boxes = [...filter.querySelectorAll("input[data-severity]")];
    const count = filter.querySelector(".count");
    const texts = new Map();
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const off = new Set(boxes.filter((box) => !box.checked).map((box) => box.dataset.severity));
      let shown = 0;
      for (const row of rows) {
        if (words.length && !texts.has(row)) texts.set(row, row.textContent.toLowerCase());
        const isShown = !off.has(row.dataset.severity) && words.every((word) => texts.get(row).includes(word));
        row.hidden = !isShown;
        shown += isShown;
      }
      count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
    };
    let timer = 0;
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(apply, 80); });
    for (const box of boxes) box.addEventListener("change", apply);
    filter.hidden = false;
  }

  const drawn = new Map();
  function open(section) {
    if (!drawn.has(section)) {
      const data = JSON.parse(section.querySelector("script").textContent);
      const { lanes, title } = section.dataset;
      drawn.set(section, new KeepfastLanes(section, data, lanes, title));
    }
    return drawn.get(section);
  }
  for (const ensemble of document.querySelectorAll("details.ensemble")) {
    const section = ensemble.querySelector("[data-lanes]");
    // Drawn when it is opened: a page may hold hundreds of ensembles.
    ensemble.addEventListener("toggle", () => { if (ensemble.open && section) open(section); });
    if (ensemble.open && section) open(section);
    for (const button of section ? ensemble.querySelectorAll("button.show") : []) button.hidden = false;
    ensemble.addEventListener("click", (event) => {
      const button = event.target.closest("button.show");
      if (!button || !section) return;
      open(section).show(Number(button.dataset.left), Number(button.dataset.right), button.dataset.server);
      section.scrollIntoView({ block: "start" });
    });
  }
  function follow() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  }
  addEventListener("hashchange", follow);
  follow();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
    for (const section of document.querySelectorAll("[data-lanes]")) open(section).draw();
  });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
})();
