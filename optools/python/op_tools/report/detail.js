// SPDX-License-Identifier: Apache-2.0
// The chosen call, and the lists beside the table.
const RESULT = ["result", "dtype", "verdict", "e", "over", "elements", "worst", "got", "expected", "abs", "rel", "cosine", "reason"];
const WORST_SHOWN = 200;
const OPERATORS_SHOWN = 300;

function resultsOf(i) {
  return (data.results[i] || []).map((row) => Object.fromEntries(RESULT.map((name, n) => [name, row[n]])));
}

function simpleTable(heads, rows) {
  const head = el("tr", {}, ...heads.map(([label, kind]) => el("th", { class: kind, scope: "col" }, label)));
  const body = rows.map((cells) => el("tr", {}, ...cells.map((content, n) => el("td", { class: heads[n][1] }, content))));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
}

function callButton(i, label) {
  return el("button", { type: "button", class: "op", onclick: () => choose(i) }, label);
}

function pathOf(address) {
  try {
    return decodeURIComponent(address).slice(2);
  } catch (error) {
    return address.slice(2); // bytes that are no text
  }
}

function place(result) {
  return Array.isArray(result.worst) ? `[${result.worst.join(", ")}]` : "–";
}

function drawDetail() {
  const i = chosenIndex();
  if (i < 0) {
    replace("detail", el("p", { class: "hint" }, "Choose a call: click a row, a point or a bar, or use the arrow keys in the table."));
    return;
  }
  const facts = el("dl", {});
  const fact = (name, ...content) => facts.append(el("dt", {}, name), el("dd", {}, ...content));
  const verdict = text("verdict", i);
  if (verdict) fact("Verdict", verdictMark(verdict), ` E ${errorText(i)}`);
  if (text("reason", i)) fact("Why", text("reason", i));
  if (text("raised", i)) fact("Raised", el("span", { class: "error" }, text("raised", i)));
  fact("When", `${text("phase", i)}, step ${calls.step[i]}, thread ${calls.thread[i]}, at ${microseconds(calls.start[i])}`);
  fact("Took", microseconds(calls.took[i]) + (calls.device[i] === null ? "" : `, on the device ${microseconds(calls.device[i])}`));
  if (text("module", i)) fact("Module", text("module", i));
  if (text("site", i)) fact("Called at", el("span", { class: "code" }, text("site", i)));
  if (text("api", i)) fact("API", text("api", i));
  const forward = indexOfNumber.get(calls.forward[i]);
  if (forward !== undefined && forward !== i) fact("Forward", callButton(forward, `call ${calls.forward[i]} ${text("op", forward)}`));
  if (text("signature", i)) fact("Call", el("span", { class: "code" }, text("signature", i)));
  const address = data.links[calls.number[i]];
  if (address) fact("Reproducer", el("a", { href: address }, pathOf(address)));
  const parts = [el("h3", {}, `${text("op", i)}  call ${calls.number[i]}`), facts];
  const results = resultsOf(i);
  if (results.length) parts.push(el("h3", {}, "Worst elements"), resultTable(results));
  const tensors = data.tensors[i] || [];
  if (tensors.length) parts.push(el("h3", {}, "Exponents"));
  for (const [where, said, n] of tensors.slice(0, 24)) {
    parts.push(histogram(data.histograms[n], `${texts[where]} ${texts[said]}`));
  }
  replace("detail", ...parts);
}

function resultTable(results) {
  const heads = [["Result", ""], ["E", "n"], ["At", ""], ["Got", "n"], ["Float64", "n"], ["Over 1", "n"]];
  return simpleTable(heads, results.map((r) => [
    el("span", { class: r.verdict }, r.result), number(r.e), place(r), number(r.got), number(r.expected), `${r.over ?? 0} of ${r.elements ?? 0}`,
  ]));
}

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
  const heads = [["Call", "n"], ["Operator", ""], ["Result", ""], ["E", "n"], ["Verdict", ""], ["At", ""], ["Got", "n"], ["Float64", "n"], ["Largest |difference|", "n"]];
  replace("worst", simpleTable(heads, all.slice(0, WORST_SHOWN).map(([i, r]) => [
    String(calls.number[i]), callButton(i, text("op", i)), r.result, number(r.e), verdictMark(r.verdict), place(r), number(r.got), number(r.expected), number(r.abs),
  ])));
}

function drawOperators() {
  const rows = byOperator();
  const whole = rows.reduce((sum, row) => sum + row.total, 0) || 1;
  const heads = [["Operator", ""], ["Calls", "n"], ["Total", "n"], ["Share", ""], ["Mean", "n"], ["Worst E", "n"], ["Wrong", "n"]];
  const table = simpleTable(heads, rows.slice(0, OPERATORS_SHOWN).map((row) => {
    const fill = el("i", {});
    fill.style.width = `${(100 * row.total) / (rows[0].total || 1)}%`;
    return [
      el("button", { type: "button", class: "op", onclick: () => change({ filter: row.op }) }, row.op),
      row.calls, microseconds(row.total),
      el("span", {}, el("span", { class: "bar" }, fill), ` ${((100 * row.total) / whole).toFixed(1)}%`),
      microseconds(row.total / row.calls), row.worst < 0 ? "–" : number(row.worst),
      row.bad ? el("span", { class: "error" }, row.bad) : "0",
    ];
  }));
  const more = rows.length - OPERATORS_SHOWN;
  replace("operators", table, ...(more > 0 ? [el("p", { class: "hint" }, `and ${more} more operators: find them below`)] : []));
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
  const skips = data.skips.map(([op, why, n]) => [n, el("button", { type: "button", class: "op", onclick: () => change({ filter: op }) }, op), why]);
  replace("skips", skips.length
    ? simpleTable([["Calls", "n"], ["Operator", ""], ["Why", "wrap"]], skips)
    : el("p", { class: "hint" }, data.about.judged ? "Every call was judged." : "No call was judged: see the hint at E against time."));
  const lists = [];
  const list = (items, kind) => el("ul", {}, ...items.map((item) => el("li", { class: kind }, item)));
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
  const facts = [[count, "calls"], [new Set(calls.op).size, "operators"], [new Set(calls.step).size, "steps"], [microseconds(total), "in operators"]];
  for (const verdict of ["pass", "warn", "overflow", "error", "skip"]) {
    if (verdicts.has(verdict) || (verdict === "error" && data.about.judged)) facts.push([verdicts.get(verdict) || 0, verdict, verdicts.has(verdict) ? verdict : ""]);
  }
  if (worst >= 0) facts.push([number(worst), "worst E"]);
  if (data.problems.length) facts.push([data.problems.length, "problems", "error"]);
  replace("summary", ...facts.map(([value, label, kind]) => el("div", { class: "fact" }, el("b", { class: kind || "" }, value), el("span", {}, label))));
  const head = data.about.head;
  const words = [data.about.folder];
  if (head.torch) words.push(`torch ${head.torch}`);
  if (head.devices) words.push(head.devices);
  if (head.rank) words.push(`rank ${head.rank}`);
  words.push(`report of ${data.about.made}`);
  document.getElementById("about").textContent = words.join(" · ");
  document.title = `Operators: ${data.about.folder}`;
}
