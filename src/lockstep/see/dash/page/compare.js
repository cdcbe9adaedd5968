// The runs shown, side by side: where they are, and which keys of their recipes differ.
import { state, ask, make, short, count, ago, colourOf } from "./state.js";

const view = document.querySelector("#view-compare");

function head(first, names) {
  const cells = names.map((name) => {
    const swatch = make("span", { className: "swatch" });
    swatch.style.background = colourOf(name);
    return make("th", { scope: "col" }, swatch, name);
  });
  return make("thead", {}, make("tr", {}, make("th", { scope: "col" }, first), ...cells));
}

function rowOf(title, values) {
  return make("tr", {}, make("th", { scope: "row" }, title), ...values.map((value) => make("td", {}, value)));
}

export async function draw(problem) {
  const names = state.shown.filter((name) => state.runs.has(name));
  if (names.length < 2) return view.replaceChildren(make("p", { className: "empty" }, "Tick two or more runs in the table to compare them."));
  let answer;
  try {
    answer = await ask("compare", names.map((name) => ["run", name]));
  } catch (error) {
    return problem(error.message);
  }
  problem("");
  const runs = names.map((name) => state.runs.get(name));
  const now = make("tbody", {}, rowOf("state", runs.map((run) => run.state)), rowOf("step", runs.map((run) => String(run.step))),
    rowOf("loss", runs.map((run) => short(run.loss, 6))), rowOf("evaluation", runs.map((run) => short(run.eval_loss, 6))),
    rowOf("tokens per second", runs.map((run) => (run.tokens_per_s === null ? "" : count(run.tokens_per_s)))), rowOf("written", runs.map((run) => ago(run.updated))));
  const keys = make("tbody", {}, ...answer.keys.map((one) => rowOf(one.key, one.values.map((value) => value || "–"))));
  view.replaceChildren(
    make("h2", {}, "Where they are"), make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Where they are" }, make("table", { className: "grid" }, head("now", names), now)),
    make("h2", {}, answer.keys.length ? "Keys that differ" : "No key of their recipes differs"),
    answer.keys.length ? make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Keys that differ" }, make("table", { className: "grid" }, head("key", names), keys)) : null);
}
