// The lanes of a timeline from top to bottom, the items of each in order of time, and their descriptions.

const LOCK_COLOURS = 8;
const ENDINGS = { lost: "lost: the holder was notified", lapsed: "lapsed: its validity ended", crashed: "crashed: the holder was killed", released: "released" };

function endOf({ duration_micros, timeline, faults, violations }) {
  // A fault that never healed must not compress the run.
  const plausible = (micros) => micros <= 2 * duration_micros;
  const times = [timeline.bins.length * timeline.bin_micros, ...violations.map((broken) => broken.at_micros ?? 0),
    ...faults.map((fault) => fault.until_micros), ...timeline.writes.map((write) => write.at_micros)].filter(plausible);
  const holds = timeline.holds.reduce((last, hold) => Math.max(last, hold.until_micros), 0);
  return Math.max(1, duration_micros, plausible(holds) ? holds : 0, ...times);
}

// Overlapping spans get separate rows.
function stacked(spans) {
  const ends = [];
  for (const item of spans) {
    const free = ends.findIndex((end) => end <= item.from);
    item.row = free < 0 ? ends.length : free;
    ends[item.row] = item.until;
  }
  return { items: spans, rows: ends.length };
}

function lanesOf(outcome) {
  const { bins, bin_micros, holds, writes, resources } = outcome.timeline;
  const kinds = kindsOf(outcome);
  const byTime = (a, b) => a.from - b.from;
  const faultsWhere = (affects) => stacked(outcome.faults.filter(affects).map((fault) => (
    { kind: "fault", from: fault.from_micros, until: fault.until_micros, fault, hatch: kinds.indexOf(fault.kind) })).sort(byTime));
  const violations = outcome.violations.filter((broken) => broken.at_micros != null)
    .map((broken) => ({ kind: "violation", from: broken.at_micros, until: broken.at_micros, broken })).sort(byTime);
  const binned = bins.map((bin, n) => ({ kind: "bin", from: n * bin_micros, until: (n + 1) * bin_micros, bin }));
  const rows = clamp(resources.length, 1, LOCK_COLOURS);
  const rowHeight = rows > 5 ? 5 : outcome.workers.length > 6 ? 6 : 9;

  const lanes = [
    { kind: "axis", name: "", height: 30, items: violations },
    { kind: "latency", name: "latency", height: 116, items: binned },
    { kind: "failed", name: "failed", space: 3, height: 18, items: binned.filter(({ bin }) => bin.acquired < bin.tried) },
  ];
  const addNode = (name, faults, space) =>
    lanes.push({ kind: "node", name, space, faults: faults.items, items: faults.items, height: 8 + 18 * Math.max(1, faults.rows) });
  outcome.nodes.forEach((name, node) => addNode(name, faultsWhere((fault) => fault.nodes.includes(node)), node === 0 ? 12 : 0));
  const elsewhere = faultsWhere((fault) => fault.nodes.length + fault.workers.length === 0);
  if (elsewhere.rows > 0) addNode("elsewhere", elsewhere, 0);

  const row = (resource) => resource % rows;
  outcome.workers.forEach((name, worker) => {
    const faults = faultsWhere((fault) => fault.workers.includes(worker));
    const held = holds.filter((hold) => hold.worker === worker).map((hold) => (
      { kind: "hold", from: hold.from_micros, until: hold.until_micros, row: row(hold.resource), hold })).sort(byTime);
    const late = writes.filter((write) => write.worker === worker).map((write) => (
      { kind: "write", from: write.at_micros, until: write.at_micros, row: row(write.resource), write })).sort(byTime);
    lanes.push({
      kind: "worker", name, space: worker === 0 ? 12 : 0, faults: faults.items, held, late, rowHeight, rowsTop: 5 + 18 * faults.rows,
      height: 10 + 18 * faults.rows + rows * rowHeight, items: [...faults.items, ...held, ...late].sort(byTime),
    });
  });
  let top = 0;
  for (const lane of lanes) {
    lane.top = top + (lane.space ?? 0);
    top = lane.top + lane.height + 3;
  }
  return lanes;
}

const kindsOf = (outcome) => [...new Set(outcome.faults.map((fault) => fault.kind))].sort();

// Describes an item, in lines.
function described(item, { workers, timeline: { resources } }) {
  const who = ({ worker }) => workers[worker] ?? `worker ${worker}`;
  const lock = ({ resource }) => resources[resource] ?? `lock ${resource}`;
  switch (item.kind) {
    case "fault": return [item.fault.name, `${item.fault.kind}, ${fromTo(item)}`];
    case "hold": return [`${who(item.hold)} holds ${lock(item.hold)}`, fromTo(item),
      item.hold.fencing_token == null ? "no fencing token" : `fencing token ${item.hold.fencing_token}`, ENDINGS[item.hold.ending] ?? item.hold.ending];
    case "holds": return [`${many(item.items.length, "hold")} of ${[...new Set(item.items.map(({ hold }) => lock(hold)))].join(", ")} by ${who(item.items[0].hold)}`, fromTo(item), "zoom in to see each"];
    case "write": return [`Late write to ${lock(item.write)} ${item.write.refused ? "refused" : "NOT refused"}`, `by ${who(item.write)} at ${at(item.from)}, with fencing token ${item.write.fencing_token}`,
      ...(item.write.refused ? [] : ["A larger token was accepted before."])];
    case "violation": return [`${item.broken.expected ? "Expected violation" : "Violation"}: ${item.broken.check}`, `at ${at(item.from)}`, item.broken.text];
    case "bin": return [fromTo(item), `${many(item.bin.tried, "attempt")}, ${item.bin.tried - item.bin.acquired} failed`,
      ...(item.bin.acquired > 0 ? [`p50 ${span(item.bin.p50_micros)}, p99 ${span(item.bin.p99_micros)}, max ${span(item.bin.max_micros)}`] : [])];
    default: return [];
  }
}
