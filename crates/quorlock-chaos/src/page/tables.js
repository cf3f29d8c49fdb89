// The verdicts and tables of the page: an overview, and a section for each scenario.

const LISTED_VIOLATIONS = 5;
const heading = (text, properties = {}) => element("th", { scope: "col", textContent: text, ...properties });
const headings = (...texts) => texts.map((text) => heading(text, { className: "figure" }));
const group = (text, colSpan) => heading(text, { className: "group", scope: "colgroup", colSpan });
const figure = (text, label) => element("td", label ? { className: "figure", "data-label": label } : "figure", text);
const minorityOf = ({ nodes }) => Math.max(0, Math.floor((nodes.length - 1) / 2));

// Without an acquisition there is no latency, which is not the same as a latency of 0.
const quantile = ({ acquired }, micros) => (acquired === 0 ? "–" : span(micros));
const success = ({ acquired, tried }) => (tried === 0 ? "–" : share(acquired, tried));

function figures({ tried, acquired, p50_micros, p99_micros }) {
  const latency = { tried, acquired };
  return [element("td", acquired < tried ? "figure short" : "figure", success(latency)),
    figure(quantile(latency, p50_micros)), figure(quantile(latency, p99_micros))];
}

// A wide table scrolls sideways, also by keyboard.
function table(name, head, rows) {
  return element("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: name }, element("table", {},
    element("thead", {}, head.map((cells) => element("tr", {}, cells))),
    element("tbody", {}, rows.map((cells) => element("tr", {}, cells)))));
}

function badge(passed) {
  return element("span", passed ? "badge held" : "badge failed", element("span", { ariaHidden: true }, passed ? "✓" : "✗"), passed ? " held" : " failed");
}

// How many violations there are, and whether the scenario expects them.
function violationsOf({ violations, violations_in_all: all }) {
  const listed = violations.length, unexpected = violations.filter(({ expected }) => !expected).length;
  if (all === 0) return ["calm", "none"];
  if (unexpected === 0) return ["expected", listed < all ? `${count(all)} found; the first ${count(listed)} as expected` : `${count(all)} found, as expected`];
  if (unexpected === all) return ["alarm", `${count(all)} unexpected`];
  return ["alarm", `${listed < all ? "at least " : ""}${count(unexpected)} of ${count(all)} unexpected`];
}

function headlineOf(outcomes) {
  const failed = outcomes.filter(({ passed }) => !passed).length;
  if (outcomes.length === 0) return "Nothing was run";
  if (failed > 0) return outcomes.length === 1 ? "The scenario failed" : `${count(failed)} of ${count(outcomes.length)} scenarios failed`;
  return outcomes.some(({ verdicts }) => verdicts.length > 0) ? "All expectations held" : "Nothing was expected";
}

function overview(outcomes) {
  const headline = headlineOf(outcomes), verdicts = outcomes.flatMap((outcome) => outcome.verdicts);
  const [first] = outcomes, alike = first && outcomes.every(({ nodes }) => nodes.length === first.nodes.length);
  document.title = `${headline} – quorlock-chaos`;
  return element("header", { className: "overview", id: "top" },
    element("p", "program", "quorlock-chaos"),
    element("h1", headline === "All expectations held" ? "held" : "failed", headline),
    element("p", "totals", `${count(verdicts.filter(({ held }) => held).length)} of ${many(verdicts.length, "expectation")} held in ${many(outcomes.length, "scenario")}: `
      + `${many(sum(outcomes.map(({ seen }) => seen.holds)), "acquisition")} in ${span(sum(outcomes.map((outcome) => outcome.duration_micros)))}, `
      + `with ${many(sum(outcomes.map(({ faults }) => faults.length)), "fault")} and ${many(sum(outcomes.map((outcome) => outcome.violations_in_all)), "violation")}.`),
    element("table", "scenarios",
      element("thead", {},
        element("tr", {}, ["Scenario", "Verdict", "Violations"].map((text) => heading(text, { rowSpan: 2 })),
          group(alike ? `While ≤ ${minorityOf(first)} of ${many(first.nodes.length, "node")} are faulty` : "While fewer than half of the nodes are faulty", 2),
          ["Acquisitions", "Faults"].map((text) => heading(text, { rowSpan: 2, className: "figure" }))),
        element("tr", {}, headings("success", "highest p99"))),
      element("tbody", {}, outcomes.map(overviewRow))));
}

function overviewRow(outcome, index) {
  const [mood, violations] = violationsOf(outcome);
  // Quantiles cannot be added up: the highest of the phases stands for all.
  const phases = outcome.phases.filter((phase) => phase.faulty_nodes <= minorityOf(outcome)).map(({ latency }) => latency);
  const total = { tried: sum(phases.map(({ tried }) => tried)), acquired: sum(phases.map(({ acquired }) => acquired)) };
  return element("tr", outcome.passed ? "held" : "failed",
    element("th", { scope: "row" }, element("a", { href: `#scenario-${index + 1}` }, outcome.scenario)),
    element("td", {}, badge(outcome.passed)),
    element("td", { className: mood, "data-label": "violations" }, violations),
    figure(success(total), "success"),
    figure(quantile(total, Math.max(0, ...phases.map(({ p99_micros }) => p99_micros))), "p99"),
    figure(count(outcome.seen.holds), "acquisitions"),
    figure(count(outcome.faults.length), "faults"));
}

// Sections are numbered: the same scenario may have been run twice.
function section(outcome, index) {
  const id = index + 1, { phases, around, places, faults } = outcome, minority = minorityOf(outcome);
  const phaseRow = ({ faulty_nodes: faulty, lasted_micros: lasted, latency }) => [
    element("th", { scope: "row" }, count(faulty), faulty > minority ? element("span", "note", " no majority") : null),
    figure(span(lasted)), figure(count(latency.tried)), figures(latency), figure(quantile(latency, latency.max_micros))];
  const aroundRow = ({ kind, faults: times, before, during, after }) => [
    element("th", { scope: "row" }, `${kind} `, element("span", "note", `× ${count(times)}`)), [before, during, after].flatMap(figures)];
  const placeRow = ({ worker, quorum_round_trip_micros: quorum, longest_round_trip_micros: longest, latency }) => [
    element("th", { scope: "row" }, worker), figure(span(quorum)), figure(span(longest)), figure(count(latency.tried)), figures(latency)];
  const faultRow = ({ kind, name, from_micros: from, until_micros: until }) => [
    figure(at(from)), figure(span(Math.max(0, until - from))), element("td", {}, kind), element("td", {}, name)];
  return element("section", { className: "scenario", id: `scenario-${id}`, "aria-labelledby": `name-${id}` },
    element("header", {}, element("p", "verdict", badge(outcome.passed)), element("h2", { id: `name-${id}` }, outcome.scenario), element("p", "summary", outcome.summary)),
    element("div", "columns",
      element("div", {}, element("h3", {}, "Expectations"), element("ul", "expectations", outcome.verdicts.map(expectation))),
      element("dl", "facts", facts(outcome))),
    element("h3", {}, "Violations"), violationList(outcome, id),
    element("h3", {}, "Timeline"), element("figure", { className: "timeline", id: `timeline-${id}` }),
    element("div", "columns",
      element("div", {}, element("h3", {}, "Latency by number of faulty nodes"), phases.length === 0 ? element("p", "note", "Nothing was measured.")
        : table("Latency by number of faulty nodes", [[heading("Faulty nodes"), headings("lasted", "tried", "success", "p50", "p99", "max")]], phases.map(phaseRow))),
      element("div", "around", element("h3", {}, "Latency around faults"), around.length === 0 ? element("p", "note", "There was no fault.")
        : table("Latency around faults", [[heading("Fault", { rowSpan: 2 }), ["before", "during", "after"].map((text) => group(text, 3))],
          [1, 2, 3].flatMap(() => headings("success", "p50", "p99"))], around.map(aroundRow)))),
    places.length === 0 ? null : [element("h3", {}, "Latency by place"),
      table("Latency by place", [[heading("Worker"), headings("round trip to a quorum", "to the farthest node", "tried", "success", "p50", "p99")]], places.map(placeRow))],
    faults.length === 0 ? null : element("details", "faults", element("summary", {}, `${many(faults.length, "fault")}, one by one`),
      table("Faults", [[headings("at", "lasted"), heading("kind"), heading("what")]], faults.map(faultRow))),
    element("p", "back", element("a", { href: "#top" }, "↑ all scenarios")));
}

function expectation({ expectation: text, held, evidence }) {
  return element("li", held ? "held" : "failed", element("span", { className: "sign", role: "img", ariaLabel: held ? "held" : "failed" }, held ? "✓" : "✗"),
    element("span", "expectation", text), element("span", "evidence", evidence));
}

function facts({ replay, servers, layout, duration_micros, seen, offers, overlaps }) {
  // A line of the command must not break within a word.
  const words = replay.split(" ").flatMap((word, n) => [n > 0 ? " " : null, element("span", {}, word)]);
  const command = element("code", "command", words), copy = element("button", { type: "button", hidden: !navigator.clipboard }, "copy");
  copy.className = "copy";
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(replay);
    copy.textContent = "copied";
  });
  const judged = [many(seen.attempts, "attempt"), many(seen.holds, "acquisition"), many(seen.renewals, "renewal"), many(offers, "offer"),
    `${many(seen.accepted, "write")} accepted`, `${many(seen.refused, "write")} refused`, `${many(seen.lost, "lease")} lost`,
    seen.crashes === 1 ? "1 crash" : `${count(seen.crashes)} crashes`, `${many(seen.keys, "key")} seen`].join(", ");
  const entries = [["Replay", [command, " ", copy]], ["Servers", servers], layout == null ? null : ["Layout", layout], ["Duration", span(duration_micros)],
    ["Judged", judged], ["Overlaps in one process", overlaps === 0 ? "none" : element("span", "alarm", count(overlaps))]];
  return entries.filter(Boolean).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
}

// Unexpected violations come first.
function violationList(outcome, id) {
  const [mood, total] = violationsOf(outcome), { violations, violations_in_all: all } = outcome;
  const items = [...violations].sort((a, b) => a.expected - b.expected).map((broken) => violation(broken, id));
  const list = (some) => (some.length === 0 ? null : element("ul", "violations", some));
  const others = items.splice(LISTED_VIOLATIONS);
  return [element("p", `${mood} sum`, `${total[0].toUpperCase()}${total.slice(1)}.`), list(items),
    others.length === 0 ? null : element("details", {}, element("summary", {}, `${count(others.length)} more`), list(others)),
    violations.length < all ? element("p", "note", `${many(all - violations.length, "violation")} not listed.`) : null];
}

function violation({ check, at_micros: micros, resource, text, expected }, id) {
  const when = micros == null ? null : [element("a", { href: `#timeline-${id}`, "data-at": micros }, at(micros)), " "];
  // Most texts name the resource.
  const of = resource == null || text.includes(resource) ? null : [" of ", element("code", {}, resource)];
  return element("li", expected ? "expected" : "alarm", when, element("strong", {}, `${expected ? "expected" : "unexpected"}: ${check}`), of, " ",
    element("span", "evidence", text));
}
