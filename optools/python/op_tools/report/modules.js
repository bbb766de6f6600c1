// SPDX-License-Identifier: Apache-2.0
// The tree of modules: time and E of each with all that is below it.
const OUTSIDE = "(outside modules)";
const opened = new Map(); // path -> was it opened or closed by hand
const ROWS_AT_FIRST = 24;
const DEEPEST = 40;

function moduleNode(path, name, depth) {
  return { path, name, depth, calls: 0, forward: 0, backward: 0, other: 0, worst: -1, bad: 0, worstCall: -1, flops: 0, below: new Map() };
}

function total(node) {
  return node.forward + node.backward + node.other;
}

function addCall(node, i) {
  const phase = text("phase", i);
  node.calls += 1;
  node[phase === "forward" || phase === "backward" ? phase : "other"] += Math.max(tookOf[i], 0);
  node.worst = Math.max(node.worst, errorOf[i]);
  node.flops += calls.flops[i] || 0;
  if (isWorse(i, node.worstCall)) node.worstCall = i;
  if (isWrong(i)) node.bad += 1;
}

// Calls counted in their module and in all above it.
function moduleTree() {
  const root = moduleNode("", "", 0);
  const known = new Map();
  for (let i = 0; i < count; i++) {
    const path = text("module", i) || OUTSIDE;
    let line = known.get(path);
    if (!line) {
      line = [root];
      const parts = path === OUTSIDE ? [OUTSIDE] : path.split(".", DEEPEST);
      parts.forEach((name, n) => {
        const above = line[line.length - 1];
        if (!above.below.has(name)) above.below.set(name, moduleNode(parts.slice(0, n + 1).join("."), name, n));
        line.push(above.below.get(name));
      });
      known.set(path, line);
    }
    for (const node of line) addCall(node, i);
  }
  return root;
}

// How deep the tree is open at first: as deep as fits.
function firstDepth(root) {
  let depth = 0;
  let level = [...root.below.values()];
  let rows = level.length;
  while (level.length) {
    level = level.flatMap((node) => [...node.below.values()]);
    rows += level.length;
    if (rows > ROWS_AT_FIRST) break;
    depth += 1;
  }
  return depth;
}

function drawModules() {
  const root = moduleTree();
  if (root.below.size === 0 || (root.below.size === 1 && root.below.has(OUTSIDE))) {
    replace("modules", el("p", { class: "hint" }, say("No module paths here: OpCapture has them, OpTimeMeasure with `module_paths = True`.")));
    return;
  }
  const depth = firstDepth(root);
  const rows = [];
  const walk = (node) => {
    for (const below of node.below.values()) {
      const isOpen = opened.get(below.path) ?? below.depth < depth;
      rows.push(moduleRow(below, isOpen, total(root)));
      if (isOpen) walk(below);
    }
  };
  walk(root);
  const heads = [["Module", "path"], ["Forward", "n roomy"], ["Backward", "n roomy"], ["Share", "n"], ["Worst E", "n"]];
  const head = el("tr", {}, ...heads.map(([label, kind]) => el("th", { class: kind, scope: "col" }, say(label))));
  replace("modules", el("table", { role: "treegrid", class: "fixed" }, el("thead", {}, head), el("tbody", {}, ...rows)));
}

function moduleRow(node, isOpen, whole) {
  const turn = node.below.size
    ? el("button", { type: "button", class: "turn", "aria-label": say(isOpen ? "Close {0}" : "Open {0}", node.path), onclick: () => {
        opened.set(node.path, !isOpen);
        drawModules();
      } }, isOpen ? "▾" : "▸")
    : el("span", { class: "turn" });
  const find = node.path === OUTSIDE ? "" : node.path;
  const name = el("td", { class: "path", title: `${node.path}: ${say(node.calls === 1 ? "{0} call" : "{0} calls", node.calls)}` }, turn,
    el("button", { type: "button", class: "op", onclick: () => change({ filter: find }) }, ...breakable(node.path === OUTSIDE ? say(OUTSIDE) : node.name)));
  name.style.paddingLeft = `${8 + node.depth * 16}px`;
  const attributes = { role: "row", "aria-level": node.depth + 1, "data-module": node.path };
  if (node.below.size) attributes["aria-expanded"] = String(isOpen);
  return el("tr", attributes, name,
    el("td", { class: "n roomy" }, node.forward ? microseconds(node.forward) : "–"),
    el("td", { class: "n roomy" }, node.backward ? microseconds(node.backward) : "–"),
    el("td", { class: "n" }, whole ? `${((100 * total(node)) / whole).toFixed(1)}%` : "–"),
    el("td", { class: "n" }, worstText(node.worst, node.bad, node.worstCall)));
}
