// What is looked at, kept in the address so that it can be bookmarked, and how the server is asked.

export const state = {
  runs: new Map(),         // name -> summary, as /api/live tells it
  shown: [],               // names of runs with curves, in the order of their colours
  current: "",             // the run of the timeline and the details
  view: "curves",
  metrics: ["loss", "eval_loss", "grad_norm", "tokens_per_s"],
  axis: "step", smooth: 0, logX: false, logY: false, marks: true,
  zoom: null,              // [from, to] on the x axis
};

// The colours of Okabe and Ito, for light and for dark pages.
const kColours = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b0508a", "#a87400", "#3a8fc4", "#000000", "#8a8200"],
  dark: ["#56b4e9", "#ff8c42", "#2bd4a0", "#e39bc6", "#f0b030", "#9ad2f5", "#ffffff", "#f0e442"],
};
export function dark() { return document.documentElement.dataset.theme === "dark"; }
export function colourOf(name) {
  const at = state.shown.indexOf(name), colours = kColours[dark() ? "dark" : "light"];
  return at < 0 ? "transparent" : colours[at % colours.length];
}
export function dashesOf(name) { return state.shown.indexOf(name) >= 8 ? [6, 3] : []; }

const kSaved = ["shown", "current", "view", "metrics", "axis", "smooth", "logX", "logY", "marks"];
export function save() {
  const words = Object.fromEntries(kSaved.map((key) => [key, state[key]]));
  history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(words)));
}
export function restore() {
  try {
    const words = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    for (const key of kSaved) if (typeof words[key] === typeof state[key]) state[key] = words[key];
  } catch { /* an address without a state, or with another's */ }
}

export async function ask(path, words) {
  const query = new URLSearchParams(words).toString();
  let reply;
  try {
    reply = await fetch(`/api/${path}?${query}`);
  } catch {
    throw new Error("the program does not answer: it has ended, or its disk does not respond");
  }
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(body.error || `the program answered with status ${reply.status}`);
  return body;
}

// A new element: make("td", {className: "number"}, "12", child).
export function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith("aria") || key === "role" || key === "scope") element.setAttribute(key, value); else element[key] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function short(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (typeof value === "string") return value;  // nan, inf
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-3)) return Number(value).toExponential(Math.max(1, digits - 2));
  return String(Number(Number(value).toPrecision(digits + (size >= 1000 ? 2 : 0))));
}
export function count(value) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  return String(Number(Number(value).toPrecision(4)));
}
export function duration(seconds) {
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 100) return `${Number(seconds.toPrecision(seconds < 10 ? 2 : 3))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}
export function ago(time) { return time > 0 ? duration(Math.max(1, Math.round(Date.now() / 1000 - time))) + " ago" : ""; }
