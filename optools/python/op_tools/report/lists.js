// SPDX-License-Identifier: Apache-2.0
// Facts at the top, operators, another run beside this one, and the lists at the end.
const WORST_SHOWN = 200;
const OPERATORS_SHOWN = 300;

function operatorButton(op) {
  return el("button", { type: "button", class: "op", onclick: () => change({ filter: op }) }, ...breakable(op));
}

function drawOperators() {
  const rows = byOperator();
  const whole = rows.reduce((sum, row) => sum + row.total, 0) || 1;
  const heads = [["Operator", "wide"], ["Calls", "n few"], ["Total", "n"], ["Share", "share roomy"], ["Mean", "n spare"], ["FLOP/s", "n roomy"], ["Bytes/s", "n roomy"], ["Worst E", "n"]];
  const table = simpleTable(heads, rows.slice(0, OPERATORS_SHOWN).map((row) => {
    const fill = el("i", {});
    fill.style.width = `${(100 * row.total) / (rows[0].total || 1)}%`;
    return [
      operatorButton(row.op), row.calls, microseconds(row.total),
      el("span", {}, el("span", { class: "bar" }, fill), ` ${((100 * row.total) / whole).toFixed(1)}%`),
      microseconds(row.total / row.calls),
      row.flops ? rate(row.flops, row.flopsTime) : "–", row.bytes ? rate(row.bytes, row.total) : "–",
      worstText(row.worst, row.bad, row.worstCall),
    ];
  }), "fixed operators");
  const more = rows.length - OPERATORS_SHOWN;
  replace("operators", table, ...(more > 0 ? [el("p", { class: "hint" }, say("and {0} more operators: find them below", more))] : []));
}

// ---- another run ---------------------------------------------------------------------
function drawAgainst() {
  const other = data.against;
  document.getElementById("against-card").hidden = !other;
  if (!other) return;
  replace("against-hint", ...breakable(
    `${say("A is {0}, B is {1}: {2} calls in both, {3} only in A, {4} only in B.", data.about.folder, other.folder, other.matched, other.only_here, other.only_there)} ${say("B / A above 1 means that B is slower.")}`));
  const theirs = new Map(other.operators.map(([op, ...row]) => [op, row]));
  const rows = byOperator().map((row) => ({ ...row, other: theirs.get(row.op) || [0, 0, null] }));
  const here = new Set(rows.map((row) => row.op));
  for (const [op, row] of theirs) if (!here.has(op)) rows.push({ op, calls: 0, total: 0, worst: -1, bad: 0, other: row });
  rows.sort((a, b) => Math.abs(b.other[1] - b.total) - Math.abs(a.other[1] - a.total));
  const sum = (pick) => rows.reduce((all, row) => all + pick(row), 0);
  const first = { op: "", calls: sum((r) => r.calls), total: sum((r) => r.total), worst: -1, bad: 0, other: [sum((r) => r.other[0]), sum((r) => r.other[1]), null] };
  const heads = [["Operator", "wide"], ["Calls A", "n few roomy"], ["B", "n few roomy"], ["Time A", "n"], ["Time B", "n"], ["B / A", "n"], ["E of A", "n roomy"], ["E of B", "n roomy"]];
  replace("against", simpleTable(heads, [first, ...rows.slice(0, OPERATORS_SHOWN)].map((row) => [
    row.op ? operatorButton(row.op) : el("b", {}, say("all operators")), row.calls, row.other[0],
    microseconds(row.total), microseconds(row.other[1]), ratioText(row.total, row.other[1]),
    worstText(row.worst, row.bad, row.worstCall ?? -1), row.other[2] === null ? "–" : worstText(Number.isNaN(decode(row.other[2])) ? Infinity : decode(row.other[2])),
  ]), "fixed against"));
}

function ratioText(a, b) {
  if (!a || !b) return "–";
  const ratio = b / a;
  return el("span", { class: ratio > 1.1 ? "warn" : ratio < 0.9 ? "pass" : "" }, `${trim(ratio)}×`);
}

// ---- the end -------------------------------------------------------------------------
function drawWorst() {
  const all = [];
  for (const key of Object.keys(data.results)) {
    const i = Number(key);
    for (const result of resultsOf(i)) {
      if (result.verdict !== "skip") all.push([i, result]);
    }
  }
  const badness = ([, r]) => [data.verdicts.indexOf(r.verdict), Number.isNaN(decode(r.e)) ? Infinity : decode(r.e) ?? -1];
  all.sort((a, b) => {
    const [va, ea] = badness(a);
    const [vb, eb] = badness(b);
    return vb - va || (ea === eb ? a[0] - b[0] : eb - ea);
  });
  if (!all.length) {
    replace("worst", el("p", { class: "hint" }, say("Nothing was judged.")));
    return;
  }
  const heads = [["Call", "n"], ["Operator", "wide"], ["E", "n"], ["Verdict", ""], ["At", "roomy"], ["Got", "n roomy"], ["Float64", "n roomy"]];
  replace("worst", simpleTable(heads, all.slice(0, WORST_SHOWN).map(([i, r]) => [
    String(calls.number[i]), callButton(i, ...breakable(text("op", i))), eText(r.e), verdictMark(r.verdict), place(r), number(r.got), number(r.expected),
  ]), "fixed worst"));
}

function drawExponents() {
  const sums = new Map();
  for (const i of view) {
    for (const [where, said, n] of data.tensors[i] || []) {
      if (!texts[where].startsWith("outputs") && !texts[where].startsWith("after")) continue;
      const dtype = texts[said].replace(/[[(].*/, "");
      if (!sums.has(dtype)) sums.set(dtype, [0, [], 0, 0, 0, 0, 0]);
      addCounts(sums.get(dtype), data.histograms[n]);
    }
  }
  const figures = [...sums].sort((a, b) => b[1][6] - a[1][6]).slice(0, 6).map(([dtype, sum]) => histogram(sum, dtype));
  replace("exponents", ...(figures.length ? figures : [el("p", { class: "hint" }, say("No contents were read."))]));
}

function drawLists() {
  const skips = data.skips.map(([op, why, n]) => [n, el("button", { type: "button", class: "op", onclick: () => change({ filter: op }) }, ...breakable(op)), el("span", {}, ...breakable(why))]);
  const without = data.about.judged ? calls.verdict.reduce((sum, n) => sum + (texts[n] ? 0 : 1), 0) : 0;
  if (without) {
    const find = el("button", { type: "button", class: "op", onclick: () => goToCalls({ filter: "", phase: "", step: "", verdict: "none" }) }, say("all"));
    skips.unshift([without, find, el("span", {}, say("no tool that judges has seen them"))]);
  }
  replace("skips", skips.length
    ? simpleTable([["Calls", "n"], ["Operator", "wide"], ["Why", "wrap"]], skips, "fixed skips")
    : el("p", { class: "hint" }, say(data.about.judged ? "Every call was judged." : "No call was judged: see the hint at E against time.")));
  const lists = [];
  const list = (items, kind) => el("ul", {}, ...items.map((item) => el("li", { class: kind }, ...breakable(item))));
  if (data.problems.length) lists.push(list(data.problems, "error"));
  if (data.notes.length) lists.push(list(data.notes, ""));
  replace("problems", ...(lists.length ? lists : [el("p", { class: "hint" }, say("None."))]));
}

function drawSummary() {
  const total = tookOf.reduce((sum, t) => sum + (t > 0 ? t : 0), 0);
  const verdicts = new Map();
  let worst = -1;
  for (let i = 0; i < count; i++) {
    const verdict = text("verdict", i);
    if (verdict) verdicts.set(verdict, (verdicts.get(verdict) || 0) + 1);
    worst = Math.max(worst, errorOf[i]);
  }
  const all = { filter: "", phase: "", step: "", verdict: "" };
  const calls_of = (parts) => () => goToCalls({ ...all, ...parts });
  const facts = [
    [count, "calls", "", calls_of({})],
    [new Set(calls.op).size, "operators", "", () => goTo("operators")],
    [data.steps.filter(([, , isStep]) => isStep).length, "steps", "", () => goTo("steps")],
    [microseconds(total), "in operators", "", calls_of({ sort: "took", dir: "desc" })],
  ];
  for (const verdict of ["pass", "warn", "overflow", "error", "skip"]) {
    if (verdicts.has(verdict) || (verdict === "error" && data.about.judged)) facts.push([verdicts.get(verdict) || 0, verdict, verdicts.has(verdict) ? verdict : "", calls_of({ verdict, sort: "e", dir: "desc" })]);
  }
  if (worst >= 0) facts.push([eText(worst), "worst E", worst === Infinity || worst > 3 ? "error" : "", calls_of({ sort: "e", dir: "desc", call: String(calls.number[errorOf.indexOf(worst)]) })]);
  if (data.memory) facts.push([bytesText(data.memory.peak[0]), "most memory in use", "", () => goTo("timeline")]);
  if (data.problems.length) facts.push([data.problems.length, "problems", "error", () => goTo("problems")]);
  replace("summary", ...facts.map(([value, label, kind, onclick]) => el("button", { type: "button", class: "fact", onclick }, el("b", { class: kind || "" }, value), el("span", {}, say(label)))));
  const about = data.about;
  const head = about.head;
  const words = [about.folder];
  if (head.torch) words.push(`torch ${head.torch}`);
  if (head.devices) words.push(head.devices);
  if (head.rank) words.push(say("rank {0}", head.rank));
  words.push(say("report of {0}", about.made));
  if (data.against) words.push(say("against {0}", data.against.folder));
  replace("about", ...breakable(words.join(" · ")));
  document.title = say("Operators: {0}", data.about.folder);
}
