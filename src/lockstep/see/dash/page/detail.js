// One run at length: what it is at, its ranks, what happened to it, its recipe and its record.
import { state, ask, make, short, ago, duration } from "./state.js";
import { receipt } from "./receipt.js";

const view = document.querySelector("#view-run");

function table(head, rows, label) {
  const cells = head.map((text) => make("th", { scope: "col" }, text));
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label },
    make("table", { className: "grid" }, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell)))))));
}

function facts(run) {
  const all = Object.entries(run.last).map(([name, value]) => make("div", {}, make("span", {}, name), short(value, 6)));
  return make("div", { className: "facts" }, ...all);
}

function ranks(run) {
  const rows = run.ranks.map((one) => [String(one.rank), String(one.step), one.doing + (one.straggler ? " (others wait for it)" : ""), one.step_seconds ? duration(one.step_seconds) : "",
    one.waits === null ? "" : `${Math.round(100 * one.waits)} %`, one.memory ? `${(one.memory / 2 ** 20).toFixed(0)} MiB` : "", String(one.pid)]);
  return table(["rank", "step", "doing", "step time", "waits", "memory", "process"], rows, "Ranks");
}

// Objects inside the record as dotted names.
function flat(value, name, rows) {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) for (const [key, inner] of Object.entries(value)) flat(inner, name ? `${name}.${key}` : key, rows);
  else rows.push([name, Array.isArray(value) ? JSON.stringify(value) : String(value)]);
  return rows;
}

export async function draw(problem) {
  if (!state.current) return view.replaceChildren(make("p", { className: "empty" }, "Click a run in the table to see it at length."));
  let run;
  try {
    run = await ask("run", [["run", state.current]]);
  } catch (error) {
    return problem(error.message);
  }
  problem(run.problem || "");
  const place = view.parentElement.scrollTop;
  const events = [...run.events].reverse().map((one) => [String(one.step), one.event, one.why, ago(one.time)]);
  const parts = [make("h2", {}, run.name), make("p", {}, make("span", { className: `state-${run.state}` }, run.state), ` · step ${run.step}${run.steps ? ` of ${run.steps}` : ""} · ${run.about} · `, make("code", {}, run.folder))];
  if (run.why) parts.push(make("p", { className: "verdict" }, run.why));
  if (run.verdict) parts.push(make("p", { className: "verdict" }, run.verdict));
  if (run.left_out) parts.push(make("p", {}, `${run.left_out} lines of metrics.jsonl are no metrics and were left out.`));
  parts.push(make("h2", {}, "Last values"), facts(run));
  if (run.receipt) parts.push(make("h2", {}, "Receipt: forecast against actual"), ...receipt(run.receipt));
  if (run.ranks.length) parts.push(make("h2", {}, "Ranks on this host"), ranks(run));
  parts.push(make("h2", {}, "What happened"), events.length ? table(["step", "event", "why", "when"], events, "What happened") : make("p", {}, "Nothing is written in events.jsonl."));
  parts.push(make("h2", {}, "Checkpoints"), make("p", {}, run.checkpoints.length ? run.checkpoints.join(", ") : "none"));
  parts.push(make("h2", {}, "Recipe"), run.keys.length ? table(["key", "value"], run.keys, "Recipe") : make("p", {}, "config.toml is missing, or no TOML."));
  if (run.record) parts.push(make("h2", {}, "Record: what decides the bits beside the recipe"), table(["name", "value"], flat(run.record, "", []), "Record"));
  view.replaceChildren(...parts);
  view.parentElement.scrollTop = place;
}
