// Builds the page from the outcomes embedded in it. A timeline is drawn when it comes into view: a page may have many.

// Control characters are not shown, nor those that change the direction of text: a sentence could read as its opposite.
const HIDDEN = /[^\P{Cc}\n\t]|[\u2028-\u202e\u2066-\u2069]/gu;
const outcomes = JSON.parse(document.getElementById("outcomes").textContent,
  (_, value) => (typeof value === "string" ? value.replace(HIDDEN, "\ufffd") : value));
document.querySelector("main").before(overview(outcomes));
document.querySelector("main").append(...outcomes.map(section));

const timelines = new Map();
const timelineFigures = [...document.querySelectorAll("figure.timeline")];

function timelineOf(figure) {
  if (!timelines.has(figure)) {
    try {
      timelines.set(figure, new Timeline(figure, outcomes[timelineFigures.indexOf(figure)]));
    } catch (error) {
      timelines.set(figure, null);
      figure.textContent = `The timeline cannot be drawn: ${error.message}`;
      reportError(error);
    }
  }
  return timelines.get(figure);
}

const MARGIN = 400;
document.addEventListener("DOMContentLoaded", () => {
  // The timelines in the first window are complete when the page has loaded.
  timelineFigures.filter((figure) => figure.getBoundingClientRect().top < innerHeight + MARGIN).forEach(timelineOf);
  const coming = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) timelineOf(target);
  }, { rootMargin: `${MARGIN}px` });
  timelineFigures.forEach((figure) => coming.observe(figure));
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

const refreshAll = () => timelines.forEach((timeline) => timeline?.refresh());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refreshAll);
addEventListener("beforeprint", () => { root.classList.add("printing"); timelineFigures.forEach(timelineOf); refreshAll(); });
addEventListener("afterprint", () => { root.classList.remove("printing"); refreshAll(); });
