// One chart on a canvas: lines over a shared x axis, a cross hair, zoom by dragging.
import { state, colourOf, dashesOf, make, short, count, duration } from "./state.js";

const kMargin = { left: 56, right: 10, top: 8, bottom: 22 }, kHeight = 230;

function niceTicks(low, high, wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) ticks.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return ticks;
}

// Where a value is between 0 and 1, on a plain or a logarithmic scale.
function scale(low, high, log) {
  const by = log ? Math.log10 : (value) => value;
  const from = by(low), width = by(high) - from || 1;
  return {
    at: (value) => (by(value) - from) / width,
    value: (share) => (log ? 10 ** (from + share * width) : from + share * width),
    ticks: (wanted) => (log ? niceTicks(from, from + width, wanted).map((t) => 10 ** t) : niceTicks(low, high, wanted)),
  };
}

export function axisText(value) { return state.axis === "time" ? duration(value) : count(value); }

export class Chart {
  constructor(metric, onZoom) {
    this.metric = metric; this.onZoom = onZoom; this.lines = []; this.marks = [];
    this.canvas = make("canvas", { role: "img" });
    this.note = make("small", {});
    this.tip = make("div", { className: "tip", hidden: true });
    this.element = make("figure", {}, make("figcaption", {}, metric, this.note), this.canvas, this.tip);
    const place = (event) => event.clientX - this.canvas.getBoundingClientRect().left;
    this.canvas.addEventListener("pointermove", (event) => this.hover(place(event)));
    this.canvas.addEventListener("pointerleave", () => { this.at = null; this.tip.hidden = true; this.draw(); });
    this.canvas.addEventListener("pointerdown", (event) => { this.from = place(event); });
    this.canvas.addEventListener("pointerup", (event) => this.release(place(event)));
    this.canvas.addEventListener("dblclick", () => this.onZoom(null));
  }

  set(lines, marks) { this.lines = lines; this.marks = marks; this.draw(); }

  // Values that a logarithmic axis cannot show are left out.
  visible(line) {
    const points = [];
    for (let i = 0; i < line.x.length; ++i) {
      if ((state.logX && line.x[i] <= 0) || (state.logY && line.y[i] <= 0)) continue;
      points.push([line.x[i], line.y[i]]);
    }
    return points;
  }

  draw() {
    const width = this.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    this.canvas.width = width * ratio; this.canvas.height = kHeight * ratio; this.canvas.style.height = `${kHeight}px`;
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    const faint = style.getPropertyValue("--faint"), grid = style.getPropertyValue("--line");
    const drawn = this.lines.map((line) => ({ line, points: this.visible(line), raw: line.raw ? this.visible(line.raw) : [] })).filter((one) => one.points.length);
    this.describe(drawn);
    if (!drawn.length) {
      pen.fillStyle = faint; pen.textAlign = "center";
      pen.fillText(this.lines.length ? "nothing above 0 to draw" : "no run shown has this metric", width / 2, kHeight / 2);
      this.x = null;
      return;
    }
    this.scales(drawn, width);
    this.drawAxes(pen, width, faint, grid);
    pen.save();
    pen.beginPath(); pen.rect(kMargin.left, 0, width - kMargin.left - kMargin.right, kHeight - kMargin.bottom); pen.clip();
    if (state.marks) this.drawMarks(pen, faint);
    for (const { line, raw } of drawn) this.stroke(pen, line.run, raw, 0.3, 1);
    for (const { line, points } of drawn) this.stroke(pen, line.run, points, 1, 1.6);
    this.drawCursor(pen, faint);
    pen.restore();
  }

  scales(drawn, width) {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { points } of drawn) {
      for (const [x, y] of points) {
        if (state.zoom && (x < state.zoom[0] || x > state.zoom[1])) continue;
        left = Math.min(left, x); right = Math.max(right, x); low = Math.min(low, y); high = Math.max(high, y);
      }
    }
    if (state.zoom) [left, right] = state.zoom;
    if (!(high >= low)) [low, high] = [0, 1];
    const room = state.logY ? 0 : (high - low) * 0.04 || Math.abs(high) * 0.05 || 1;
    const inner = width - kMargin.left - kMargin.right, tall = kHeight - kMargin.top - kMargin.bottom;
    const x = scale(left, right > left ? right : left + 1, state.logX && left > 0), y = scale(low - room, high + room, state.logY);
    this.x = { ...x, pixel: (v) => kMargin.left + x.at(v) * inner, from: (p) => x.value((p - kMargin.left) / inner) };
    this.y = { ...y, pixel: (v) => kMargin.top + (1 - y.at(v)) * tall };
  }

  drawAxes(pen, width, faint, grid) {
    pen.strokeStyle = grid; pen.fillStyle = faint; pen.lineWidth = 1;
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const value of this.y.ticks(4)) {
      const at = Math.round(this.y.pixel(value)) + 0.5;
      if (at < 0 || at > kHeight - kMargin.bottom) continue;
      pen.beginPath(); pen.moveTo(kMargin.left, at); pen.lineTo(width - kMargin.right, at); pen.stroke();
      pen.fillText(Math.abs(value) >= 1e4 ? count(value) : short(value), kMargin.left - 6, at);
    }
    pen.textAlign = "center"; pen.textBaseline = "top";
    for (const value of this.x.ticks(Math.max(2, Math.floor(width / 110)))) pen.fillText(axisText(value), this.x.pixel(value), kHeight - kMargin.bottom + 6);
  }

  drawMarks(pen, faint) {
    const bad = getComputedStyle(document.documentElement).getPropertyValue("--bad");
    for (const mark of this.marks) {
      const at = this.x.pixel(mark.x), trouble = !["start", "finished"].includes(mark.event);
      pen.strokeStyle = trouble ? bad : faint; pen.fillStyle = pen.strokeStyle; pen.setLineDash(trouble ? [] : [2, 3]); pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, kHeight - kMargin.bottom); pen.stroke();
      pen.beginPath(); pen.moveTo(at - 4, 0); pen.lineTo(at + 4, 0); pen.lineTo(at, 6); pen.fill();
    }
    pen.setLineDash([]);
  }

  stroke(pen, run, points, strength, thick) {
    pen.strokeStyle = colourOf(run); pen.fillStyle = pen.strokeStyle; pen.globalAlpha = strength; pen.lineWidth = thick; pen.lineJoin = "round";
    pen.setLineDash(dashesOf(run));
    pen.beginPath();
    points.forEach(([x, y], i) => (i ? pen.lineTo(this.x.pixel(x), this.y.pixel(y)) : pen.moveTo(this.x.pixel(x), this.y.pixel(y))));
    pen.stroke();
    pen.setLineDash([]);
    if (points.length < 40) for (const [x, y] of points) { pen.beginPath(); pen.arc(this.x.pixel(x), this.y.pixel(y), 2, 0, 7); pen.fill(); }
    pen.globalAlpha = 1;
  }

  drawCursor(pen, faint) {
    if (this.at === null || this.at === undefined) return;
    pen.strokeStyle = faint; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(this.at, 0); pen.lineTo(this.at, kHeight); pen.stroke();
    if (this.from === undefined) return;
    pen.fillStyle = faint; pen.globalAlpha = 0.25;
    pen.fillRect(Math.min(this.from, this.at), 0, Math.abs(this.at - this.from), kHeight);
    pen.globalAlpha = 1;
  }

  // The values under the pointer, and the events near it.
  hover(at) {
    this.at = at;
    this.draw();
    if (!this.x) return;
    const x = this.x.from(at), rows = [];
    for (const line of this.lines) {
      let best = -1;
      for (let i = 0; i < line.x.length; ++i) if (best < 0 || Math.abs(line.x[i] - x) < Math.abs(line.x[best] - x)) best = i;
      if (best < 0) continue;
      const swatch = make("span", { className: "swatch" });
      swatch.style.background = colourOf(line.run);
      rows.push(make("div", {}, swatch, `${line.run}: ${short(line.y[best], 6)} at ${axisText(line.x[best])}`));
    }
    for (const mark of state.marks ? this.marks : []) if (Math.abs(this.x.pixel(mark.x) - at) < 5) rows.push(make("div", {}, `⚑ ${mark.run}, step ${mark.step}: ${mark.event}. ${mark.why}`));
    this.tip.replaceChildren(...rows.slice(0, 14));
    this.tip.hidden = rows.length === 0;
    const right = at > this.canvas.clientWidth / 2;
    this.tip.style.left = right ? "" : `${at + 16}px`; this.tip.style.right = right ? `${this.canvas.clientWidth - at + 16}px` : "";
    this.tip.style.top = "34px";
  }

  release(at) {
    const from = this.from;
    this.from = undefined;
    if (from === undefined || !this.x || Math.abs(at - from) < 6) return;
    const ends = [this.x.from(Math.min(from, at)), this.x.from(Math.max(from, at))];
    this.onZoom(ends);
  }

  describe(drawn) {
    const total = drawn.reduce((sum, { line }) => sum + line.total, 0), exact = drawn.every(({ line }) => line.exact);
    this.note.textContent = drawn.length ? `${count(total)} points${exact ? "" : ", thinned"}` : "";
    const last = drawn.map(({ line, points }) => `${line.run} ends at ${short(points[points.length - 1][1])}`);
    this.canvas.setAttribute("aria-label", `${this.metric} over ${state.axis}: ${last.join("; ") || "nothing to draw"}`);
  }
}
