// The page: tabs, keys, theme, and the stream of changes from the program.
import { state, save, restore } from "./state.js";
import * as runs from "./runs.js";
import * as curves from "./curves.js";
import * as compare from "./compare.js";
import * as timeline from "./timeline.js";
import * as detail from "./detail.js";

const views = { curves: curves.draw, compare: compare.draw, timeline: timeline.show, run: detail.draw };
const banner = document.querySelector("#banner"), help = document.querySelector("#help"), connection = document.querySelector("#connection");
const problems = new Map();  // by who has it

function say(who, text) {
  if (text) problems.set(who, text); else problems.delete(who);
  banner.textContent = [...problems.values()].join(" · ");
  banner.hidden = problems.size === 0;
}
const problem = (text) => say("view", text);

function show(name) {
  state.view = name in views ? name : "curves";
  for (const one of Object.keys(views)) {
    document.querySelector(`#view-${one}`).hidden = one !== state.view;
    const tab = document.querySelector(`#tab-${one}`);
    tab.setAttribute("aria-selected", String(one === state.view));
    tab.tabIndex = one === state.view ? 0 : -1;
  }
}

function changed() {
  save();
  show(state.view);
  runs.draw();
  views[state.view](problem);
}

// New numbers: the table soon, the view at most once a second, the timeline only when asked.
let waiting = false;
function refresh(names) {
  runs.draw();
  const touched = state.view === "curves" || state.view === "compare" ? state.shown.some((name) => names.has(name)) : state.view === "run" && names.has(state.current);
  if (!touched || waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; if (state.view !== "timeline") views[state.view](problem); }, 1000);
}

function takeRuns(list) {
  const first = state.runs.size === 0 && list.length > 0;
  for (const run of list) if (run.gone) state.runs.delete(run.name); else state.runs.set(run.name, run);
  if (!first) return refresh(new Set(list.map((run) => run.name)));
  state.shown = state.shown.filter((name) => state.runs.has(name));
  const newest = runs.matching();
  if (!state.shown.length) state.shown = newest.slice(0, Math.min(8, newest.length)).map((run) => run.name);
  if (!state.runs.has(state.current)) state.current = newest[0]?.name || "";
  changed();
}

function listen() {
  const stream = new EventSource("/api/live");
  stream.onopen = () => { connection.textContent = "live"; say("stream", ""); };
  stream.addEventListener("runs", (event) => takeRuns(JSON.parse(event.data)));
  stream.addEventListener("status", (event) => {
    const status = JSON.parse(event.data);
    document.querySelector("#root").textContent = status.root;
    document.title = `${status.root} · Lockstep`;
    say("folder", [status.problem && `the folder cannot be listed: ${status.problem}`, status.waiting_s > 0 && `the folder has not answered for ${status.waiting_s} s`,
      status.crowded && "there are more runs than are shown"].filter(Boolean).join(" · "));
    if (state.runs.size === 0 && !status.reading) changed();
  });
  stream.onerror = () => {
    connection.textContent = "not connected";
    say("stream", "the program does not answer: start `lockstep dash` again and open the address it prints");
  };
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("theme", name); } catch { /* private windows */ }
  curves.redraw(); timeline.redraw(); runs.draw();
}
function otherTheme() { theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); }
function firstTheme() {
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch { /* private windows */ }
  return kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

const keys = {
  "/": () => document.querySelector("#search").focus(), j: () => runs.step(1), k: () => runs.step(-1),
  x: () => state.current && runs.toggle(state.current), l: () => { state.logY = !state.logY; changed(); },
  z: () => curves.zoomTo(null), d: otherTheme, "?": () => help.showModal(),
  1: () => { show("curves"); changed(); }, 2: () => { show("compare"); changed(); }, 3: () => { show("timeline"); changed(); }, 4: () => { show("run"); changed(); },
};
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input[type=search], select, textarea");
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open || !(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

const tabs = [...document.querySelectorAll("[role=tab]")];
tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => { show(tab.id.slice(4)); changed(); });
  tab.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) { const next = tabs[(i + by + tabs.length) % tabs.length]; next.focus(); next.click(); }
  });
});
document.querySelector("#theme").addEventListener("click", otherTheme);
document.querySelector("#help-button").addEventListener("click", () => help.showModal());
restore();
runs.start(changed);
curves.start(changed);
theme(firstTheme());
show(state.view);
listen();
