// SPDX-License-Identifier: Apache-2.0
// State in the address (#sort=e&filter=mm), events, and the first drawing.
const DEFAULTS = { ...state };

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) {
    if (given.has(name)) found[name] = given.get(name);
  }
  if (!COLUMNS.some(([name]) => name === found.sort)) found.sort = DEFAULTS.sort;
  if (given.has("sort") && !given.has("dir")) {
    found.dir = ["e", "took", "verdict"].includes(found.sort) ? "desc" : "asc";
  }
  return found;
}

function writeAddress() {
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== DEFAULTS[name] || (name === "dir" && state.sort !== DEFAULTS.sort)) kept.set(name, value);
  }
  try {
    history.replaceState(null, "", `#${kept}`);
  } catch (error) {
    // Some browsers do not let a file's address change: nothing else depends on it.
  }
}

// Changes parts of the state and draws what depends on them.
function change(parts) {
  const before = { ...state };
  Object.assign(state, parts);
  draw(before);
  writeAddress();
}

function draw(before) {
  const changed = (...names) => !before || names.some((name) => before[name] !== state[name]);
  if (changed("theme")) setTheme();
  if (changed("lang")) drawWords();
  if (changed("sort", "dir", "filter", "phase", "step", "verdict", "lang")) {
    for (const id of ["filter", "phase", "step", "verdict"]) {
      const input = document.getElementById(id);
      if (input.value !== state[id]) input.value = state[id];
    }
    refreshView();
    drawHead();
    if (before) document.getElementById("calls").scrollTop = 0;
    drawExponents();
  }
  if (changed("step")) setTimeline(state.step);
  if (changed("step", "lang")) drawSteps();
  drawRows();
  if (changed("call", "lang")) drawDetail();
  if (changed("filter", "phase", "step", "verdict", "theme", "lang")) drawScatter(isShown);
  drawTimeline(isShown, chosenIndex());
}

function setTheme() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = ["light", "dark"].includes(state.theme) ? state.theme : dark ? "dark" : "light";
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = say(theme === "dark" ? "Light" : "Dark");
}

// All that says something, in the language of the address, else in that of the report.
function drawWords() {
  language = state.lang in LANGUAGES ? state.lang : data.about.language in LANGUAGES ? data.about.language : "en";
  const other = language === "zh" ? "en" : "zh";
  const button = document.getElementById("language");
  button.textContent = LANGUAGES[other];
  button.lang = other;
  translatePage();
  setTheme();
  drawChoices();
  drawHint();
  drawConclusion();
  drawSummary();
  drawOperators();
  drawModules();
  drawAgainst();
  drawWorst();
  drawLists();
}

// Leads to calls: those of a tile, or one.
function goToCalls(parts) {
  change(parts);
  if (chosenIndex() >= 0 && "call" in parts) showPlace(Math.max(view.indexOf(chosenIndex()), 0));
  goTo("calls");
}

function goToCall(i) {
  goToCalls({ filter: "", phase: "", step: "", verdict: "", call: String(calls.number[i]) });
}

function drawChoices() {
  const present = (column) => [...new Set(calls[column].map((n) => texts[n]))].filter(Boolean).sort();
  const put = (id, values, said) => {
    replace(id, el("option", { value: "" }, say("all")), ...values.map((value) => el("option", { value }, said(value))));
    document.getElementById(id).value = state[id];
  };
  put("phase", present("phase"), (value) => say(value));
  const unjudged = calls.verdict.some((n) => !texts[n]) && data.about.judged ? ["none"] : [];
  put("verdict", [...present("verdict"), ...unjudged], (value) => say(value));
  put("step", [...new Set(calls.step)].sort((a, b) => a - b).map(String), (value) => value);
}

function drawHint() {
  const words = [];
  for (const phase of ["forward", "backward", "optimizer"]) words.push(el("span", { class: `key ${phase}` }), say(phase));
  words.push(el("span", { class: "key error" }), say("wrong"));
  if (data.memory) words.push(el("span", { class: "key memory" }), say("memory made by operators"), el("span", { class: "key kept" }), say("memory there before"));
  replace("timeline-hint", ...words, ` — ${say("drag or arrow keys to move, wheel or + and − to zoom, 0 for all")}`);
}

// A button a step, with its time and, where backward began from a number, that loss.
function drawSteps() {
  const totals = new Map();
  for (let i = 0; i < count; i++) {
    totals.set(calls.step[i], (totals.get(calls.step[i]) || 0) + Math.max(tookOf[i], 0));
  }
  const button = (value, ...label) => el("button", { type: "button", "aria-pressed": String(state.step === value), onclick: () => change({ step: value }) }, ...label);
  const rows = data.steps.map(([step, label, , loss]) => button(String(step), `${stepLabel(label)} · ${microseconds(totals.get(step))}`, ...lossWords(step, loss)));
  replace("steps", button("", say("All steps")), ...rows);
}

function lossWords(step, loss) {
  const other = data.against && data.against.losses[step];
  if (loss === null && (other === null || other === undefined)) return [];
  const words = other === null || other === undefined ? `loss ${number(loss)}` : `loss ${number(loss)} | B ${number(other)}`;
  return [" ", el("span", { class: "loss" }, words)];
}

function timelineKeys(event) {
  const moves = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), 0: () => setTimeline(state.step) };
  if (!(event.key in moves)) return;
  event.preventDefault();
  moves[event.key]();
  drawTimeline(isShown, chosenIndex());
}

function listenTimeline() {
  const canvas = document.getElementById("timeline");
  let from = null;
  let moved = false;
  canvas.addEventListener("keydown", timelineKeys);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    const at = timeline.from + (event.clientX - box.left - SIDE) / timeScale(box.width);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
    drawTimeline(isShown, chosenIndex());
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    [from, moved] = [event.clientX, false];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from === null) {
      const i = callAtTime(event);
      tip(event, i < 0 ? "" : callTip(i));
    } else if (Math.abs(event.clientX - from) > 2 || moved) {
      pan((from - event.clientX) / canvas.clientWidth);
      [from, moved] = [event.clientX, true];
      drawTimeline(isShown, chosenIndex());
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const i = moved ? -1 : callAtTime(event);
    from = null;
    if (i >= 0) showCall(i);
  });
  canvas.addEventListener("pointerleave", (event) => tip(event, ""));
}

// Chooses a call and brings its row into sight.
function showCall(i) {
  const where = view.indexOf(i);
  if (where >= 0) showPlace(where);
  choose(i);
}

function listen() {
  const box = document.getElementById("calls");
  box.addEventListener("scroll", () => requestAnimationFrame(drawRows));
  box.addEventListener("keydown", moveChoice);
  for (const id of ["phase", "step", "verdict"]) document.getElementById(id).addEventListener("change", (event) => change({ [id]: event.target.value }));
  document.getElementById("language").addEventListener("click", () => change({ lang: language === "zh" ? "en" : "zh" }));
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("filter").addEventListener("input", (event) => change({ filter: event.target.value }));
  document.getElementById("theme").addEventListener("click", () => {
    change({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
  });
  document.querySelector(".jump").addEventListener("click", (event) => {
    event.preventDefault(); // the address holds the state
    box.focus();
  });
  const points = document.getElementById("scatter");
  points.addEventListener("pointermove", (event) => {
    const i = pointAt(event);
    tip(event, i < 0 ? "" : callTip(i));
  });
  points.addEventListener("pointerleave", (event) => tip(event, ""));
  points.addEventListener("click", (event) => {
    const i = pointAt(event);
    if (i >= 0) showCall(i);
  });
  listenTimeline();
  const memory = document.getElementById("memory");
  memory.addEventListener("pointermove", (event) => tip(event, memoryAt(event)));
  memory.addEventListener("pointerleave", (event) => tip(event, ""));
  window.addEventListener("resize", () => {
    measureRows();
    drawHead();
    drawRows();
    drawScatter(isShown);
    drawTimeline(isShown, chosenIndex());
  });
  window.addEventListener("hashchange", () => change(readAddress()));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    setTheme();
    drawScatter(isShown);
    drawTimeline(isShown, chosenIndex());
  });
}

function begin() {
  Object.assign(state, readAddress());
  measureRows();
  draw(null);
  if (chosenIndex() >= 0) showPlace(Math.max(view.indexOf(chosenIndex()), 0));
  drawRows();
  listen();
  // For tests: which boxes would have to be scrolled sideways, and how long it took from the beginning of loading until all of it was drawn.
  const wide = [...document.querySelectorAll(".scroll, #detail, body")].filter((box) => box.scrollWidth > box.clientWidth + 1);
  document.documentElement.dataset.sideways = wide.map((box) => box.id || "page").join(" ");
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

begin();
