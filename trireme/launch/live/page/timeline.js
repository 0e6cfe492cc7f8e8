"use strict";
// What each rank did: a lane for a rank, in it the training's phases, on them the operations that the main thread was in,
// and below them those that ran beside it.

const KINDS = [
  [1, "data", "data"], [2, "forward", "forward"], [3, "backward", "backward"], [4, "optimizer", "optimizer"],
  [5, "evaluation", "evaluation"], [6, "save", "save"], [7, "call", "communication, waited for"],
  [8, "beside", "communication beside the training"],
];
const LANE = { height: 40, gap: 8, left: 66, top: 22, phase: 24, beside: 10 };
const RANKS_SHOWN = 8;
const TIMELINE_LABEL = "What each rank did in the last steps. Left and right go from span to span, up and down to other ranks.";

// asked: the ranks of `data`; chosen: the span that the keyboard is on, as [rank, start, kind].
const timeline = { data: [], asked: [], first: 0, scale: 1, paused: false, boxes: [], chosen: null };

function shownRanks(total) {
  timeline.first = Math.max(0, Math.min(timeline.first, Math.max(0, total - RANKS_SHOWN)));
  const ranks = [];
  for (let rank = timeline.first; rank < Math.min(total, timeline.first + RANKS_SHOWN); ++rank) ranks.push(rank);
  return ranks;
}

// Without a choice, about four steps of the first rank.
function windowLength() {
  const marks = timeline.data[0].spans.filter((span) => span[2] === -1).map((span) => span[0]).slice(-5);
  const usual = marks.length > 1 ? (4 * (marks[marks.length - 1] - marks[0])) / (marks.length - 1) : 2e6;
  return Math.max(1000, usual * timeline.scale);
}

// The newest span: a rank that is stuck does not hold the others up.
function windowEnd() {
  const ends = timeline.data.filter((rank) => rank.spans.length)
    .map((rank) => Math.max(...rank.spans.slice(-50).map((span) => span[0] + span[1])));
  return ends.length ? Math.max(...ends) : 0;
}

// Why no rank that is shown has a time line. `ranks`: these ranks of the state.
function wordsOfNoTimeline(ranks, running, inReport) {
  if (ranks.some((rank) => rank.records))
    return inReport && ranks.some((rank) => rank.step !== null) ? "The time lines of these ranks are not kept in a report."
      : running ? "No step yet." : "No step was recorded.";
  return running && !ranks.every((rank) => rank.ended) ? "No step yet. Programs that use Trireme record their steps."
    : "These ranks recorded no steps: the program does not use Trireme, or the job was not watched (--hang_timeout 0).";
}

function tellNoTimeline() {
  const ranks = state ? state.ranks.filter((rank) => timeline.asked.includes(rank.rank)) : [];
  setText($("no-timeline"), wordsOfNoTimeline(ranks, !state || state.state === "running", Boolean(report)));
}

function drawTimeline() {
  const canvas = $("timeline");
  const some = timeline.data.some((rank) => rank.spans.length);
  show(canvas, some);
  show($("no-timeline"), !some);
  if (!some) return tellNoTimeline();
  const width = canvas.clientWidth || 800;
  const height = LANE.top + timeline.data.length * (LANE.height + LANE.gap) + 6;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  const length = windowLength();
  const end = windowEnd();
  const scale = (width - LANE.left - 10) / length;
  const view = { context, width, height, start: end - length, end, scale, colours: {} };
  for (const [kind, name] of KINDS) view.colours[kind] = colour(name);
  timeline.boxes = [];
  timeline.data.forEach((rank, lane) => drawLane(view, rank, LANE.top + lane * (LANE.height + LANE.gap)));
  drawChosen(context);
  setText($("timeline-note"), `the last ${formatSeconds(length / 1e6)}`);
}

function drawLane(view, rank, y) {
  const { context } = view;
  context.fillStyle = colour("grid");
  context.fillRect(LANE.left, y, view.width - LANE.left - 10, LANE.phase);
  context.fillRect(LANE.left, y + LANE.phase + 3, view.width - LANE.left - 10, LANE.beside);
  context.fillStyle = colour("muted");
  context.textAlign = "left";
  context.fillText(`rank ${rank.rank}`, 12, y + LANE.phase / 2 + 4);
  for (const kind of [1, 2, 3, 4, 5, 6, 7, 8])
    for (const span of rank.spans) if (span[2] === kind) drawSpan(view, rank, span, y);
  context.textAlign = "left";
  for (const span of rank.spans) if (span[2] === -1) drawStep(view, span, y, rank === timeline.data[0]);
}

function drawSpan(view, rank, span, y) {
  const [start, length, kind] = span;
  if (start + length < view.start || start > view.end) return;
  const left = Math.max(LANE.left, LANE.left + (start - view.start) * view.scale);
  const right = LANE.left + (Math.min(start + length, view.end) - view.start) * view.scale;
  const top = kind === 8 ? y + LANE.phase + 3 : kind === 7 ? y + LANE.phase / 2 : y;
  const high = kind === 8 ? LANE.beside : kind === 7 ? LANE.phase / 2 : LANE.phase;
  view.context.fillStyle = view.colours[kind];
  view.context.fillRect(left, top, Math.max(0.6, right - left - (right - left > 3 ? 0.6 : 0)), high);
  timeline.boxes.push([left, top, Math.max(2, right - left), high, rank, span]);
}

function drawStep(view, span, y, withNumber) {
  const x = LANE.left + (span[0] - view.start) * view.scale;
  if (x < LANE.left || x > view.width - 10) return;
  view.context.fillStyle = colour("muted");
  view.context.fillRect(x, y - 3, 1, LANE.phase + LANE.beside + 6);
  if (withNumber && x < view.width - 60) view.context.fillText(`step ${formatWhole(span[3])}`, x + 4, 14);
}

function wordsOfBox([, , , , rank, [, length, kind, step, name, bytes]]) {
  const what = kind >= 7 ? rank.names[name] : KINDS[kind - 1][2];
  const size = kind >= 7 && bytes ? `, ${formatBytes(bytes)}` : "";
  return `${what}${size}: ${formatSeconds(length / 1e6)}\nrank ${rank.rank}, step ${formatWhole(step)}`;
}

function tellSpan(event) {
  const box = $("timeline").getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const hit = timeline.boxes.filter((b) => x >= b[0] && x <= b[0] + b[2] && y >= b[1] && y <= b[1] + b[3]).pop();
  if (!hit) return hideTip();
  showTip(wordsOfBox(hit), event.clientX, event.clientY);
}

// --- the keyboard: from span to span, rank after rank, in the order of their begin

const keyOf = (box) => [box[4].rank, box[5][0], box[5][2]];

function stepSpans(by) {
  const order = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  const boxes = timeline.boxes.slice().sort((a, b) => order(keyOf(a), keyOf(b)));
  if (!boxes.length) return;
  // The chosen span may have left the picture since: then its neighbour in time is next.
  const later = timeline.chosen ? boxes.findIndex((box) => order(keyOf(box), timeline.chosen) > 0) : 0;
  const after = later < 0 ? boxes.length : later;
  const same = after > 0 && timeline.chosen && order(keyOf(boxes[after - 1]), timeline.chosen) === 0;
  const next = by > 0 ? after : after - (same ? 2 : 1);
  chooseSpan(boxes[Math.max(0, Math.min(boxes.length - 1, next))]);
}

function chooseSpan(box) {
  timeline.chosen = keyOf(box);
  drawTimeline();
  const words = wordsOfBox(box);
  const canvas = $("timeline"), place = canvas.getBoundingClientRect();
  canvas.setAttribute("aria-label", words);
  showTip(words, place.left + box[0], place.top + box[1] + box[3]);
}

function leaveSpans() {
  timeline.chosen = null;
  $("timeline").setAttribute("aria-label", TIMELINE_LABEL);
  hideTip();
  drawTimeline();
}

function drawChosen(context) {
  const box = timeline.chosen && timeline.boxes.find((one) => String(keyOf(one)) === String(timeline.chosen));
  if (!box) return;
  context.strokeStyle = colour("text");
  context.lineWidth = 2;
  context.strokeRect(box[0], box[1], box[2], box[3]);
}

function moveRanks(by, total) {
  timeline.first += by;
  shownRanks(total);
}

function zoom(factor) {
  timeline.scale = Math.max(1 / 64, Math.min(64, timeline.scale * factor));
  drawTimeline();
}

function setUpTimeline(refresh, total) {
  for (const [, name, words] of KINDS)
    $("legend").append(element("span", {}, element("i", { "data-colour": name }), words));
  // The style attribute would need an exception in the page's policy; a property does not.
  for (const mark of $("legend").querySelectorAll("i")) mark.style.background = `var(--${mark.dataset.colour})`;
  const move = (by) => { moveRanks(by, total()); refresh(); };
  $("earlier").addEventListener("click", () => move(-RANKS_SHOWN));
  $("later").addEventListener("click", () => move(RANKS_SHOWN));
  $("wider").addEventListener("click", () => zoom(2));
  $("closer").addEventListener("click", () => zoom(0.5));
  $("pause").addEventListener("click", () => {
    timeline.paused = !timeline.paused;
    $("pause").setAttribute("aria-pressed", String(timeline.paused));
  });
  $("timeline").addEventListener("mousemove", tellSpan);
  $("timeline").addEventListener("mouseleave", hideTip);
  $("timeline").addEventListener("blur", leaveSpans);
  $("timeline").setAttribute("aria-label", TIMELINE_LABEL);
  $("timeline").addEventListener("keydown", (event) => {
    const action = { ArrowUp: () => move(-1), ArrowDown: () => move(1), ArrowLeft: () => stepSpans(-1), ArrowRight: () => stepSpans(1),
      "+": () => zoom(0.5), "-": () => zoom(2) }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function updateLaneButtons(total) {
  const ranks = shownRanks(total);
  setText($("lanes"), total > RANKS_SHOWN ? `ranks ${ranks[0]}–${ranks[ranks.length - 1]} of ${total}` : "");
  for (const id of ["earlier", "later"]) show($(id), total > RANKS_SHOWN);
  $("earlier").disabled = timeline.first === 0;
  $("later").disabled = timeline.first + RANKS_SHOWN >= total;
}
