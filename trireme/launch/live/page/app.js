"use strict";
// Asks the launcher once a second and shows what has changed. In a report the data is in the page, and nothing is asked.

const embedded = document.getElementById("report-data");
const report = embedded ? JSON.parse(embedded.textContent) : null;
let state = null;
let lost = null;  // since when the launcher does not answer
let timer = 0;  // until it is asked again

class NeedsToken extends Error {}

async function ask(path, headers) {
  const answer = await fetch(path, { headers: headers || {}, cache: "no-store", credentials: "same-origin" });
  if (answer.status === 401) throw new NeedsToken();
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// The token comes in the URL's fragment, which browsers do not send; it is exchanged for a cookie, and forgotten.
async function logIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  await ask("api/login", { Authorization: `Bearer ${token}` });
}

const source = {
  state: () => (report ? report.state : ask("api/state")),
  curves: (rank) => (report ? report.curves : ask(rank === null ? "api/curves" : `api/curves?rank=${rank}`)),
  timelines: (ranks) => (report ? report.timelines.filter((one) => ranks.includes(one.rank)) : ask(`api/timeline?ranks=${ranks}`)),
  log: (rank) => (report ? { text: report.logs[rank] || "", path: "" } : ask(`api/log?rank=${rank}`)),
};

// --- the parts that are not in files of their own

const tiles = {};

function tile(name, title, wide) {
  if (tiles[name]) return tiles[name];
  const value = element("b"), note = element("span", { class: "muted small" });
  const root = element("div", { class: wide ? "tile wide" : "tile", "data-tile": name },
    element("span", { class: "muted small" }, title), value, note);
  $("tiles").append(root);
  return (tiles[name] = { root, value, note });
}

function setTile(name, title, value, note) {
  const made = tile(name, title);
  setText(made.value, value);
  setText(made.note, note || "");
  return made;
}

// The first reported value is large, the second one below it.
function updateValues(values) {
  const [first, second] = Object.keys(values).sort((a, b) => orderOf(a) - orderOf(b));
  const made = setTile("loss", first || "Loss", first ? formatValue(values[first]) : DASH,
    second ? `${second} ${formatValue(values[second])}` : "");
  setClass(made.value, first && isNaNValue(values[first]) ? "bad" : "");
  setClass(made.note, second && isNaNValue(values[second]) ? "small bad" : "muted small");
}

function stepNote(totals) {
  const parts = [];
  if (totals.last_step) parts.push(`of ${formatWhole(totals.last_step)}`);
  if (totals.epoch) parts.push(`epoch ${totals.epoch}/${totals.epochs}`);
  if (totals.steps_per_second !== null) parts.push(`${formatNumber(totals.steps_per_second)} steps/s`);
  if (typeof totals.seconds_left === "number") parts.push(`ETA ${formatClock(totals.seconds_left)}`);
  return parts.join(", ");
}

function updateTiles() {
  const { totals, ranks } = state;
  const running = ranks.filter((rank) => !rank.ended).length;
  setTile("step", "Step", formatWhole(totals.step), stepNote(totals));
  setTile("speed", "Samples/s", formatNumber(totals.samples_per_second), "all ranks");
  updateValues(totals.values);
  setTile("ranks", "Ranks", `${running} / ${state.world_size}`,
    totals.slowest === null ? (state.nodes > 1 ? `${state.nodes} machines` : state.host) : `slowest: rank ${totals.slowest}`);
  const time = tile("time", "Where the time goes", true);
  if (!time.bar) { time.bar = bar(); time.value.replaceWith(time.bar); }
  const known = ranks.some((rank) => rank.shares);
  setBar(time.bar, known ? totals.shares : null);
  const beside = known && totals.shares[3] >= 0.005 ? `; ${formatPercent(totals.shares[3])} beside it` : "";
  setText(time.note, known ? sharesWords(totals.shares) + beside : "not known: no step recorded");
}

function updateHead() {
  setText($("job"), state.job_id === "default" ? "Trireme" : state.job_id);
  document.title = `${state.job_id === "default" ? "Trireme" : state.job_id}: ${state.state}`;
  setText($("program"), state.program);
  $("program").title = state.program;
  const waiting = state.state === "running" && state.verdict;
  setText($("state"), waiting ? "waiting" : state.state);
  setClass($("state"), `pill ${waiting ? "waiting" : state.state}`);
  setText($("elapsed"), formatClock((state.now_ms - state.started_ms) / 1000));
  setText($("version"), `Trireme ${state.version}, job on ${state.host}${state.restarts ? `, ${state.restarts} restarts` : ""}`
    + (state.trace ? `; trace: ${state.trace}` : ""));
}

function updateVerdict() {
  const verdict = state.state === "running" ? state.verdict : null;
  show($("verdict"), Boolean(verdict));
  if (verdict) {
    setText($("verdict-title"), verdict.proven ? "The job hangs" : `No progress for ${formatSeconds(verdict.seconds)}`);
    setText($("verdict-words"), verdict.words);
    setText($("verdict-advice"), verdict.advice);
    if ($("verdict-details").dataset.text !== verdict.details.join("\n")) {
      $("verdict-details").dataset.text = verdict.details.join("\n");
      $("verdict-details").replaceChildren(...verdict.details.map((line) => element("li", {}, line)));
    }
  }
  show($("failure"), Boolean(state.failure));
  setText($("failure").firstElementChild, state.state === "running" ? "An attempt before this one has failed"
    : state.state === "interrupted" ? "The job was interrupted" : "The job has failed");
  setText($("failure-text"), state.failure.replace(/^-+\n|\n-+\n?$/g, ""));
}

function updateOperations() {
  const body = $("operations-body");
  show($("no-operations"), state.operations.length === 0);
  while (body.children.length < state.operations.length)
    body.append(element("tr", {}, ...Array.from({ length: 6 }, () => element("td"))));
  while (body.children.length > state.operations.length) body.lastChild.remove();
  state.operations.forEach((operation, i) => {
    const { name, count, bytes, seconds } = operation;
    const texts = [name, formatWhole(count), formatBytes(bytes), formatSeconds(seconds), formatSeconds(count ? seconds / count : 0),
      bytes && seconds ? `${formatBytes(bytes / seconds)}/s` : DASH];
    texts.forEach((text, place) => setText(body.children[i].children[place], text));
  });
}

function updateLogChoice() {
  const select = $("log-rank");
  while (select.length < state.ranks.length) select.append(element("option", { value: select.length }, String(select.length)));
  while (select.length > state.ranks.length) select.lastChild.remove();
}

function updateNotice() {
  const gone = lost && !(state && state.state !== "running");
  show($("notice"), Boolean(gone));
  if (!gone) return;
  setText($("notice"), `The launcher has not answered since ${lost.toLocaleTimeString()}. This is what it showed last. `
    + "If the job has ended, result.json in its log folder says how, and `trireme report LOGDIR` shows all of it.");
  setText($("state"), "no answer");
  setClass($("state"), "pill waiting");
  document.title = document.title.replace(/: running$/, ": no answer");
}

function showNeedsToken() {
  setText($("notice"), "This page needs the token of the job: open the address in the file dashboard.url of its log folder.");
  show($("notice"), true);
  setText($("state"), "locked");
}

// --- asking

// A pause keeps the picture of the ranks that are shown; other ranks are asked for.
async function refreshTimeline() {
  if (!state) return;
  updateLaneButtons(state.world_size);
  const ranks = shownRanks(state.world_size);
  if (timeline.paused && timeline.data.length && String(ranks) === String(timeline.asked)) return;
  timeline.data = await source.timelines(ranks);
  timeline.asked = ranks;
  drawTimeline();
}

async function refreshLog() {
  if (!state || !state.ranks.length) return;
  const log = await source.log(Number($("log-rank").value || 0));
  const box = $("log");
  if (box.textContent === log.text) return;
  box.textContent = log.text;
  box.title = log.path;
  if ($("follow").checked) box.scrollTop = box.scrollHeight;
}

async function refreshCurves() {
  updateCurves(await source.curves(table.selected));
}

async function refresh() {
  state = await source.state();
  lost = null;
  updateHead();
  updateVerdict();
  updateTiles();
  updateRanks(state.ranks, state.verdict ? state.verdict.rank : null);
  updateOperations();
  updateLogChoice();
  if (document.hidden && state.state === "running" && !report) return;  // nobody sees the rest
  await Promise.all([refreshTimeline(), refreshCurves(), refreshLog()]);
}

// A hidden page asks too, or it would never learn the end: the launcher waits 5 s for the pages that have asked lately.
async function keepFresh() {
  clearTimeout(timer);
  try {
    await refresh();
  } catch (error) {
    if (error instanceof NeedsToken) { showNeedsToken(); return; }
    lost = lost || new Date();
  }
  updateNotice();
  const over = state && state.state !== "running";  // the launcher ends then
  clearTimeout(timer);
  if (!report && !over) timer = setTimeout(keepFresh, lost || document.hidden ? 3000 : 1000);
}

function onVisible() {
  const over = state && state.state !== "running";
  if (!document.hidden && !over && !report) keepFresh();
}

// --- the keyboard, dark and light

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  drawTimeline();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
  const action = { r: () => focusRow(table.focused), t: () => $("timeline").focus(), l: () => $("log").focus(), d: toggleTheme }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function redraw() {
  for (const chart of charts.values()) if (chart.points) chart.draw();
  if (timeline.data.length) drawTimeline();
}

function start() {
  setUpRanks((rank) => {
    if (rank !== null) {
      $("log-rank").value = String(rank);
      if (rank < timeline.first || rank >= timeline.first + RANKS_SHOWN) timeline.first = rank;
    }
    Promise.all([refreshTimeline(), refreshCurves(), refreshLog()]).catch(() => {});
  });
  setUpTimeline(() => refreshTimeline().catch(() => {}), () => (state ? state.world_size : 0));
  $("log-rank").addEventListener("change", () => refreshLog().catch(() => {}));
  $("smooth").addEventListener("input", () => refreshCurves().catch(() => {}));
  $("theme").addEventListener("click", toggleTheme);
  addEventListener("keydown", onKey);
  addEventListener("resize", redraw);
  document.addEventListener("visibilitychange", onVisible);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  (report ? Promise.resolve() : logIn()).catch(() => {}).then(keepFresh);
}

start();
