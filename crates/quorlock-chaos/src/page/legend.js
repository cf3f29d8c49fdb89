// The legend of a timeline: the colours, hatches and marks that occur in it.

function legendOf(outcome) {
  const { violations, timeline: { resources, holds, writes } } = outcome;
  const bar = (name) => (c) => { c.fillStyle = colour(name); c.fillRect(0, 4, 24, 6); };
  const marks = [
    ...["lost", "lapsed", "crashed"].map((ending) => [ending, ENDINGS[ending], holds.some((hold) => hold.ending === ending)]),
    ["refused", "late write, refused", writes.some((write) => write.refused)],
    ["unrefused", "late write, NOT refused", writes.some((write) => !write.refused)],
    ["violation", "violation", violations.some((broken) => !broken.expected)],
    ["expected", "violation, as expected", violations.some((broken) => broken.expected)],
  ];
  const groups = {
    latency: [
      ["p50 to p99 of uncontended locks", (c) => {
        c.fillStyle = colour("latency-pale"); c.fillRect(0, 2, 24, 10);
        c.fillStyle = colour("latency"); c.fillRect(0, 2, 24, 1); c.fillRect(0, 10, 24, 2);
      }],
    ],
    failed: [
      ["share of their attempts that failed", (c) => { c.fillStyle = colour("bad"); c.fillRect(7, 9, 4, 5); c.fillRect(13, 2, 4, 12); }],
    ],
    faults: kindsOf(outcome).map((kind, n) => [kind, (c) => hatched(c, n, 0, 0, 24, 14)]),
    holds: resources.slice(0, LOCK_COLOURS).map((name, n) => [name, bar(`lock-${n}`)]),
    marks: marks.filter(([, , present]) => present).map(([mark, text]) => [text, (c) => MARKS[mark](c, 12, 7)]),
  };
  if (resources.length > LOCK_COLOURS) groups.holds.push([`${many(resources.length - LOCK_COLOURS, "lock")} more, in the same colours`, () => {}]);
  return Object.entries(groups).filter(([, entries]) => entries.length > 0).flatMap(([name, entries]) => [
    element("dt", { textContent: name }),
    element("dd", {}, ...entries.map(([text, draw]) => {
      const swatch = element("canvas");
      draw(sharp(swatch, 24, 14));
      return element("span", {}, swatch, text);
    })),
  ]);
}
