"use strict";
// Draws a timeline when it comes into view: a page may have many of them.

const root = document.documentElement;
const drawn = { timelines: 0, bins: 0, faults: 0, holds: 0, writes: 0, violations: 0 };
// Whoever looks at the page from outside finds here what went wrong, and what was drawn.
addEventListener("error", (event) => { root.dataset.errors = `${root.dataset.errors ?? ""}${event.message}\n`; });

const timelines = new Map();

function timelineOf(figure) {
  if (!timelines.has(figure)) {
    try {
      timelines.set(figure, new Timeline(figure, JSON.parse(document.getElementById(figure.dataset.outcome).textContent)));
    } catch (error) {
      timelines.set(figure, null);
      figure.textContent = `The timeline cannot be drawn: ${error.message}`;
      reportError(error);
    }
  }
  return timelines.get(figure);
}

const figures = [...document.querySelectorAll("figure.timeline")];
const MARGIN = 400;
document.addEventListener("DOMContentLoaded", () => {
  // What the page opens with is there when it has loaded.
  figures.filter((figure) => figure.getBoundingClientRect().top < innerHeight + MARGIN).forEach(timelineOf);
  const coming = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) timelineOf(target);
  }, { rootMargin: `${MARGIN}px` });
  figures.forEach((figure) => coming.observe(figure));
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-at]");
  if (!link) return;
  event.preventDefault();
  const figure = document.getElementById(link.hash.slice(1)), timeline = timelineOf(figure);
  figure.scrollIntoView();
  timeline?.canvas.focus({ preventScroll: true });
  timeline?.jump(Number(link.dataset.at));
});

for (const copy of document.querySelectorAll("button.copy")) {
  copy.hidden = !navigator.clipboard;
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(copy.previousElementSibling.textContent);
    copy.textContent = "copied";
  });
}

const refreshAll = () => timelines.forEach((timeline) => timeline?.refresh());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refreshAll);
addEventListener("beforeprint", () => { root.classList.add("printing"); figures.forEach(timelineOf); refreshAll(); });
addEventListener("afterprint", () => { root.classList.remove("printing"); refreshAll(); });
