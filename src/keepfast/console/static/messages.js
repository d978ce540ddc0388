// Short messages in a corner, read out by screen readers.
import { h, icon, inline } from "./dom.js";

export function message(text, level = "good", action = null) {
  const place = document.getElementById("messages");
  if (!place) return;
  const element = h("div", { class: `message ${level}` }, h("span", {}, inline(text)),
    action && h("button", { type: "button", onclick: () => { element.remove(); action.run(); } }, action.label),
    h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => element.remove() }, icon("close")));
  place.append(element);
  setTimeout(() => element.remove(), action ? 20000 : 6000);
}
