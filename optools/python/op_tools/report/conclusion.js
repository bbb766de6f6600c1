// SPDX-License-Identifier: Apache-2.0
// What the report comes to: the first wrong call, what is wrong, where, and what to do.
const BY_BADNESS = ["overflow", "error"];

function isBad(i) {
  return BY_BADNESS.includes(text("verdict", i));
}

// The first call, in the order calls began, that is so.
function firstCall(wanted) {
  let found = -1;
  for (let i = 0; i < count; i++) {
    if (wanted(i) && (found < 0 || calls.number[i] < calls.number[found])) found = i;
  }
  return found;
}

function nameOf(i) {
  return [calls.number[i], text("op", i)];
}

// The worst of a call's results, as they are kept.
function worstResult(i) {
  const badness = (r) => [data.verdicts.indexOf(r.verdict), Number.isNaN(decode(r.e)) ? Infinity : decode(r.e) ?? -1];
  const kept = resultsOf(i).filter((r) => r.verdict !== "skip");
  kept.sort((a, b) => badness(b)[0] - badness(a)[0] || badness(b)[1] - badness(a)[1] || 0);
  return kept[0] || null;
}

// Why a call, or its worst result, is wrong: sentences.
function whyWrong(i) {
  const said = [];
  const verdict = text("verdict", i);
  const result = worstResult(i);
  if (text("raised", i)) said.push(text("raised", i));
  if (text("reason", i)) said.push(text("reason", i));
  if (verdict === "overflow") said.push(say("The values overflow: {0} cannot hold them.", result ? result.dtype : text("op", i)));
  const e = decode(calls.e[i]);
  if (typeof e === "number" && !Number.isFinite(e) && text("reason", i)) return said; // which says how many
  if (typeof e === "number" && !Number.isFinite(e)) said.push(`${say(NOT_FINITE)}: ${say("a NaN or an infinity where float64 has a number, or the other way round")}.`);
  else if (typeof e === "number" && e > 3) said.push(say("E {0}: the error is {0} times what rounding allows; above 3 is wrong.", number(e)));
  else if (verdict === "error" && result && result.over) said.push(say("{0} of {1} elements are beyond what rounding allows; more than 1 in 1000 is wrong.", result.over, result.elements));
  else if (typeof e === "number" && e > 1) said.push(say("E {0}: the error is {0} times what rounding allows; up to 1 passes.", number(e)));
  return said;
}

function elementSaid(i) {
  const result = worstResult(i);
  if (!result || result.got === null || result.got === undefined) return "";
  const where = place(result);
  return where === "–"
    ? say("Result {0}: {1}, float64 says {2}.", result.result, number(result.got), number(result.expected))
    : say("Result {0} at {1}: {2}, float64 says {3}.", result.result, where, number(result.got), number(result.expected));
}

function whereSaid(i) {
  const parts = [];
  if (text("site", i)) parts.push(el("span", { class: "code" }, ...breakable(text("site", i))));
  if (text("module", i)) parts.push(el("span", {}, ...breakable(text("module", i))));
  parts.push(`${say(text("phase", i))}, ${say("step {0}", calls.step[i])}`);
  return parts.flatMap((part, n) => (n ? [" · ", part] : [part]));
}

function command(words) {
  return el("code", {}, ...breakable(words));
}

// "Run it alone: {0}" with an element in the place of {0}.
function saidWith(words, ...nodes) {
  return say(words).split(/(\{\d\})/).map((part) => (/^\{\d\}$/.test(part) ? nodes[Number(part[1])] : part));
}

function quoted(path) {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

function whatToDo(i) {
  const folder = quoted(data.about.folder);
  const address = data.links[calls.number[i]];
  if (address) return saidWith("Run it alone: {0}", el("a", { href: address }, pathOf(address)));
  const write = command(`op-tools report ${folder} --judge --reproducers 1`);
  const show = command(`op-tools show ${folder} ${calls.number[i]}`);
  if (text("raised", i)) return saidWith("Read the message, then run the call alone: {0}", show);
  if (text("verdict", i) === "overflow") return saidWith("Use a wider dtype for it, or scale its inputs down: {0}", show);
  return [...saidWith("Look at {0} and at what it is given: {1}", text("op", i), show), el("br", {}), ...saidWith("Write a script that repeats it: {0}", write)];
}

function countsOf(wanted) {
  const found = new Map();
  for (let i = 0; i < count; i++) if (wanted(i)) found.set(text("op", i), (found.get(text("op", i)) || 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}

function aCall(kind, title, i, more) {
  const facts = el("dl", {});
  const fact = (name, ...content) => content.length && facts.append(el("dt", {}, say(name)), el("dd", {}, ...content));
  const why = [...whyWrong(i), elementSaid(i)].filter(Boolean).map((line) => el("p", {}, ...breakable(line)));
  fact("What", ...why);
  fact("Where", ...whereSaid(i));
  fact("What to do", ...whatToDo(i));
  return [el("h2", { class: kind }, ...breakable(title)), facts, ...more, el("p", {}, callButton(i, say("Show the call")))];
}

function mainConclusion() {
  if (!count) return [el("h2", { class: "warn" }, say("No calls")), el("p", {}, say("No calls were captured. Was the tool started before the model ran, and did its lists of operators let any through?"))];
  const judged = [...calls.verdict].filter((n) => texts[n] && texts[n] !== "skip").length;
  const bad = firstCall(isBad);
  if (bad >= 0) {
    const ops = countsOf(isBad);
    const named = ops.slice(0, 5).map(([op, n]) => `${op} ${n}`).join(", ") + (ops.length > 5 ? ", …" : "");
    const all = ops.reduce((sum, [, n]) => sum + n, 0);
    return aCall("error", say("First wrong call: {0} {1}", ...nameOf(bad)), bad, [el("p", {}, ...breakable(say("{0} of {1} judged calls are wrong: {2}.", all, judged, named)))]);
  }
  const raised = firstCall((i) => Boolean(text("raised", i)));
  if (raised >= 0) return aCall("error", say("First call that raised an error: {0} {1}", ...nameOf(raised)), raised, []);
  const warned = firstCall((i) => text("verdict", i) === "warn");
  if (warned >= 0) return aCall("warn", say("Imprecise, not wrong: call {0} {1}", ...nameOf(warned)), warned, []);
  if (!judged) {
    return [el("h2", { class: "warn" }, say("Not judged")),
      el("p", {}, say("{0} calls, {1} operators. None has a verdict.", count, new Set(calls.op).size)),
      el("p", {}, `${say("What to do")}: `, command(`op-tools report ${quoted(data.about.folder)} --judge`))];
  }
  const more = judged < count ? [el("p", {}, say("What is not judged is listed under Not judged, with the reason."))] : [];
  return [el("h2", { class: "pass" }, say("No call is wrong")), el("p", {}, say("{0} calls were judged against float64; each is within what rounding allows.", judged)), ...more];
}

// Where the results of two runs part.
function againstConclusion() {
  const other = data.against;
  const found = other && other.first;
  if (!other) return [];
  const lines = [];
  if (found) {
    const i = indexOfNumber.get(found.number);
    lines.push(el("h2", { class: "warn" }, ...breakable(say("Results first differ from B at call {0} {1}", ...nameOf(i)))));
    lines.push(el("p", {}, ...breakable(`${found.place}: ${found.text}`)));
    lines.push(el("p", {}, ...whereSaid(i)));
    lines.push(el("p", {}, ...breakable(found.inputs
      ? say("Its inputs differ already, and no call that was captured made them: {0}", found.inputs)
      : say("Its inputs agree in both runs: this operator is where they part."))));
    const [theirs, step] = [other.losses[calls.step[i]], data.steps.find(([n]) => n === calls.step[i])];
    if (step && step[3] !== null && theirs !== null && theirs !== undefined && number(theirs) !== number(step[3])) lines.push(el("p", {}, say("Its loss is {0} where B has {1}.", number(step[3]), number(theirs))));
    lines.push(el("p", {}, callButton(i, say("Show the call"))));
  } else if (other.compared) {
    lines.push(el("h2", { class: "pass" }, say("Results are the same as in B")), el("p", {}, say("All {0} matched calls gave the same results in both runs.", other.compared)));
  } else {
    lines.push(el("p", {}, say("Contents of tensors were not captured in both runs: whether results differ is not known.")));
  }
  return [el("div", { class: "verdict-box" }, ...lines)];
}

function drawConclusion() {
  const parts = [el("div", { class: "verdict-box" }, ...mainConclusion())];
  for (const [step, , , loss] of data.steps) {
    const value = decode(loss);
    if (typeof value === "number" && !Number.isFinite(value)) {
      parts[0].append(el("p", { class: "error" }, say("The loss of step {0} is {1}.", step, String(value))));
      break;
    }
  }
  if (data.problems.length) {
    const words = data.problems.length === 1 ? "{0} problem: a part of the capture could not be read." : "{0} problems: parts of the capture could not be read.";
    parts[0].append(el("p", {}, el("button", { type: "button", class: "op error", onclick: () => goTo("problems") }, say(words, data.problems.length))));
  }
  replace("conclusion", ...parts, ...againstConclusion());
}

// Brings a part of the page into sight.
function goTo(id) {
  const node = document.getElementById(id);
  (node.closest(".card") || node).scrollIntoView({ block: "start" });
  if (node.tabIndex >= 0) node.focus({ preventScroll: true });
}
