"use strict";
// Small helpers. No text from a job ever becomes HTML: elements are made, and get text.

const $ = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "text", "circle"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Writes only what has changed: with hundreds of ranks that is most of the speed.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

const DASH = "–";

function formatNumber(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e6) return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 });
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size >= 100) return value.toFixed(0);
  if (size >= 0.001) return String(Number(value.toPrecision(4)));
  return value.toExponential(2);
}

// JSON has no NaN: a reported value that is not finite comes as null. It must not look like one that is missing.
const isNaNValue = (value) => value === null;
const formatValue = (value) => (isNaNValue(value) ? "NaN" : formatNumber(value));

const formatWhole = (value) => (value === null || value === undefined ? DASH : value.toLocaleString("en"));
const formatPercent = (value) => (value === null || value === undefined ? DASH : `${Math.round(100 * value)} %`);

function formatBytes(value) {
  if (value === null || value === undefined) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; ++unit; }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function formatSeconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 120) return `${minutes} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function formatClock(seconds) {
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  return `${two(seconds / 3600)}:${two((seconds / 60) % 60)}:${two(seconds % 60)}`;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function showTip(text, x, y) {
  const tip = $("tip");
  setText(tip, text);
  show(tip, true);
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 4))}px`;
}

const hideTip = () => show($("tip"), false);
