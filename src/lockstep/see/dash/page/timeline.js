// What every rank did when, lane by lane: a canvas that zooms by dragging, and a table of where time went.
import { state, ask, make, duration } from "./state.js";

const view = document.querySelector("#view-timeline"), kRow = 20, kLeft = 170;
let data = null, range = null, from = "marks", drag, canvas, tip, note;

const kinds = [[/^(forward|loss)/, "#0072b2"], [/^recompute/, "#56b4e9"], [/^backward/, "#009e73"], [/^(reduce|sum|gather|scatter|all_|send|recv|exchange|broadcast|borrow)/, "#d55e00"],
  [/^(update|norm|clip)/, "#a87400"], [/^(load|copy|cast|prepare)/, "#b0508a"]];
function colour(name) { return (kinds.find(([pattern]) => pattern.test(name)) || [0, "#7a828e"])[1]; }

function draw() {
  if (!data || !canvas?.clientWidth) return;
  const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1, height = data.lanes.length * kRow + 24;
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), [low, high] = range;
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
  const pixel = (time) => kLeft + ((time - low) / (high - low)) * (width - kLeft);
  data.lanes.forEach((lane, row) => {
    const top = row * kRow, first = row === 0 || data.lanes[row - 1].rank !== lane.rank;
    pen.fillStyle = style.getPropertyValue(first ? "--faint" : "--line");
    pen.fillRect(0, top, width, 1);
    pen.fillStyle = style.getPropertyValue("--text");
    pen.fillText(`rank ${lane.rank} · ${lane.lane}`, 4, top + kRow / 2, kLeft - 8);
    for (const [name, , begin, length] of lane.spans) {
      if (begin > high || begin + length < low) continue;
      const left = Math.max(kLeft, pixel(begin)), wide = Math.max(0.6, pixel(begin + length) - left);
      pen.fillStyle = colour(name);
      pen.fillRect(left, top + 3, wide, kRow - 5);
      if (wide > 46) { pen.fillStyle = "#fff"; pen.save(); pen.beginPath(); pen.rect(left, top, wide - 2, kRow); pen.clip(); pen.fillText(name, left + 3, top + kRow / 2 + 1); pen.restore(); }
    }
  });
  pen.fillStyle = style.getPropertyValue("--faint");
  for (let i = 0; i <= 4; ++i) { pen.textAlign = i === 4 ? "right" : "left"; pen.fillText(duration((low + ((high - low) * i) / 4) / 1e6), kLeft + ((width - kLeft) * i) / 4, height - 10); }
  pen.textAlign = "left";
  if (drag !== undefined && drag.to !== undefined) { pen.globalAlpha = 0.25; pen.fillRect(Math.min(drag.at, drag.to), 0, Math.abs(drag.to - drag.at), height); pen.globalAlpha = 1; }
}

function spanAt(x, y) {
  const lane = data?.lanes[Math.floor(y / kRow)], time = range[0] + ((x - kLeft) / (canvas.clientWidth - kLeft)) * (range[1] - range[0]);
  const span = lane?.spans.filter(([, , begin, length]) => begin <= time && time <= begin + length).pop();
  return span && { lane, span };
}

function hover(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  if (drag) drag.to = x;
  draw();
  const found = spanAt(x, y);
  tip.hidden = !found;
  if (!found) return;
  const [name, step, begin, length, open] = found.span;
  tip.textContent = `${name} · step ${step} · rank ${found.lane.rank}, ${found.lane.lane} · ${duration(length / 1e6)}${open ? " so far" : ""}, from ${duration(begin / 1e6)}`;
  tip.style.left = `${Math.min(x + 14, canvas.clientWidth - 240)}px`; tip.style.top = `${y + 22}px`;
}

function release() {
  const { at, to } = drag || {};
  drag = undefined;
  if (to === undefined || Math.abs(to - at) < 6) return;
  const time = (x) => range[0] + ((Math.max(kLeft, x) - kLeft) / (canvas.clientWidth - kLeft)) * (range[1] - range[0]);
  range = [time(Math.min(at, to)), time(Math.max(at, to))];
  draw();
}

// Time by the kind of instruction, of one rank and lane.
function tableOf() {
  const sums = new Map();
  for (const lane of data.lanes) for (const [name, , , length] of lane.spans) {
    const kind = name.split(" ")[0], key = `${lane.lane}\n${kind}`;
    if (!sums.has(key)) sums.set(key, { lane: lane.lane, kind, time: 0, times: 0 });
    const one = sums.get(key); one.time += length; one.times += 1;
  }
  const ranks = new Set(data.lanes.map((lane) => lane.rank)).size || 1, steps = Math.max(1, data.last_step - data.first_step + 1);
  const rows = [...sums.values()].sort((a, b) => b.time - a.time).slice(0, 25).map((one) => make("tr", {},
    make("th", { scope: "row" }, one.kind), make("td", {}, one.lane), make("td", { className: "number" }, duration(one.time / ranks / steps / 1e6)),
    make("td", { className: "number" }, `${((100 * one.time) / ranks / (data.length || 1)).toFixed(1)} %`), make("td", { className: "number" }, String(Math.round(one.times / ranks / steps)))));
  const head = ["instruction", "lane", "per step", "of the time", "times per step"].map((text, i) => make("th", { scope: "col", className: i > 1 ? "number" : "" }, text));
  return make("table", { className: "grid" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

export async function show(problem) {
  const run = state.current;
  if (!run) return view.replaceChildren(make("p", { className: "empty" }, "Click a run in the table to see its timeline."));
  try {
    data = await ask("timeline", [["run", run], ["steps", 2], ["from", from]]);
  } catch (error) {
    return problem(error.message);
  }
  problem("");
  const source = make("select", { "aria-label": "Where the times come from" }, make("option", { value: "marks" }, "what ranks on this host did last"), make("option", { value: "profile", disabled: !data.profile }, data.profile ? "the profile" : "no profile was taken"));
  source.value = from;
  source.addEventListener("change", () => { from = source.value; show(problem); });
  const again = make("button", {}, "look again"), whole = make("button", {}, "all of it");
  again.addEventListener("click", () => show(problem));
  const bar = make("div", { className: "bar" }, source, again, whole);
  if (data.problem) return view.replaceChildren(make("h2", {}, run), bar, make("p", { className: "empty" }, data.problem));
  range = [0, data.length || 1];
  canvas = make("canvas", { role: "img" });
  canvas.setAttribute("aria-label", `Timeline of ${run}, steps ${data.first_step} to ${data.last_step}; the table below has the sums`);
  tip = make("div", { className: "tip", hidden: true });
  const few = data.ranks > new Set(data.lanes.map((lane) => lane.rank)).size ? ` · the first of ${data.ranks} ranks` : "";
  note = make("small", {}, `${duration(data.length / 1e6)}${few}`);
  const figure = make("figure", {}, make("figcaption", {}, `${run}, step ${data.first_step} to ${data.last_step}`, note), canvas, tip);
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerdown", (event) => { drag = { at: event.clientX - canvas.getBoundingClientRect().left }; });
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointerleave", () => { drag = undefined; tip.hidden = true; draw(); });
  const all = () => { range = [0, data.length || 1]; draw(); };
  canvas.addEventListener("dblclick", all); whole.addEventListener("click", all);
  view.replaceChildren(bar, figure, make("h2", {}, "Where the time goes"), make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Where the time goes" }, tableOf()));
  draw();
}
export const redraw = draw;
new ResizeObserver(draw).observe(view);
