// SPDX-License-Identifier: Apache-2.0
// The chosen call.
const RESULT = ["result", "dtype", "verdict", "e", "over", "elements", "worst", "got", "expected", "abs", "rel", "cosine", "reason"];

function resultsOf(i) {
  return (data.results[i] || []).map((row) => Object.fromEntries(RESULT.map((name, n) => [name, row[n]])));
}

function simpleTable(heads, rows, kind) {
  const head = el("tr", {}, ...heads.map(([label, kind]) => el("th", { class: kind, scope: "col" }, say(label))));
  const body = rows.map((cells) => el("tr", {}, ...cells.map((content, n) => el("td", { class: heads[n][1] }, content))));
  return el("table", { class: kind || "" }, el("thead", {}, head), el("tbody", {}, ...body));
}

function callButton(i, ...label) {
  return el("button", { type: "button", class: "op", onclick: () => choose(i) }, ...label);
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
    replace("detail", el("p", { class: "hint" }, say("Choose a call: click a row, a point or a bar, or use the arrow keys in the table.")));
    return;
  }
  const facts = el("dl", {});
  const fact = (name, ...content) => facts.append(el("dt", {}, say(name)), el("dd", {}, ...content));
  const verdict = text("verdict", i);
  if (verdict) fact("Verdict", verdictMark(verdict), ` E ${errorText(i)}`);
  const why = verdict === "pass" ? [text("reason", i)] : whyWrong(i).filter((line) => line !== text("raised", i));
  if (why.some(Boolean)) fact("Why", ...why.filter(Boolean).map((line) => el("p", {}, ...breakable(line))));
  if (text("raised", i)) fact("Raised", el("span", { class: "error" }, ...breakable(text("raised", i))));
  fact("When", [say(text("phase", i)), say("step {0}", calls.step[i]), threadName(calls.thread[i]), say("at {0}", microseconds(fromFirst(calls.start[i])))].join(", "));
  fact("Took", microseconds(calls.took[i]) + (calls.device[i] === null ? "" : `, ${say("on the device {0}", microseconds(calls.device[i]))}`));
  if (calls.flops[i]) fact("Computes", `${quantity(calls.flops[i])}FLOP${tookOf[i] > 0 ? `, ${rate(calls.flops[i], tookOf[i])}FLOP/s` : ""}`);
  if (calls.bytes[i]) fact("Moves", `${bytesText(calls.bytes[i])}${tookOf[i] > 0 ? `, ${rate(calls.bytes[i], tookOf[i])}B/s` : ""}`);
  if (data.against && data.against.took[i] !== null) {
    const e = data.against.e[i];
    fact("Other run", `${microseconds(data.against.took[i])}${e === null ? "" : `, E ${eText(e)}`}`);
  }
  if (text("module", i)) fact("Module", ...breakable(text("module", i)));
  if (text("site", i)) fact("Called at", el("span", { class: "code" }, ...breakable(text("site", i))));
  if (text("api", i)) fact("API", ...breakable(text("api", i)));
  const forward = indexOfNumber.get(calls.forward[i]);
  if (forward !== undefined && forward !== i) fact("Forward", callButton(forward, `${say("call {0}", calls.forward[i])} ${text("op", forward)}`));
  if (text("signature", i)) fact("Call", el("span", { class: "code" }, ...breakable(text("signature", i))));
  const address = data.links[calls.number[i]];
  if (address) fact("Reproducer", el("a", { href: address }, pathOf(address)));
  const parts = [el("h3", {}, ...breakable(`${text("op", i)}  ${say("call {0}", calls.number[i])}`)), facts];
  const results = resultsOf(i);
  if (results.length) parts.push(el("h3", {}, say("Worst elements")), resultTable(results));
  const tensors = data.tensors[i] || [];
  if (tensors.length) parts.push(el("h3", {}, say("Exponents")));
  for (const [where, said, n] of tensors.slice(0, 24)) {
    parts.push(histogram(data.histograms[n], `${texts[where]} ${texts[said]}`));
  }
  replace("detail", ...parts);
}

function resultTable(results) {
  const heads = [["Result", ""], ["E", "n"], ["At", ""], ["Got", "n"], ["Float64", "n"], ["Over 1", "n"]];
  return simpleTable(heads, results.map((r) => [
    el("span", { class: r.verdict }, r.result), eText(r.e), place(r), number(r.got), number(r.expected), say("{0} of {1}", r.over ?? 0, r.elements ?? 0),
  ]));
}
