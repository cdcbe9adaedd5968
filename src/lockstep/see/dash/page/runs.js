// The table of runs: search, order, which are shown, which one is current. Ten thousand runs stay quick: only
// the first few hundred that match have rows.
import { state, make, short, ago, colourOf, count } from "./state.js";

const kAtOnce = 200;
let sort = { key: "updated", up: false }, limit = kAtOnce, changed = () => {};
const body = document.querySelector("#table tbody"), search = document.querySelector("#search");
const more = document.querySelector("#more"), counter = document.querySelector("#count");

export function matching() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (run) => {
    const text = `${run.name} ${run.about} ${run.state}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const key = sort.key, sign = sort.up ? 1 : -1;
  const value = (run) => run[key] ?? (sort.up ? Infinity : -Infinity);
  return [...state.runs.values()].filter(fits).sort((a, b) => {
    const x = value(a), y = value(b);
    return x === y ? a.name.localeCompare(b.name) : (x < y ? -1 : 1) * sign;
  });
}

export function toggle(name, on = !state.shown.includes(name)) {
  state.shown = state.shown.filter((one) => one !== name);
  if (on) state.shown.push(name);
  changed();
}

function rowOf(run) {
  const box = make("input", { type: "checkbox", checked: state.shown.includes(run.name), "aria-label": `Show ${run.name}` });
  box.addEventListener("change", () => toggle(run.name, box.checked));
  box.addEventListener("click", (event) => event.stopPropagation());
  const swatch = make("span", { className: "swatch" });
  swatch.style.background = colourOf(run.name);
  const steps = run.steps > 0 ? `${count(run.step)}/${count(run.steps)}` : count(run.step);
  const row = make("tr", { className: run.name === state.current ? "current" : "" },
    make("td", {}, box),
    make("td", { className: "name" }, swatch, run.name, make("small", { title: run.about }, run.about)),
    make("td", { className: `state-${run.state}`, title: run.why }, run.state),
    make("td", { className: "number", title: `step ${run.step} of ${run.steps || "?"}` }, steps),
    make("td", { className: "number" }, short(run.loss)),
    make("td", { className: "number wide" }, ago(run.updated)));
  row.addEventListener("click", () => { state.current = run.name; changed(); });
  return row;
}

export function draw() {
  const runs = matching();
  body.replaceChildren(...runs.slice(0, limit).map(rowOf));
  if (runs.length === 0) {
    const why = state.runs.size ? "No run matches the search." : "No runs here yet: start one with lockstep train.";
    body.append(make("tr", {}, make("td", { colSpan: 6, className: "empty" }, why)));
  }
  more.hidden = runs.length <= limit;
  more.textContent = `show more of ${runs.length}`;
  counter.textContent = runs.length === state.runs.size ? `${runs.length} runs` : `${runs.length} of ${state.runs.size}`;
  for (const button of document.querySelectorAll("#table th button")) {
    const here = button.dataset.sort === sort.key;
    button.dataset.order = here ? (sort.up ? "up" : "down") : "";
    button.closest("th").setAttribute("aria-sort", here ? (sort.up ? "ascending" : "descending") : "none");
  }
}

export function step(by) {
  const names = matching().map((run) => run.name);
  if (!names.length) return;
  const at = names.indexOf(state.current);
  state.current = names[Math.max(0, Math.min(names.length - 1, at < 0 ? 0 : at + by))];
  changed();
  body.querySelector("tr.current")?.scrollIntoView({ block: "nearest" });
}

export function start(onChange) {
  changed = onChange;
  search.addEventListener("input", () => { limit = kAtOnce; draw(); });
  more.addEventListener("click", () => { limit += kAtOnce; draw(); });
  for (const button of document.querySelectorAll("#table th button")) {
    button.addEventListener("click", () => {
      const key = button.dataset.sort;
      sort = { key, up: sort.key === key ? !sort.up : key === "name" };
      draw();
    });
  }
}
