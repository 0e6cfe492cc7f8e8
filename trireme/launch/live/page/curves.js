"use strict";
// A small picture for each curve. The pictures stay; new data moves their lines.

const charts = new Map();  // by name
const CHART = { width: 300, height: 130, left: 34, right: 6, top: 8, bottom: 18 };

// At most count + 1 of them. Near 1e16 a step may be too small to change a tick: such ticks are one.
function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const first = Math.ceil(low / step) * step;
  const ticks = Array.from({ length: count + 1 }, (_, i) => first + i * step).filter((tick) => tick <= high + step * 1e-6);
  return [...new Set(ticks)];
}

function smoothed(points, weight) {
  let mean = null;
  return points.map(([step, seconds, value]) => {
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return [step, seconds, mean];
  });
}

class Chart {
  constructor(name) {
    this.name = name;
    this.title = element("span", {}, name);
    this.last = element("b");
    this.svg = element("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, tabindex: "0", role: "img",
      preserveAspectRatio: "none" });
    this.root = element("div", { class: "chart", "data-curve": name }, element("div", {}, this.title, this.last), this.svg);
    this.cursor = null;
    this.svg.addEventListener("mousemove", (event) => this.point(event));
    this.svg.addEventListener("mouseleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  update(points, smooth) {
    const newest = points.length ? points[points.length - 1][2] : undefined;
    this.points = points.filter((point) => !isNaNValue(point[2]));
    this.smooth = smooth;
    // A speed is drawn over time: it falls while no step ends.
    this.byStep = !this.name.endsWith("/s") && this.points.every((point) => point[0] !== null);
    setText(this.last, formatValue(newest));
    setClass(this.last, isNaNValue(newest) ? "bad" : "");
    this.draw();
  }

  // Where a point is drawn.
  x(point) {
    const [low, high] = this.range;
    const place = (this.byStep ? point[0] : point[1]) - low;
    return CHART.left + (place / (high - low || 1)) * (this.width - CHART.left - CHART.right);
  }

  y(value) {
    const space = CHART.height - CHART.top - CHART.bottom;
    return CHART.top + space - ((value - this.low) / (this.high - this.low || 1)) * space;
  }

  measure() {
    const xs = this.points.map((point) => (this.byStep ? point[0] : point[1]));
    this.range = [Math.min(...xs), Math.max(...xs)];
    const values = this.points.map((point) => point[2]);
    const low = Math.min(...values), high = Math.max(...values);
    const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    this.low = low >= 0 && low - margin < 0 ? 0 : low - margin;
    this.high = high + margin;
  }

  draw() {
    const width = this.width = Math.max(120, this.svg.clientWidth || CHART.width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
    this.svg.replaceChildren();
    this.svg.setAttribute("aria-label", `${this.name}: ${this.last.textContent} at the end`);
    if (!this.points.length) return;
    this.measure();
    for (const tick of niceTicks(this.low, this.high, 3)) {
      const y = this.y(tick);
      this.svg.append(element("line", { class: "gridline", x1: CHART.left, x2: width - CHART.right, y1: y, y2: y }),
        element("text", { x: CHART.left - 5, y: y + 3, "text-anchor": "end" }, formatNumber(Number(tick.toPrecision(6)))));
    }
    this.label(this.range[0], CHART.left, "start");
    if (this.range[1] > this.range[0]) this.label(this.range[1], width - CHART.right, "end");
    if (this.smooth > 0) this.svg.append(this.path(this.points, "raw faint"));
    this.svg.append(this.path(smoothed(this.points, this.smooth), "raw"));
    if (this.cursor !== null) this.drawCursor();
  }

  label(value, x, anchor) {
    const text = this.byStep ? `step ${formatWhole(value)}` : formatSeconds(value);
    this.svg.append(element("text", { x, y: CHART.height - 4, "text-anchor": anchor }, text));
  }

  path(points, name) {
    const line = points.map((point, i) => `${i ? "L" : "M"}${this.x(point).toFixed(1)} ${this.y(point[2]).toFixed(1)}`);
    return element("path", { class: name, d: line.join("") + (points.length === 1 ? "h0.01" : "") });
  }

  drawCursor() {
    this.cursor = Math.max(0, Math.min(this.cursor, this.points.length - 1));
    const point = this.points[this.cursor];
    const x = this.x(point);
    this.svg.append(element("line", { class: "cursor", x1: x, x2: x, y1: CHART.top, y2: CHART.height - CHART.bottom }),
      element("circle", { class: "dot", cx: x, cy: this.y(point[2]), r: 3 }));
  }

  select(index) {
    this.cursor = index;
    this.draw();
    const point = this.points[this.cursor];
    const box = this.svg.getBoundingClientRect();
    const where = this.byStep ? `step ${formatWhole(point[0])}` : formatSeconds(point[1]);
    showTip(`${this.name} ${formatNumber(point[2])}\n${where}`, box.left + this.x(point), box.top + this.y(point[2]));
  }

  point(event) {
    if (!this.points || !this.points.length) return;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    let best = 0;
    this.points.forEach((point, i) => { if (Math.abs(this.x(point) - x) < Math.abs(this.x(this.points[best]) - x)) best = i; });
    this.select(best);
  }

  key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (move === undefined || !this.points || !this.points.length) return;
    event.preventDefault();
    this.select((this.cursor === null ? this.points.length - 1 : this.cursor) + move);
  }

  leave() {
    this.cursor = null;
    hideTip();
    if (this.points) this.draw();
  }
}

// The curves that people look for first come first.
const FIRST_CURVES = ["loss", "train_loss", "accuracy", "acc", "top1", "val_loss", "lr", "samples/s", "steps/s"];

function orderOf(name) {
  const place = FIRST_CURVES.indexOf(name);
  return place < 0 ? FIRST_CURVES.length : place;
}

function updateCurves(curves) {
  const names = Object.keys(curves).sort((a, b) => orderOf(a) - orderOf(b) || a.localeCompare(b));
  for (const [name, chart] of charts) if (!names.includes(name)) { chart.root.remove(); charts.delete(name); }
  names.forEach((name, place) => {
    if (!charts.has(name)) charts.set(name, new Chart(name));
    const chart = charts.get(name);
    if ($("curves").children[place] !== chart.root) $("curves").insertBefore(chart.root, $("curves").children[place] || null);
    chart.update(curves[name].points, Number($("smooth").value));
  });
  const ranks = [...new Set(Object.values(curves).map((curve) => curve.rank).filter((rank) => rank !== null))];
  setText($("curves-of"), ranks.length === 1 ? `of rank ${ranks[0]}` : "");
  show($("no-curves"), names.length === 0);
}
