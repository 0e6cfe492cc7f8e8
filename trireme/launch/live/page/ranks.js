"use strict";
// The table of ranks. Rows stay and change their text only, so that hundreds of them cost little.

const bar = () => element("span", { class: "bar" }, element("i", { class: "compute" }), element("i", { class: "communication" }),
  element("i", { class: "data" }));

function setBar(node, shares) {
  const parts = shares || [0, 0, 0];
  for (let i = 0; i < 3; ++i) {
    const width = `${(100 * parts[i]).toFixed(1)}%`;
    if (node.children[i].style.width !== width) node.children[i].style.width = width;
  }
}

const sharesWords = (shares) => (shares
  ? `compute ${formatPercent(shares[0])}, communication ${formatPercent(shares[1])}, data ${formatPercent(shares[2])}` : "");

const lossOf = (rank) => rank.values[["loss", "train_loss"].find((key) => key in rank.values) || Object.keys(rank.values)[0]];

// Name, title, the value to sort by, the text.
const COLUMNS = [
  ["rank", "Rank", (rank) => rank.rank, (rank) => String(rank.rank)],
  ["host", "Host", (rank) => rank.host, (rank) => rank.host, "left"],
  ["device", "Device", (rank) => rank.device, (rank) => rank.device, "left"],
  ["pid", "Pid", (rank) => rank.pid, (rank) => (rank.pid ? String(rank.pid) : DASH)],
  ["state", "State", (rank) => rank.state, (rank) => rank.state || "starting", "left"],
  ["step", "Step", (rank) => rank.step, (rank) => formatWhole(rank.step)],
  ["speed", "Samples/s", (rank) => rank.samples_per_second, (rank) => formatNumber(rank.samples_per_second)],
  ["loss", "Loss", (rank) => lossOf(rank) ?? null, (rank) => formatValue(lossOf(rank))],
  ["cpu", "CPU", (rank) => rank.cpu, (rank) => formatPercent(rank.cpu)],
  ["memory", "Memory", (rank) => rank.memory, (rank) => formatBytes(rank.memory)],
  ["time", "Time", (rank) => (rank.shares ? rank.shares[0] : null), null],
  ["now", "Now", (rank) => rank.activity, (rank) => activityOf(rank), "left now"],
];

function activityOf(rank) {
  if (!rank.activity) return rank.records || rank.ended ? "" : "no steps recorded";
  return rank.waits_ms >= 1000 ? `${rank.activity} for ${formatSeconds(rank.waits_ms / 1000)}` : rank.activity;
}

function moodOf(rank, culprit) {
  if (rank.failed || rank.rank === culprit) return "bad";
  if (rank.ended) return "";
  if (rank.state === "stopped" || rank.waits_ms >= 10000) return "warn";
  return rank.state ? "good" : "";
}

const table = { rows: [], sort: "rank", down: false, selected: null, focused: 0, onSelect: () => {} };

function makeHead() {
  for (const [name, title, , , kind] of COLUMNS) {
    const button = element("button", { type: "button" }, title);
    const head = element("th", { scope: "col", "data-column": name, class: kind || "" }, button);
    button.addEventListener("click", () => {
      table.down = table.sort === name && !table.down;
      table.sort = name;
      updateRanks(table.ranks, table.culprit);
    });
    $("ranks-head").append(head);
  }
}

function makeRow() {
  const row = element("tr", { tabindex: "-1" });
  for (const [name, , , text, kind] of COLUMNS) {
    const cell = element("td", { class: kind || "" });
    if (name === "state") cell.append(element("span", { class: "dot8" }), element("span"));
    if (!text) cell.append(bar());
    row.append(cell);
  }
  row.addEventListener("click", () => selectRank(Number(row.dataset.rank)));
  return row;
}

function fillRow(row, rank, culprit) {
  if (row.dataset.rank !== String(rank.rank)) row.dataset.rank = rank.rank;
  COLUMNS.forEach(([name, , , text], i) => {
    const cell = row.children[i];
    if (name === "state") {
      setClass(cell.firstChild, `dot8 ${moodOf(rank, culprit)}`);
      setText(cell.lastChild, text(rank));
    } else if (text) {
      setText(cell, text(rank));
      if (name === "now") cell.title = rank.activity;
      if (name === "loss") setClass(cell, isNaNValue(lossOf(rank)) ? "bad" : "");
    } else {
      setBar(cell.firstChild, rank.shares);
      cell.title = sharesWords(rank.shares);
    }
  });
  row.setAttribute("aria-selected", String(table.selected === rank.rank));
}

function sortedRanks(ranks) {
  const key = COLUMNS.find((column) => column[0] === table.sort)[2];
  const words = $("find").value.trim().toLowerCase();
  const found = words ? ranks.filter((rank) =>
    `rank ${rank.rank} ${rank.host} ${rank.device} ${rank.state} ${rank.activity}`.toLowerCase().includes(words)
    || String(rank.rank) === words) : ranks.slice();
  const order = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : a < b ? -1 : 1);
  return found.sort((a, b) => (table.down ? -1 : 1) * order(key(a), key(b)) || a.rank - b.rank);
}

function updateRanks(ranks, culprit) {
  table.ranks = ranks;
  table.culprit = culprit;
  const shown = sortedRanks(ranks);
  const body = $("ranks-body");
  while (body.children.length < shown.length) body.append(makeRow());
  while (body.children.length > shown.length) body.lastChild.remove();
  shown.forEach((rank, i) => fillRow(body.children[i], rank, culprit));
  table.focused = Math.max(0, Math.min(table.focused, shown.length - 1));
  [...body.children].forEach((row, i) => { const index = i === table.focused ? 0 : -1; if (row.tabIndex !== index) row.tabIndex = index; });
  for (const head of $("ranks-head").children)
    head.dataset.column === table.sort ? head.setAttribute("aria-sort", table.down ? "descending" : "ascending")
      : head.removeAttribute("aria-sort");
  const running = ranks.filter((rank) => !rank.ended).length;
  setText($("ranks-note"), `${running} of ${ranks.length} running${shown.length < ranks.length ? `, ${shown.length} shown` : ""}`);
  updateCells(ranks, culprit);
}

// One cell a rank, where there are too many for one look at the table.
function updateCells(ranks, culprit) {
  const cells = $("cells");
  show(cells, ranks.length > 8);
  if (ranks.length <= 8) return;
  while (cells.children.length < ranks.length) cells.append(element("i"));
  while (cells.children.length > ranks.length) cells.lastChild.remove();
  ranks.forEach((rank, i) => {
    setClass(cells.children[i], moodOf(rank, culprit));
    const title = `rank ${rank.rank}: ${rank.state}`;
    if (cells.children[i].title !== title) cells.children[i].title = title;
  });
}

function selectRank(rank) {
  table.selected = table.selected === rank ? null : rank;
  updateRanks(table.ranks, table.culprit);
  table.onSelect(table.selected);
}

function focusRow(index) {
  const rows = $("ranks-body").children;
  if (!rows.length) return;
  table.focused = Math.max(0, Math.min(index, rows.length - 1));
  [...rows].forEach((row, i) => { row.tabIndex = i === table.focused ? 0 : -1; });
  rows[table.focused].focus();
}

function setUpRanks(onSelect) {
  table.onSelect = onSelect;
  makeHead();
  $("find").addEventListener("input", () => table.ranks && updateRanks(table.ranks, table.culprit));
  $("cells").addEventListener("click", (event) => {
    const index = [...$("cells").children].indexOf(event.target);
    if (index >= 0) selectRank(table.ranks[index].rank);
  });
  $("ranks-body").addEventListener("keydown", (event) => {
    const index = [...$("ranks-body").children].indexOf(document.activeElement);
    const target = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: 1e9, PageDown: index + 10, PageUp: index - 10 }[event.key];
    if (target !== undefined) { event.preventDefault(); focusRow(target); }
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); selectRank(Number(document.activeElement.dataset.rank)); }
  });
}
