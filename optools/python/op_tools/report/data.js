// SPDX-License-Identifier: Apache-2.0
// The data, what is derived from it, and how numbers are written.
const data = JSON.parse(document.getElementById("data").textContent);
const texts = data.texts;
const calls = data.calls;
const count = calls.number.length;

// JSON has no word for these.
function decode(value) {
  if (value === "inf") return Infinity;
  if (value === "-inf") return -Infinity;
  if (value === "nan") return NaN;
  return value;
}

// E of a call, for sorting and drawing: -1 where it was not judged; NaN is as bad as can be.
const errorOf = new Float64Array(count);
const tookOf = new Float64Array(count);
for (let i = 0; i < count; i++) {
  const e = decode(calls.e[i]);
  errorOf[i] = e === null ? -1 : Number.isNaN(e) ? Infinity : e;
  tookOf[i] = calls.device[i] ?? calls.took[i] ?? -1;
}
const indexOfNumber = new Map(calls.number.map((n, i) => [n, i]));

function text(column, i) {
  return texts[calls[column][i]];
}

function microseconds(us) {
  if (us === null || us === undefined || us < 0) return "–";
  if (us < 1000) return `${trim(us)} µs`;
  if (us < 1e6) return `${trim(us / 1e3)} ms`;
  return `${trim(us / 1e6)} s`;
}

function trim(x) {
  return x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
}

function number(value) {
  const x = decode(value);
  if (x === null || x === undefined || x === "") return "–";
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1e9) return String(x);
  return Number.isFinite(x) ? String(Number(x.toPrecision(4))) : String(x);
}

function errorText(i) {
  return calls.e[i] === null ? "–" : number(calls.e[i]);
}

// An element with texts and elements inside. Texts stay texts, whatever they hold.
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.map((c) => (typeof c === "number" ? String(c) : c)));
  return node;
}

function replace(id, ...children) {
  const node = document.getElementById(id);
  node.replaceChildren(...children);
  return node;
}

function verdictMark(verdict) {
  return verdict ? el("span", { class: verdict }, verdict) : "–";
}

// Calls summed by operator: [{op, calls, total, worst, errors, phases}], slowest first.
function byOperator() {
  const found = new Map();
  for (let i = 0; i < count; i++) {
    const op = calls.op[i];
    let row = found.get(op);
    if (!row) found.set(op, (row = { op: texts[op], calls: 0, total: 0, worst: -1, bad: 0 }));
    row.calls += 1;
    if (tookOf[i] > 0) row.total += tookOf[i];
    if (errorOf[i] > row.worst) row.worst = errorOf[i];
    const verdict = text("verdict", i);
    if (verdict === "error" || verdict === "overflow") row.bad += 1;
  }
  return [...found.values()].sort((a, b) => b.total - a.total || b.calls - a.calls);
}
