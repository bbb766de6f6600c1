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

const NOT_FINITE = "not finite";

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
  if (!Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  return size < 1e-3 || size >= 1e6 ? x.toExponential(2).replace("e+", "e") : String(Number(x.toPrecision(4)));
}

// An E as a text; what is not finite is a NaN or an infinity on one side only.
function eText(value) {
  const x = decode(value);
  return typeof x === "number" && !Number.isFinite(x) ? say(NOT_FINITE) : number(x);
}

function errorText(i) {
  return eText(calls.e[i]);
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

// A text that may go on in the next line after a dot, slash, comma, underscore or colon, and nowhere
// else: words stay whole.
function breakable(words) {
  if (String(words).length > 4000) return [String(words)];
  const parts = [];
  for (const part of String(words).split(/(?<=[./,_:=([|-])/)) {
    if (parts.length) parts.push(el("wbr", {}));
    parts.push(part);
  }
  return parts;
}

// `train.py:12 forward` of `/home/x/train.py:12 forward`: the folder says least.
function shortSite(site) {
  const [, where, rest] = site.match(/^(.*?:\d+)(.*)$/s) || [null, site, ""];
  return where.slice(where.lastIndexOf("/") + 1) + rest;
}

// 12.3 G of something.
function quantity(value) {
  const units = ["", "k", "M", "G", "T", "P"];
  let [x, n] = [value, 0];
  while (x >= 1000 && n < units.length - 1) [x, n] = [x / 1000, n + 1];
  return `${x && x < 1000 ? trim(x) : x.toFixed(0)} ${units[n]}`;
}

function rate(amount, us) {
  return us > 0 ? quantity((amount * 1e6) / us) : "–";
}

// The worst E of several: infinity stands for a NaN or an infinity where there should be none. A red
// one leads to the worst call and says why it is red.
function worstText(e, bad, worst = -1) {
  if (e < 0) return "–";
  const words = eText(e);
  if (!bad && e !== Infinity) return words;
  if (worst < 0) return el("span", { class: "error" }, words);
  const why = [`${say("call {0}", calls.number[worst])}: ${say(text("verdict", worst) || "error")}`, ...whyWrong(worst), elementSaid(worst)];
  const said = why.filter(Boolean).join("\n");
  return el("button", { type: "button", class: "op error", title: said, "aria-label": `${words}. ${said}`, onclick: () => goToCall(worst) }, words);
}

// Whether a call is a worse one than the worst so far.
function isWorse(i, worst) {
  if (worst < 0) return true;
  const order = (n) => data.verdicts.indexOf(text("verdict", n));
  return order(i) > order(worst) || (order(i) === order(worst) && errorOf[i] > errorOf[worst]);
}

function verdictMark(verdict) {
  return verdict ? el("span", { class: verdict }, say(verdict)) : "–";
}

// Calls summed by operator: [{op, calls, total, worst, bad, flops, bytes}], slowest first.
function byOperator() {
  const found = new Map();
  for (let i = 0; i < count; i++) {
    const op = calls.op[i];
    let row = found.get(op);
    if (!row) found.set(op, (row = { op: texts[op], calls: 0, total: 0, worst: -1, bad: 0, worstCall: -1, flops: 0, flopsTime: 0, bytes: 0 }));
    row.calls += 1;
    if (tookOf[i] > 0) row.total += tookOf[i];
    if (errorOf[i] > row.worst) row.worst = errorOf[i];
    if (isWorse(i, row.worstCall)) row.worstCall = i;
    row.bytes += calls.bytes[i] || 0;
    if (calls.flops[i] && tookOf[i] > 0) [row.flops, row.flopsTime] = [row.flops + calls.flops[i], row.flopsTime + tookOf[i]];
    const verdict = text("verdict", i);
    if (verdict === "error" || verdict === "overflow") row.bad += 1;
  }
  return [...found.values()].sort((a, b) => b.total - a.total || b.calls - a.calls);
}
