// The receipt of a run: what was forecast beside what it took, and what the forecast is made of.
import { make, duration } from "./state.js";

const memory = (gib) => (gib === null ? "not known" : gib >= 1 ? `${gib.toFixed(2)} GiB` : gib >= 1 / 1024 ? `${(gib * 1024).toFixed(1)} MiB` : `${(gib * 1024 * 1024).toFixed(1)} KiB`);
const time = (ms) => (ms === null ? "not known" : duration(ms / 1e3));
const percent = (share) => (share === null ? "" : `${share >= 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(1)} %`);

function grid(head, rows, label) {
  const cell = (tag, text, i, more) => make(tag, { className: i ? "number" : "", ...more }, text);
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label },
    make("table", { className: "grid" }, make("thead", {}, make("tr", {}, ...head.map((text, i) => cell("th", text, i, { scope: "col" })))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, i) => (i ? cell("td", text, i) : cell("th", text, i, { scope: "row" }))))))));
}

// A part of the forecast with its share of the whole as a bar.
function shares(title, parts, whole, text) {
  if (!parts.length || !(whole > 0)) return null;
  const rows = parts.map(([name, value]) => {
    const bar = make("span", { className: "share" });
    bar.style.width = `${Math.min(100, (100 * value) / whole)}%`;
    return make("div", {}, make("span", {}, `${name} · ${text(value)} · ${((100 * value) / whole).toFixed(0)} %`), bar);
  });
  return make("section", {}, make("h3", {}, title), make("div", { className: "shares" }, ...rows));
}

// What each kind of work was forecast to take, and took.
function byPart(one) {
  const parts = (one.by_part || []).filter((part) => Math.max(part.predicted_ms, part.actual_ms || 0) >= 0.001 * one.actual_step_ms);
  if (!parts.length) return [];
  return [grid(["of a step", "forecast", "actual"], parts.map((part) => [part.part, time(part.predicted_ms), time(part.actual_ms)]), "Receipt by part")];
}

export function receipt(one) {
  if (one.problem) return [make("p", {}, one.problem)];
  const of = one.machine ? ` for ${one.machine}` : "";
  return [
    grid(["of the run", "forecast", "actual", "difference"], [["time per step", time(one.predicted_step_ms), time(one.actual_step_ms), percent(one.step_error)],
      ["memory", memory(one.predicted_memory_gib), memory(one.actual_memory_gib), percent(one.memory_error)]], "Receipt"),
    make("p", {}, `Median of ${one.steps} steps; forecast${of}.${one.why ? ` Why they differ: ${one.why}.` : ""}`),
    ...byPart(one),
    make("div", { className: "halves" }, shares("A step, as forecast", one.parts, one.predicted_step_ms, time), shares("Memory, as forecast", one.memory, one.predicted_memory_gib, memory)),
  ];
}
