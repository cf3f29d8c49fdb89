// Colours, hatches and marks, the same on the timeline and in its legend.

const HATCHES = [
  [[-2, 10, 10, -2], [-2, 2, 2, -2], [6, 10, 10, 6]],
  [[-2, -2, 10, 10], [6, -2, 10, 2], [-2, 6, 2, 10]],
  [[4, 0, 4, 8]],
  [[0, 4, 8, 4]],
  [[1, 2, 3, 2], [5, 6, 7, 6]],
  [[0, 0, 8, 8], [0, 8, 8, 0]],
  [[4, 0, 4, 8], [0, 4, 8, 4]],
  [],
];

// Cached: computing a style is slow, and one drawing needs thousands.
const palette = new Map();
function colour(name) {
  if (!palette.has(name)) palette.set(name, getComputedStyle(root).getPropertyValue(`--${name}`).trim());
  return palette.get(name);
}

const MARKS = {
  lost: (c, x, y) => disc(c, x, y, 3, colour("ink")),
  lapsed: (c, x, y) => { disc(c, x, y, 3, colour("ink")); disc(c, x, y, 1.6, colour("paper"), false); },
  crashed: (c, x, y) => outlined(c, colour("ink"), [[x - 3, y - 3], [x + 3, y - 3], [x + 3, y + 3], [x - 3, y + 3]]),
  refused: (c, x, y) => cross(c, x, y),
  unrefused: (c, x, y) => outlined(c, colour("bad"), [[x, y - 7], [x + 7, y + 5], [x - 7, y + 5]]),
  violation: (c, x, y) => outlined(c, colour("bad"), [[x - 6, y - 5], [x + 6, y - 5], [x, y + 5]]),
  expected: (c, x, y) => { outlined(c, colour("soft"), [[x - 6, y - 5], [x + 6, y - 5], [x, y + 5]]); disc(c, x, y - 2, 1.8, colour("paper"), false); },
};

function outlined(c, fill, points) {
  c.beginPath();
  points.forEach(([x, y]) => c.lineTo(x, y));
  c.closePath();
  halo(c);
  c.fillStyle = fill;
  c.fill();
}

function disc(c, x, y, radius, fill, withHalo = true) {
  c.beginPath();
  c.arc(x, y, radius, 0, 2 * Math.PI);
  if (withHalo) halo(c);
  c.fillStyle = fill;
  c.fill();
}

function cross(c, x, y) {
  c.beginPath();
  for (const [dx, dy] of [[3.5, 3.5], [3.5, -3.5]]) { c.moveTo(x - dx, y - dy); c.lineTo(x + dx, y + dy); }
  halo(c, 4.5);
  c.strokeStyle = colour("ink");
  c.lineWidth = 1.8;
  c.stroke();
}

function halo(c, width = 2.5) {
  c.strokeStyle = colour("paper");
  c.lineWidth = width;
  c.stroke();
}

function hatched(c, hatch, x, y, width, height) {
  const tile = element("canvas", { width: 8, height: 8 }), t = tile.getContext("2d");
  t.fillStyle = colour("fault-pale");
  t.fillRect(0, 0, 8, 8);
  t.strokeStyle = colour("fault");
  t.globalAlpha = 0.6;
  for (const [x0, y0, x1, y1] of HATCHES[hatch % HATCHES.length]) { t.beginPath(); t.moveTo(x0, y0); t.lineTo(x1, y1); t.stroke(); }
  c.fillStyle = c.createPattern(tile, "repeat");
  c.fillRect(x, y, width, height);
  c.strokeStyle = colour("fault");
  c.lineWidth = 1;
  c.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1);
}

function fitted(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 2 && c.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return length > 2 ? `${text.slice(0, length).trimEnd()}…` : "";
}

function sharp(canvas, width, height) {
  const scale = root.classList.contains("printing") ? 3 : devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  return c;
}
