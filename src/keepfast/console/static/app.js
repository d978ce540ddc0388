// The frame around all views: navigation, addresses, login, theme, messages, keys.
import { state, hello, post, stream } from "./api.js";
import { h, icon, replace } from "./dom.js";
import { OverviewView } from "./overview.js";
import { FeedView } from "./feed.js";
import { PastView } from "./past.js";
import { ProofView } from "./proof.js";
import { SessionsView } from "./sessions.js";
import { TreeView } from "./tree.js";

const VIEWS = [
  { name: "overview", label: "Overview", key: "o", make: OverviewView },
  { name: "tree", label: "Tree", key: "t", make: TreeView },
  { name: "sessions", label: "Sessions", key: "s", make: SessionsView },
  { name: "feed", label: "Feed", key: "f", make: FeedView },
  { name: "past", label: "Past", key: "p", make: PastView, needsData: true },
  { name: "proof", label: "Proof", key: "a", make: ProofView, needsData: true },
];

const root = document.getElementById("app");
let current = null;
let main = null;

// -- addresses: #view/argument?key=value ---------------------------------------------------------
function place(text) {
  const [before, after] = text.replace(/^#/, "").split("?");
  const [name, ...rest] = before.split("/");
  let argument = rest.join("/");
  try { argument = decodeURIComponent(argument); } catch { /* as it stands */ }
  return { name: name || "overview", argument, query: new URLSearchParams(after || "") };
}
function follow() {
  const { name, argument, query } = place(location.hash);
  const view = VIEWS.find((one) => one.name === name && isThere(one)) || VIEWS[0];
  if (!current || current.name !== view.name) {
    if (current) current.view.close();
    main.replaceChildren();
    current = { name: view.name, view: new view.make(main) };
    document.title = `${view.label} – Keepfast console`;
    for (const link of root.querySelectorAll("nav a[data-view]")) {
      if (link.dataset.view === view.name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    main.scrollTop = 0;
  }
  current.view.show(argument, query);
}
const isThere = (view) => !view.needsData || state.hello.has_data;

// -- the frame -----------------------------------------------------------------------------------
function frame() {
  const links = VIEWS.filter(isThere).map((view) => h("a", { href: `#${view.name}`, "data-view": view.name, title: `${view.label} (key ${view.key})` },
    icon(view.name), h("span", {}, view.label)));
  const mode = state.hello.allows_writes
    ? h("span", { class: "chip warning", title: "Started with --allow-writes" }, "writes allowed")
    : h("span", { class: "chip", title: "Start it with --allow-writes to change znodes" }, "read-only");
  const user = state.hello.user
    ? [h("span", { class: "user" }, state.hello.user), h("button", { type: "button", class: "quiet", onclick: logOut }, "Log out")]
    : [];
  main = h("main", { id: "main", tabindex: "-1" });
  replace(root,
    h("header", { class: "top" },
      h("a", { class: "brand", href: "#overview" }, h("img", { src: "/static/icon.svg", alt: "", width: 26, height: 26 }), h("b", {}, "Keepfast"), h("span", { class: "dim" }, "console")),
      h("span", { id: "health", class: "health", role: "status", "aria-live": "polite" }),
      h("span", { class: "grow" }),
      mode, ...user,
      h("button", { type: "button", class: "quiet", "aria-label": "Light or dark", title: "Light or dark", onclick: turnTheme }, icon("sun")),
      h("button", { type: "button", class: "quiet keys", "aria-label": "Keys", title: "Keys (?)", onclick: showKeys }, "?")),
    h("nav", { "aria-label": "Views" }, links),
    main,
    h("div", { id: "messages", role: "status", "aria-live": "polite" }));
}
function turnTheme() {
  const element = document.documentElement;
  const isDark = element.dataset.theme ? element.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  element.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("keepfast-theme", element.dataset.theme); } catch { /* private mode */ }
}
try {
  const kept = localStorage.getItem("keepfast-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch { /* private mode */ }

function showKeys() {
  const rows = [...VIEWS.filter(isThere).map((view) => [view.key, view.label]), ["/", "Search the tree"], ["↑ ↓ ← →", "Move in the tree; → opens, ← closes"],
    ["Enter", "Open what is chosen"], ["Esc", "Close a dialog"], ["?", "These keys"]];
  const dialog = h("dialog", { class: "small", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h("dl", { class: "facts" }, rows.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest && event.target.closest("input, textarea, select, dialog, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !state.hello || !state.hello.is_in) return;
  const inPicture = event.target.closest && event.target.closest(".picture, [role=tree]");
  if (event.key === "?") showKeys();
  else if (event.key === "/") location.hash = "#tree?search=1";
  else if (!inPicture) {
    const view = VIEWS.find((one) => one.key === event.key && isThere(one));
    if (!view) return;
    location.hash = `#${view.name}`;
    main.focus();
  } else return;
  event.preventDefault();
});

// -- login ---------------------------------------------------------------------------------------
function loginPage(text = "") {
  stream.close();
  const scheme = h("select", { name: "scheme", id: "login-scheme" }, h("option", { value: "digest" }, "digest"), h("option", { value: "sasl" }, "SASL (DIGEST-MD5)"));
  const user = h("input", { name: "user", id: "login-user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", id: "login-password", type: "password", autocomplete: "current-password" });
  const problem = h("p", { class: "problem", role: "alert" }, text);
  const form = h("form", { class: "login" }, h("img", { src: "/static/icon.svg", alt: "", width: 44, height: 44 }), h("h1", {}, "Keepfast console"),
    h("p", { class: "dim" }, "Log in with a ZooKeeper user. What you see and may do are that user's rights."),
    h("label", { for: "login-user" }, "User"), user, h("label", { for: "login-password" }, "Password"), password,
    h("label", { for: "login-scheme" }, "Scheme"), scheme, problem, h("button", { class: "primary" }, "Log in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      await post("login", { scheme: scheme.value, user: user.value, password: password.value });
      location.reload();
    } catch (error) { problem.textContent = error.message; }
  });
  replace(root, h("main", { id: "main", class: "alone" }, form));
  user.focus();
}
async function logOut() {
  await post("logout", {});
  location.reload();
}
addEventListener("login-needed", () => loginPage("The login is over; log in again."));

// -- start ---------------------------------------------------------------------------------------
const WORDS = { good: "healthy", warning: "look", bad: "trouble" };
function showHealth(overview) {
  const place = document.getElementById("health");
  if (!place) return;
  const text = stream.isUp === false ? "console not reached" : overview ? WORDS[overview.level] : "…";
  const level = stream.isUp === false ? "bad" : overview ? overview.level : "";
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.className = `health ${level}`;
  replace(place, h("span", { class: "dot", "aria-hidden": "true" }), text);
}
async function start() {
  try {
    const known = await hello();
    if (!known.is_in) { loginPage(); return; }
  } catch (error) {
    replace(root, h("p", { class: "alone" }, error.message));
    setTimeout(start, 2000);
    return;
  }
  frame();
  let last = null;
  stream.on("overview", (overview) => { last = overview; showHealth(overview); });
  stream.on("up", () => showHealth(last));
  addEventListener("hashchange", follow);
  stream.open();
  follow();
}
start();
