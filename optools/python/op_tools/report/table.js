// SPDX-License-Identifier: Apache-2.0
// The table of calls: sorted, filtered, and only the rows in sight are in the page.
const LINE = 19; // of a row's text
const ROW_MOST = 6; // lines of a row: what is longer is in the tip and in the detail
const COLUMNS = [
  ["number", "Call", "n", 58],
  ["op", "Operator", "", 0],
  ["phase", "Phase", "spare roomy", 88],
  ["step", "Step", "n spare roomy", 50],
  ["took", "Time", "n roomy", 74],
  ["e", "E", "n", 78],
  ["verdict", "Verdict", "", 76],
  ["module", "Module", "roomy", 146],
  ["site", "Called at", "roomy", 168],
];
const state = { sort: "number", dir: "asc", filter: "", phase: "", step: "", verdict: "", call: "", theme: "", lang: "" };
let ROW = 28;
let view = [];
let isShown = new Uint8Array(count);
let haystacks = null;
let ranks = null;

// What a call is found by, in small letters.
function haystack(i) {
  if (!haystacks) haystacks = new Array(count);
  if (haystacks[i] === undefined) {
    haystacks[i] = ["op", "module", "site", "api", "reason"].map((c) => text(c, i)).join("\n").toLowerCase();
  }
  return haystacks[i];
}

// Place of each text in alphabetical order.
function textRanks() {
  if (!ranks) {
    ranks = new Int32Array(texts.length);
    const order = texts.map((_, n) => n).sort((a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : 0));
    order.forEach((n, rank) => (ranks[n] = rank));
  }
  return ranks;
}

function sortKeys(column) {
  if (column === "e") return errorOf;
  if (column === "took") return tookOf;
  if (column === "verdict") {
    return calls.verdict.map((n) => data.verdicts.indexOf(texts[n]));
  }
  if (column === "number" || column === "step") return calls[column];
  const order = textRanks();
  return calls[column].map((n) => order[n]);
}

function refreshView() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = [];
  isShown = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    if (state.phase && text("phase", i) !== state.phase) continue;
    if (state.step !== "" && String(calls.step[i]) !== state.step) continue;
    if (state.verdict && (text("verdict", i) || "none") !== state.verdict) continue;
    if (words.length && !words.every((word) => haystack(i).includes(word))) continue;
    wanted.push(i);
    isShown[i] = 1;
  }
  const keys = sortKeys(state.sort);
  const sign = state.dir === "desc" ? -1 : 1;
  // What was not judged or timed comes last either way.
  const missing = state.sort === "e" || state.sort === "took" || state.sort === "verdict";
  view = wanted.sort((a, b) => {
    const [x, y] = [keys[a], keys[b]];
    if (missing && x < 0 !== y < 0) return x < 0 ? 1 : -1;
    return x === y ? a - b : x < y ? -sign : sign;
  });
}

function isNarrow() {
  return window.matchMedia("(max-width: 640px)").matches;
}

// Rows are of one height, so that only those in sight have to be there: high enough for the longest
// operator, module and file, in lines as wide as their columns. These three share what room there is.
function measureRows() {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = getComputedStyle(document.body).font;
  const longest = (name, wanted) => {
    let most = 0;
    for (const n of new Set(calls[name])) most = Math.max(most, pen.measureText(wanted(texts[n]).slice(0, 400)).width);
    return most + 18;
  };
  // Numbers are not broken into lines: their columns hold the largest.
  for (const column of COLUMNS.filter(([name]) => name === "number" || name === "step")) {
    const largest = calls[column[0]].reduce((most, n) => Math.max(most, n), 0);
    column[3] = Math.max(column[3], Math.ceil(pen.measureText(String(largest)).width) + 20);
  }
  const whole = (words) => words;
  const want = { op: longest("op", whole), module: longest("module", whole), site: longest("site", shortSite) };
  const flexible = columnsShown().filter(([name]) => name in want);
  const fixed = columnsShown().filter(([name]) => !(name in want)).reduce((sum, column) => sum + column[3], 0);
  const room = document.getElementById("calls").clientWidth - fixed - 2;
  const wanted = flexible.reduce((sum, [name]) => sum + want[name], 0);
  for (const column of flexible) {
    if (column[0] !== "op") column[3] = Math.round(wanted <= room ? want[column[0]] : Math.max((room * want[column[0]]) / wanted, 110));
  }
  const left = flexible.reduce((sum, column) => sum - (column[0] === "op" ? 0 : column[3]), room);
  // A line ends between words: it holds a little less than fits.
  const lines = (name, wide) => (want[name] <= wide ? 1 : Math.ceil((want[name] * 1.2) / Math.max(wide - 14, 40)));
  const high = isNarrow()
    ? lines("op", left) + lines("site", left) + lines("module", left)
    : Math.max(...flexible.map(([name, , , width]) => lines(name, name === "op" ? left : width)));
  ROW = Math.max(28, Math.min(high, ROW_MOST) * LINE + 8);
  document.documentElement.style.setProperty("--row", `${ROW}px`);
}

function columnsShown() {
  const narrow = window.matchMedia("(max-width: 1000px)").matches;
  return COLUMNS.filter(([, , kind]) => !(isNarrow() && kind.includes("roomy")) && !(narrow && kind.includes("spare")));
}

function drawHead() {
  const row = el("tr", {});
  for (const [name, label, kind, width] of COLUMNS) {
    const cell = el("th", { class: kind, scope: "col" }, el("button", { type: "button", onclick: () => sortBy(name) }, say(label)));
    if (width) cell.style.width = `${width}px`;
    if (state.sort === name) cell.setAttribute("aria-sort", state.dir === "desc" ? "descending" : "ascending");
    row.append(cell);
  }
  document.querySelector("#table thead").replaceChildren(row);
}

function sortBy(name) {
  const firstDown = name === "e" || name === "took" || name === "verdict";
  const other = state.dir === "desc" ? "asc" : "desc";
  change({ sort: name, dir: state.sort === name ? other : firstDown ? "desc" : "asc" });
}

function cell(name, i, kind) {
  let content;
  if (name === "took") content = microseconds(tookOf[i]);
  else if (name === "e") content = errorText(i);
  else if (name === "verdict") content = verdictMark(text("verdict", i));
  else if (name === "number" || name === "step") content = String(calls[name][i]);
  else if (name === "phase") content = say(text(name, i));
  else content = el("span", {}, ...breakable(name === "site" ? shortSite(text(name, i)) : text(name, i)));
  const node = el("td", { class: kind }, content);
  if (name === "op" && isNarrow()) {
    for (const words of [shortSite(text("site", i)), text("module", i)]) if (words) node.append(el("small", {}, ...breakable(words)));
  }
  if (name === "site" || name === "module" || name === "op") node.title = text(name, i);
  return node;
}

function gap(rows) {
  // As many columns as the page shows: more would take room from the others.
  const shown = columnsShown().length;
  const node = el("tr", { class: "gap", "aria-hidden": "true" }, el("td", { colspan: shown }));
  node.style.height = `${rows * ROW}px`;
  return node;
}

// Rows in sight and a few around them.
function drawRows() {
  const box = document.getElementById("calls");
  const first = Math.max(Math.floor(box.scrollTop / ROW) - 8, 0);
  const last = Math.min(first + Math.ceil((box.clientHeight || 520) / ROW) + 16, view.length);
  const rows = [];
  if (first) rows.push(gap(first));
  for (let place = first; place < last; place++) {
    const i = view[place];
    const chosen = String(calls.number[i]) === state.call;
    const row = el("tr", { "data-number": calls.number[i], "aria-rowindex": place + 2, "aria-selected": String(chosen), onclick: () => choose(i) });
    for (const [name, , kind] of COLUMNS) row.append(cell(name, i, kind));
    rows.push(row);
  }
  if (last < view.length) rows.push(gap(view.length - last));
  document.querySelector("#table tbody").replaceChildren(...rows);
  document.getElementById("table").setAttribute("aria-rowcount", String(view.length + 1));
  document.getElementById("shown").textContent = say("{0} of {1} calls", view.length, count);
}

function chosenIndex() {
  return state.call === "" ? -1 : (indexOfNumber.get(Number(state.call)) ?? -1);
}

function choose(i) {
  change({ call: String(calls.number[i]) });
}

// Scrolls so that a place of the view is in sight.
function showPlace(place) {
  const box = document.getElementById("calls");
  const top = place * ROW;
  if (top < box.scrollTop) box.scrollTop = top;
  const bottom = top + 3 * ROW;
  if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
}

function moveChoice(event) {
  const page = 15;
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (!(event.key in moves) || !view.length || event.target.id !== "calls") return;
  event.preventDefault();
  const now = view.indexOf(chosenIndex());
  const place = Math.min(Math.max(now + moves[event.key], 0), view.length - 1);
  showPlace(place);
  choose(view[place]);
}
