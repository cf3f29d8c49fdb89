"use strict";
// Elements and figures that all parts of the page use. Times are microseconds since the run began.

const root = document.documentElement;
// Tests read from the root element which errors occurred and what was drawn.
const drawn = { timelines: 0, bins: 0, faults: 0, holds: 0, writes: 0, violations: 0 };
addEventListener("error", (event) => { root.dataset.errors = `${root.dataset.errors ?? ""}${event.message}\n`; });

// A string in place of the properties is the class. Text is never parsed as HTML.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(typeof properties === "string" ? { className: properties } : properties)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.flat(Infinity).filter((child) => child != null));
  return made;
}

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const count = (number) => number.toLocaleString("en");
const many = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const at = (micros) => `${(micros / 1e6).toFixed(3)} s`;
const fromTo = ({ from, until }) => `${at(from)} to ${at(until)}, ${span(until - from)}`;

function span(micros) {
  const [value, unit] = micros < 1e3 ? [micros, "µs"] : micros < 1e6 ? [micros / 1e3, "ms"] : [micros / 1e6, "s"];
  return `${value < 100 && unit !== "µs" ? value.toPrecision(3) : count(Math.round(value))} ${unit}`;
}

// Rounded down: only all of them are 100%.
const share = (part, whole) => (part === whole ? "100%" : `${(Math.floor((part * 1e4) / whole) / 100).toFixed(2)}%`);
