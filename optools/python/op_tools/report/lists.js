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
  const heads = [["Operator", "wide"], ["Calls", "n few"], ["Total", "n"], ["Share", "share"], ["Mean", "n spare"], ["FLOP/s", "n"], ["Bytes/s", "n"], ["Worst E", "n"]];
  const table = simpleTable(heads, rows.slice(0, OPERATORS_SHOWN).map((row) => {
    const fill = el("i", {});
    fill.style.width = `${(100 * row.total) / (rows[0].total || 1)}%`;
    return [
      operatorButton(row.op), row.calls, microseconds(row.total),
      el("span", {}, el("span", { class: "bar" }, fill), ` ${((100 * row.total) / whole).toFixed(1)}%`),
      microseconds(row.total / row.calls),
      row.flops ? rate(row.flops, row.flopsTime) : "–", row.bytes ? rate(row.bytes, row.total) : "–",
      worstText(row.worst, row.bad),
    ];
  }), "fixed operators");
  const more = rows.length - OPERATORS_SHOWN;
  replace("operators", table, ...(more > 0 ? [el("p", { class: "hint" }, `and ${more} more operators: find them below`)] : []));
}

// ---- another run ---------------------------------------------------------------------
function drawAgainst() {
  const other = data.against;
  document.getElementById("against-card").hidden = !other;
  if (!other) return;
  replace("against-hint", ...breakable(
    `A is ${data.about.folder}, B is ${other.folder}: ${other.matched} calls in both, ${other.only_here} only in A, ${other.only_there} only in B. ` +
    "B / A above 1 means that B is slower."));
  const theirs = new Map(other.operators.map(([op, ...row]) => [op, row]));
  const rows = byOperator().map((row) => ({ ...row, other: theirs.get(row.op) || [0, 0, null] }));
  const here = new Set(rows.map((row) => row.op));
  for (const [op, row] of theirs) if (!here.has(op)) rows.push({ op, calls: 0, total: 0, worst: -1, bad: 0, other: row });
  rows.sort((a, b) => Math.abs(b.other[1] - b.total) - Math.abs(a.other[1] - a.total));
  const sum = (pick) => rows.reduce((all, row) => all + pick(row), 0);
  const first = { op: "", calls: sum((r) => r.calls), total: sum((r) => r.total), worst: -1, bad: 0, other: [sum((r) => r.other[0]), sum((r) => r.other[1]), null] };
  const heads = [["Operator", "wide"], ["Calls A", "n few"], ["B", "n few"], ["Time A", "n"], ["Time B", "n"], ["B / A", "n"], ["E of A", "n"], ["E of B", "n"]];
  replace("against", simpleTable(heads, [first, ...rows.slice(0, OPERATORS_SHOWN)].map((row) => [
    row.op ? operatorButton(row.op) : el("b", {}, "all operators"), row.calls, row.other[0],
    microseconds(row.total), microseconds(row.other[1]), ratioText(row.total, row.other[1]),
    worstText(row.worst, row.bad), row.other[2] === null ? "–" : worstText(Number.isNaN(decode(row.other[2])) ? Infinity : decode(row.other[2])),
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
    replace("worst", el("p", { class: "hint" }, "Nothing was judged."));
    return;
  }
  const heads = [["Call", "n"], ["Operator", "wide"], ["E", "n"], ["Verdict", ""], ["At", ""], ["Got", "n"], ["Float64", "n"]];
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
  replace("exponents", ...(figures.length ? figures : [el("p", { class: "hint" }, "No contents were read.")]));
}

function drawLists() {
  const skips = data.skips.map(([op, why, n]) => [n, el("button", { type: "button", class: "op", onclick: () => change({ filter: op }) }, ...breakable(op)), el("span", {}, ...breakable(why))]);
  replace("skips", skips.length
    ? simpleTable([["Calls", "n"], ["Operator", "wide"], ["Why", "wrap"]], skips, "fixed skips")
    : el("p", { class: "hint" }, data.about.judged ? "Every call was judged." : "No call was judged: see the hint at E against time."));
  const lists = [];
  const list = (items, kind) => el("ul", {}, ...items.map((item) => el("li", { class: kind }, ...breakable(item))));
  if (data.problems.length) lists.push(list(data.problems, "error"));
  if (data.notes.length) lists.push(list(data.notes, ""));
  replace("problems", ...(lists.length ? lists : [el("p", { class: "hint" }, "None.")]));
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
  const facts = [[count, "calls"], [new Set(calls.op).size, "operators"], [data.steps.filter(([, , isStep]) => isStep).length, "steps"], [microseconds(total), "in operators"]];
  for (const verdict of ["pass", "warn", "overflow", "error", "skip"]) {
    if (verdicts.has(verdict) || (verdict === "error" && data.about.judged)) facts.push([verdicts.get(verdict) || 0, verdict, verdicts.has(verdict) ? verdict : ""]);
  }
  if (worst >= 0) facts.push([worstText(worst), "worst E", worst === Infinity ? "error" : ""]);
  if (data.memory) facts.push([bytesText(data.memory.peak[0]), "most memory in use"]);
  if (data.problems.length) facts.push([data.problems.length, "problems", "error"]);
  replace("summary", ...facts.map(([value, label, kind]) => el("div", { class: "fact" }, el("b", { class: kind || "" }, value), el("span", {}, label))));
  const about = data.about;
  const head = about.head;
  const words = [about.folder];
  if (head.torch) words.push(`torch ${head.torch}`);
  if (head.devices) words.push(head.devices);
  if (head.rank) words.push(`rank ${head.rank}`);
  words.push(`report of ${about.made}`);
  if (data.against) words.push(`against ${data.against.folder}`);
  replace("about", ...breakable(words.join(" · ")));
  document.title = `Operators: ${data.about.folder}`;
}
