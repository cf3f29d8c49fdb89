// One timeline. x and y are CSS pixels.

const SHORTEST_WINDOW = 1000;
const HINT = "Drag to zoom in, drag with Shift to move. The wheel zooms with Ctrl, or once the timeline is focused. "
  + "Keys: arrows choose the next item, + and − zoom, 0 shows the whole run.";

class Timeline {
  constructor(figure, outcome) {
    Object.assign(this, { figure, outcome, lanes: lanesOf(outcome), end: endOf(outcome), chosen: null, dragged: null });
    [this.from, this.until] = [0, this.end];
    const last = this.lanes.at(-1);
    this.height = last.top + last.height + 4;
    this.canvas = element("canvas", { className: "lanes", tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Timeline of ${outcome.scenario}: ${many(outcome.faults.length, "fault")}, `
      + `${many(outcome.timeline.holds.length, "hold")}, ${many(outcome.violations.length, "violation")}. Arrow keys choose the next item.`);
    this.tip = element("div", { className: "tip", hidden: true, role: "status" });
    this.window = element("span", { className: "window" });
    this.legend = element("dl", { className: "legend" });
    const button = (text, label, click) => element("button", { type: "button", textContent: text, title: label, ariaLabel: label, onclick: click });
    const { holds, holds_in_all: inAll } = outcome.timeline;
    figure.replaceChildren(
      element("div", { className: "tools" }, this.window,
        button("←", "Earlier", () => this.pan(-0.4)), button("→", "Later", () => this.pan(0.4)),
        button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)),
        button("whole run", "Show the whole run", () => this.show(0, this.end))),
      this.canvas, this.tip, this.legend,
      element("figcaption", {},
        holds.length < inAll ? `${holds.length.toLocaleString("en")} of ${many(inAll, "hold")} are drawn. ` : "",
        element("span", { className: "hint", textContent: HINT })));
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(figure);
    this.refresh();
    drawn.timelines += 1;
    drawn.bins += outcome.timeline.bins.length;
    drawn.faults += outcome.faults.length;
    drawn.holds += holds.length;
    drawn.writes += outcome.timeline.writes.length;
    drawn.violations += this.lanes[0].items.length;
    root.dataset.drawn = JSON.stringify(drawn);
  }

  x(time) { return this.gutter + ((time - this.from) / (this.until - this.from)) * this.plot; }
  time(x) { return this.from + ((x - this.gutter) / this.plot) * (this.until - this.from); }
  visible(items) { return items.filter((item) => item.until >= this.from && item.from <= this.until); }
  paint(name) { this.c.fillStyle = colour(name); }

  // Draws everything again, for example after a change of colours.
  refresh() {
    palette.clear();
    this.draw();
    this.legend.replaceChildren(...legendOf(this.outcome));
  }

  redraw() {
    this.pending ??= requestAnimationFrame(() => { this.pending = null; this.draw(); });
  }

  draw() {
    this.width = root.classList.contains("printing") ? 760 : Math.max(this.figure.clientWidth, 200);
    this.c = sharp(this.canvas, this.width, this.height);
    this.canvas.style.height = `${this.height}px`;
    const c = this.c;
    this.font = getComputedStyle(root).fontFamily;
    c.font = `12px ${this.font}`;
    const widest = Math.max(...this.lanes.map((lane) => c.measureText(lane.name).width));
    this.gutter = Math.ceil(clamp(widest + 12, 56, Math.max(64, this.width * 0.18)));
    this.plot = this.width - this.gutter;
    this.paint("paper");
    c.fillRect(0, 0, this.width, this.height);
    this.drawNames();
    this.drawLatency(this.lanes[1]);
    c.save();
    c.beginPath();
    c.rect(this.gutter, 0, this.plot, this.height);
    c.clip();
    this.drawTime();
    this.drawFailed(this.lanes[2]);
    const [faulty, working] = [this.lanes.filter((lane) => lane.faults), this.lanes.filter((lane) => lane.held)];
    working.forEach((lane) => this.drawHolds(lane));
    faulty.forEach((lane) => this.drawFaults(lane));
    // Names and marks are drawn over the lines that cross all lanes.
    this.drawViolations();
    faulty.forEach((lane) => this.drawFaultNames(lane));
    working.forEach((lane) => this.drawMarks(lane));
    this.drawSelection();
    c.restore();
    this.window.textContent = `${at(this.from)} to ${at(this.until)}`;
  }

  drawNames() {
    const c = this.c;
    for (const lane of this.lanes.slice(1)) {
      this.paint("panel");
      c.fillRect(this.gutter, lane.top, this.plot, lane.height);
      this.paint("soft");
      c.textBaseline = "middle";
      c.fillText(fitted(c, lane.name, this.gutter - 8), 0, lane.top + (lane.kind === "latency" ? 10 : Math.min(lane.height / 2, 14)));
    }
  }

  drawTime() {
    const c = this.c, room = (this.until - this.from) / (this.plot / 84);
    const power = 10 ** Math.floor(Math.log10(room));
    const step = power * [1, 2, 5, 10].find((times) => times * power >= room);
    const digits = clamp(Math.ceil(6 - Math.log10(step) - 1e-9), 0, 6);
    c.textBaseline = "alphabetic";
    for (let time = Math.ceil(this.from / step) * step; time <= this.until; time += step) {
      const x = Math.round(this.x(time)) + 0.5, text = `${(time / 1e6).toFixed(digits)} s`, width = c.measureText(text).width;
      this.paint("rule");
      c.fillRect(x - 0.5, 14, 1, this.height);
      this.paint("soft");
      c.fillText(text, clamp(x - width / 2, this.gutter, this.width - width), 11);
    }
    if (this.until - this.from < this.end) {
      this.paint("soft");
      c.fillRect(this.gutter + (this.from / this.end) * this.plot, 26, Math.max(((this.until - this.from) / this.end) * this.plot, 6), 3);
    }
  }

  drawLatency(lane) {
    const c = this.c, known = lane.items.filter(({ bin }) => bin.acquired > 0);
    if (known.length === 0) return;
    const low = Math.floor(Math.log10(Math.max(1, Math.min(...known.map(({ bin }) => bin.p50_micros)))));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...known.map(({ bin }) => bin.p99_micros), 2))));
    const [floor, ceiling] = [lane.top + lane.height - 6, lane.top + 24];
    const y = (micros) => floor - ((Math.log10(Math.max(micros, 1)) - low) / (high - low)) * (floor - ceiling);
    c.font = `11px ${this.font}`;
    c.textAlign = "right";
    for (let power = low; power <= high; power += 1) {
      const height = y(10 ** power), text = power < 3 ? `${10 ** power} µs` : power < 6 ? `${10 ** (power - 3)} ms` : `${10 ** (power - 6)} s`;
      this.paint("rule");
      c.fillRect(this.gutter, Math.round(height), this.plot, 1);
      this.paint("soft");
      c.fillText(text, this.gutter - 6, height);
    }
    c.textAlign = "left";
    for (const { from, until, bin } of this.visible(known)) {
      const x = Math.max(this.x(from), this.gutter), width = this.x(until) - x;
      this.paint("latency-pale");
      c.fillRect(x, y(bin.p99_micros), width, y(bin.p50_micros) - y(bin.p99_micros));
      this.paint("latency");
      c.fillRect(x, y(bin.p50_micros) - 1, width + 0.5, 2);
      c.fillRect(x, y(bin.p99_micros) - 0.5, width + 0.5, 1);
    }
  }

  drawFailed(lane) {
    this.paint("bad");
    for (const { from, until, bin } of this.visible(lane.items)) {
      const height = Math.max(3, (1 - bin.acquired / bin.tried) * (lane.height - 4));
      this.c.fillRect(this.x(from), lane.top + lane.height - 2 - height, Math.max(this.x(until) - this.x(from), 1.5), height);
    }
  }

  // The rectangle of a fault's bar.
  barOf(lane, item) {
    const x = Math.max(this.x(item.from), this.gutter - 2);
    return { x, y: lane.top + 4 + 18 * item.row, width: Math.max(Math.min(this.x(item.until), this.width + 2) - x, 3) };
  }

  drawFaults(lane) {
    for (const item of this.visible(lane.faults)) {
      const { x, y, width } = this.barOf(lane, item);
      hatched(this.c, item.hatch, x, y, width, 16);
    }
  }

  // A name that does not fit into its bar is drawn after it, if there is room before the next one.
  drawFaultNames(lane) {
    const c = this.c, faults = this.visible(lane.faults);
    c.font = `11px ${this.font}`;
    c.textBaseline = "middle";
    for (const item of faults) {
      const { x, y, width } = this.barOf(lane, item), { kind, name, nodes, workers } = item.fault;
      const short = (lane.held ? workers : nodes).length === 1 && name.startsWith(`${lane.name} `) ? name.slice(lane.name.length + 1) : name;
      const next = faults.find((other) => other.row === item.row && other.from >= item.until && other !== item);
      const behind = Math.min(next ? this.x(next.from) : Infinity, this.width) - (x + width) - 12;
      const inside = width - 10, fits = (text, room) => c.measureText(text).width <= room;
      const text = [short, kind].find((words) => fits(words, Math.max(inside, behind))) ?? fitted(c, short, Math.max(inside, behind));
      if (fits(text, inside)) this.label(text, x + 5, y + 8.5, "fault-pale");
      else this.label(text, x + width + 5, y + 8.5, "panel");
    }
  }

  drawHolds(lane) {
    this.paint("fault-veil");
    for (const { from, until } of this.visible(lane.faults)) this.c.fillRect(this.x(from), lane.top, this.x(until) - this.x(from), lane.height);
    const held = this.visible(lane.held), crowded = held.length > this.plot;
    for (let row = 0; row < LOCK_COLOURS; row += 1) {
      const items = held.filter((item) => item.row === row), y = lane.top + lane.rowsTop + row * lane.rowHeight + 1;
      this.paint(`lock-${row}`);
      if (crowded) this.drawDensity(items, y, lane.rowHeight - 2);
      else for (const { from, until } of items) this.c.fillRect(this.x(from), y, Math.max(this.x(until) - this.x(from), 1), lane.rowHeight - 2);
    }
  }

  drawMarks(lane) {
    const marked = [
      ...this.visible(lane.held).filter(({ hold }) => hold.ending !== "released").map((item) => [item.hold.ending, item.until, item.row]),
      ...this.visible(lane.late).map((item) => [item.write.refused ? "refused" : "unrefused", item.from, item.row])];
    // Unrefused late writes are drawn on top.
    marked.sort(([a], [b]) => (a === "unrefused") - (b === "unrefused"));
    for (const [mark, time, row] of marked) MARKS[mark]?.(this.c, this.x(time), lane.top + lane.rowsTop + (row + 0.5) * lane.rowHeight);
  }

  // Draws the share of each pixel's time in which the lock was held.
  drawDensity(items, y, height) {
    const share = new Float32Array(Math.ceil(this.plot) + 1);
    for (const { from, until } of items) {
      const [x0, x1] = [Math.max(this.x(from) - this.gutter, 0), Math.min(this.x(until) - this.gutter, this.plot)];
      for (let x = Math.floor(x0); x <= x1; x += 1) share[x] += Math.min(x1, x + 1) - Math.max(x0, x);
    }
    share.forEach((held, x) => {
      if (held === 0) return;
      this.c.globalAlpha = 0.15 + 0.85 * Math.min(held, 1);
      this.c.fillRect(this.gutter + x, y, 1, height);
    });
    this.c.globalAlpha = 1;
  }

  drawViolations() {
    const c = this.c, violations = this.visible(this.lanes[0].items);
    for (const item of violations.sort((a, b) => b.broken.expected - a.broken.expected)) {
      const x = this.x(item.from), mark = item.broken.expected ? "expected" : "violation";
      c.strokeStyle = colour(item.broken.expected ? "soft" : "bad");
      c.lineWidth = 1.5;
      c.setLineDash(item.broken.expected ? [3, 4] : []);
      c.beginPath();
      c.moveTo(x, 22);
      c.lineTo(x, this.height);
      c.stroke();
      c.setLineDash([]);
      MARKS[mark](c, x, 21);
    }
  }

  drawSelection() {
    const c = this.c;
    if (this.chosen) {
      // Through all lanes, to show what else happened meanwhile.
      const { item, lane } = this.chosen, x = this.x(item.from) - 1, width = Math.max(this.x(item.until) - x, 1) + 1;
      c.globalAlpha = 0.12;
      this.paint("ink");
      c.fillRect(x, 14, width, this.height);
      c.globalAlpha = 1;
      c.strokeStyle = colour("ink");
      c.lineWidth = 1.5;
      if (item.kind === "fault") c.strokeRect(x, lane.top + 3 + 18 * item.row, width + 1, 18);
      else if (lane.held) c.strokeRect(x - 1, lane.top + lane.rowsTop + item.row * lane.rowHeight - 1, width + 2, lane.rowHeight + 2);
    }
    if (this.dragged && !this.dragged.pans) {
      c.globalAlpha = 0.2;
      this.paint("link");
      c.fillRect(this.dragged.from, 14, this.dragged.to - this.dragged.from, this.height);
      c.globalAlpha = 1;
    }
  }

  label(text, x, y, ground) {
    this.c.strokeStyle = colour(ground);
    this.c.lineWidth = 4;
    this.c.lineJoin = "round";
    this.c.strokeText(text, x, y);
    this.paint("ink");
    this.c.fillText(text, x, y);
  }

  // -- Moving about.

  show(from, until) {
    const length = clamp(until - from, Math.min(SHORTEST_WINDOW, this.end), this.end);
    this.from = clamp((from + until - length) / 2, 0, this.end - length);
    this.until = this.from + length;
    this.redraw();
  }

  zoom(times, around = this.chosen?.item.from ?? (this.from + this.until) / 2) {
    const fixed = clamp(around, this.from, this.until);
    this.show(fixed - (fixed - this.from) * times, fixed + (this.until - fixed) * times);
  }

  pan(share) {
    const by = clamp(share * (this.until - this.from), -this.from, this.end - this.until);
    this.show(this.from + by, this.until + by);
  }

  jump(time) {
    const item = this.lanes[0].items.find(({ from }) => from === time);
    this.show(time - this.end / 60, time + this.end / 60);
    if (item) this.choose({ item, lane: this.lanes[0] });
  }

  // The item at a point: small items first, since large ones are easy to hit elsewhere.
  itemAt(x, y) {
    const lane = this.lanes.find(({ top, height }) => y >= top && y < top + height);
    if (!lane || x < this.gutter) return null;
    const near = (item, reach) => this.x(item.until) >= x - reach && this.x(item.from) <= x + reach;
    const inRow = ({ row }) => Math.floor((y - lane.top - lane.rowsTop) / lane.rowHeight) === row;
    const violation = this.lanes[0].items.find((item) => near(item, 4));
    const write = lane.late?.find((item) => near(item, 6) && inRow(item));
    const ended = lane.held?.find((item) => item.hold.ending !== "released" && Math.abs(this.x(item.until) - x) < 5 && inRow(item));
    const held = lane.held?.filter((item) => near(item, 1.5) && inRow(item)) ?? [];
    const several = held.length > 1 ? { kind: "holds", items: held, row: held[0].row, from: held[0].from, until: held.at(-1).until } : held[0];
    const fault = lane.faults?.find((item) => near(item, 2) && Math.floor((y - lane.top - 4) / 18) === item.row);
    const bin = lane.held || lane.faults ? undefined : lane.items.find((item) => near(item, 0));
    const item = write ?? ended ?? several ?? violation ?? fault ?? bin;
    return item ? { item, lane } : null;
  }

  choose(chosen, pointer) {
    this.chosen = chosen;
    this.tip.hidden = !chosen;
    if (chosen) {
      const { item, lane } = chosen;
      this.tip.replaceChildren(...described(item, this.outcome).map((line) => element("p", { textContent: line })));
      const x = pointer?.x ?? clamp(this.x((item.from + item.until) / 2), this.gutter, this.width);
      const y = this.canvas.offsetTop + (pointer?.y ?? lane.top + Math.min(lane.height, 30));
      this.tip.style.top = `${y + 16}px`;
      this.tip.style.left = "0";
      this.tip.style.left = `${clamp(x + 12 + this.tip.offsetWidth > this.width ? x - 12 - this.tip.offsetWidth : x + 12, 0, Math.max(this.width - this.tip.offsetWidth, 0))}px`;
    }
    this.redraw();
  }

  step(by) {
    const lane = this.chosen?.lane ?? this.lanes.find(({ items }) => items.length > 0);
    if (!lane) return;
    const here = lane.items.indexOf(this.chosen?.item);
    const next = here < 0 ? Math.max(lane.items.findIndex(({ from }) => from >= this.from), 0) : clamp(here + by, 0, lane.items.length - 1);
    this.reveal(lane, lane.items[next]);
  }

  changeLane(by) {
    const lanes = this.lanes.filter(({ items }) => items.length > 0);
    if (lanes.length === 0) return;
    const lane = lanes[clamp(lanes.indexOf(this.chosen?.lane) + by, 0, lanes.length - 1)];
    const time = this.chosen?.item.from ?? this.from;
    const away = ({ from, until }) => Math.max(from - time, time - until, 0);
    this.reveal(lane, lane.items.reduce((best, item) => (away(item) < away(best) ? item : best)));
  }

  reveal(lane, item) {
    if (item.from < this.from || item.from > this.until) {
      const half = (this.until - this.from) / 2;
      this.show(item.from - half, item.from + half);
    }
    this.choose({ item, lane });
  }

  listen() {
    const { canvas } = this, keys = {
      ArrowLeft: (event) => (event.shiftKey ? this.pan(-0.25) : this.step(-1)), ArrowRight: (event) => (event.shiftKey ? this.pan(0.25) : this.step(1)),
      ArrowUp: () => this.changeLane(-1), ArrowDown: () => this.changeLane(1),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show(0, this.end), Escape: () => this.choose(null),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key](event);
    });
    canvas.addEventListener("wheel", (event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const whole = this.until - this.from >= this.end;
      if (sideways ? whole : !(event.ctrlKey || event.metaKey || document.activeElement === canvas) || (whole && event.deltaY > 0)) return;
      event.preventDefault();
      if (sideways) this.pan((event.deltaX || event.deltaY) / this.plot);
      else this.zoom(2 ** (clamp(event.deltaY, -200, 200) / 200), this.time(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button > 1 || event.offsetX < this.gutter) return;
      canvas.setPointerCapture(event.pointerId);
      this.dragged = { from: event.offsetX, to: event.offsetX, last: event.offsetX, pans: event.shiftKey || event.button === 1 || event.pointerType === "touch" };
    });
    canvas.addEventListener("pointermove", (event) => {
      const { dragged } = this;
      if (!dragged) return this.choose(this.itemAt(event.offsetX, event.offsetY), { x: event.offsetX, y: event.offsetY });
      if (dragged.pans) this.pan((dragged.last - event.offsetX) / this.plot);
      dragged.last = event.offsetX;
      dragged.to = clamp(event.offsetX, this.gutter, this.width);
      this.redraw();
    });
    canvas.addEventListener("pointerup", (event) => {
      const { dragged } = this;
      this.dragged = null;
      if (!dragged) return;
      const [from, until] = [dragged.from, dragged.to].sort((a, b) => a - b).map((x) => this.time(x));
      if (Math.abs(dragged.to - dragged.from) < 5) this.choose(this.itemAt(event.offsetX, event.offsetY), { x: event.offsetX, y: event.offsetY });
      else if (!dragged.pans) this.show(from, until);
      this.redraw();
    });
    canvas.addEventListener("pointercancel", () => { this.dragged = null; this.redraw(); });
    canvas.addEventListener("pointerleave", () => { if (!this.dragged) this.choose(null); });
    canvas.addEventListener("blur", () => this.choose(null));
    canvas.addEventListener("dblclick", () => this.show(0, this.end));
  }
}
