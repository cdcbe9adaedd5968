// The view of curves: which metrics, over what, how smooth; one chart each, all zoomed together.
import { state, ask, make } from "./state.js";
import { Chart } from "./chart.js";

const charts = new Map(), box = document.querySelector("#charts"), chips = document.querySelector("#metrics");
const usual = ["loss", "eval_loss", "grad_norm", "lr", "tokens_per_s", "step_ms", "mfu", "mem_gib", "data_wait_ms"];
let known = [], changed = () => {}, number = 0;

function chipOf(metric) {
  const on = state.metrics.includes(metric);
  const chip = make("button", { "aria-pressed": String(on) }, metric);
  chip.addEventListener("click", () => {
    state.metrics = on ? state.metrics.filter((one) => one !== metric) : [...state.metrics, metric];
    changed();
  });
  return chip;
}

function drawChips(metrics) {
  const place = (name) => { const at = usual.indexOf(name); return at < 0 ? usual.length : at; };
  known = [...new Set([...metrics, ...state.metrics])].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
  chips.replaceChildren(...known.map(chipOf));
}

function chartOf(metric) {
  if (!charts.has(metric)) charts.set(metric, new Chart(metric, zoomTo));
  return charts.get(metric);
}

export function zoomTo(range) {
  state.zoom = range;
  changed();
}

function nothing(sentence) {
  charts.clear();
  box.replaceChildren(make("p", { className: "empty" }, sentence));
}

export async function draw(problem) {
  document.querySelector("#axis").value = state.axis;
  document.querySelector("#smooth").value = state.smooth;
  document.querySelector("#smooth-value").textContent = state.smooth;
  document.querySelector("#log-x").checked = state.logX;
  document.querySelector("#log-y").checked = state.logY;
  document.querySelector("#marks").checked = state.marks;
  document.querySelector("#unzoom").disabled = !state.zoom;
  if (!state.shown.length) return nothing(state.runs.size ? "Tick runs in the table to see their curves." : "No runs here yet.");
  const words = [...state.shown.map((run) => ["run", run]), ...state.metrics.map((metric) => ["metric", metric]),
    ["x", state.axis], ["smooth", state.smooth], ["points", Math.min(3000, 2 * window.innerWidth)]];
  if (state.zoom) words.push(["from", state.zoom[0]], ["to", state.zoom[1]]);
  const mine = ++number;
  let answer;
  try {
    answer = await ask("series", words);
  } catch (error) {
    return problem(error.message);
  }
  if (mine !== number) return;  // a later question has been asked meanwhile
  problem(answer.problems.map((one) => `${one.run}: ${one.why}`).join(" · "));
  drawChips(answer.metrics);
  const wanted = state.metrics.map(chartOf).map((chart) => chart.element);
  if (wanted.length !== box.children.length || wanted.some((element, i) => element !== box.children[i])) box.replaceChildren(...wanted);
  for (const metric of state.metrics) chartOf(metric).set(answer.lines.filter((line) => line.metric === metric), answer.marks);
}

export function redraw() { for (const chart of charts.values()) chart.draw(); }

export function start(onChange) {
  changed = onChange;
  const on = (id, event, act) => document.querySelector(id).addEventListener(event, (e) => { act(e.target); changed(); });
  on("#axis", "change", (input) => { state.axis = input.value; state.zoom = null; });
  on("#smooth", "input", (input) => { state.smooth = Number(input.value); });
  on("#log-x", "change", (input) => { state.logX = input.checked; });
  on("#log-y", "change", (input) => { state.logY = input.checked; });
  on("#marks", "change", (input) => { state.marks = input.checked; });
  on("#unzoom", "click", () => { state.zoom = null; });
  new ResizeObserver(redraw).observe(box);
}
