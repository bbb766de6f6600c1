// SPDX-License-Identifier: Apache-2.0
// The table of calls: sorted, filtered, and only the rows in sight are in the page.
const ROW = 28;
const COLUMNS = [
  ["number", "Call", "n", 58],
  ["op", "Operator", "", 0],
  ["phase", "Phase", "spare", 88],
  ["step", "Step", "n spare", 50],
  ["took", "Time", "n", 74],
  ["e", "E", "n", 66],
  ["verdict", "Verdict", "", 66],
  ["module", "Module", "tail", 146],
  ["site", "Called at", "tail", 156],
];
const state = { sort: "number", dir: "asc", filter: "", phase: "", step: "", verdict: "", call: "", theme: "" };
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

function drawHead() {
  const row = el("tr", {});
  for (const [name, label, kind, width] of COLUMNS) {
    const cell = el("th", { class: kind, scope: "col" }, el("button", { type: "button", onclick: () => sortBy(name) }, label));
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
  else if (name === "site") content = el("bdi", {}, shortSite(text(name, i)));
  else if (name === "module") content = el("bdi", {}, text(name, i));
  else content = text(name, i);
  const node = el("td", { class: kind }, content);
  if (name === "site" || name === "module" || name === "op") node.title = text(name, i);
  return node;
}

function gap(rows) {
  // As many columns as the page shows: more would take room from the others.
  const narrow = window.matchMedia("(max-width: 1000px)").matches;
  const shown = COLUMNS.filter(([, , kind]) => !narrow || !kind.includes("spare")).length;
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
  document.getElementById("shown").textContent = `${view.length} of ${count} calls`;
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
