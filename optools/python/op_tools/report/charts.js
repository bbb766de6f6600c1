// SPDX-License-Identifier: Apache-2.0
// Scatter of E against time, and histograms.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function palette() {
  const names = "text soft line card hover accent pass warn error overflow skip forward backward optimizer device memory kept";
  return Object.fromEntries(names.split(" ").map((name) => [name, colour(name)]));
}

// The drawing surface, cleared, in pixels of the page.
function surface(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

function tip(event, words) {
  const node = document.getElementById("tip");
  node.hidden = !words;
  if (!words) return;
  node.textContent = words;
  node.style.left = `${Math.min(event.clientX + 12, window.innerWidth - node.offsetWidth - 8)}px`;
  node.style.top = `${Math.min(event.clientY + 14, window.innerHeight - node.offsetHeight - 8)}px`;
}

function callTip(i) {
  const verdict = text("verdict", i);
  const lines = [`${text("op", i)}  ${say("call {0}", calls.number[i])}`, `${microseconds(tookOf[i])}, ${say(text("phase", i))}, ${say("step {0}", calls.step[i])}`];
  if (verdict) lines.push(`${say(verdict)}, E ${errorText(i)}`);
  if (text("module", i)) lines.push(text("module", i));
  return lines.join("\n");
}

// ---- scatter -----------------------------------------------------------------------
const scatter = { points: [], floor: 1e-6 };

function scatterRange() {
  let [left, right, top, bottom] = [Infinity, 0, 3, Infinity];
  for (let i = 0; i < count; i++) {
    if (errorOf[i] < 0 || tookOf[i] <= 0) continue;
    left = Math.min(left, tookOf[i]);
    right = Math.max(right, tookOf[i]);
    if (Number.isFinite(errorOf[i])) top = Math.max(top, errorOf[i]);
    if (errorOf[i] > 0) bottom = Math.min(bottom, errorOf[i]);
  }
  scatter.floor = Math.max(Math.min(bottom, 0.1), 1e-6);
  const pad = 1.3;
  return { left: left / pad, right: Math.max(right * pad, left * 10), top: Math.max(top * 3, 10), bottom: scatter.floor / 3, beyond: errorOf.includes(Infinity) };
}

function logAxis(pen, from, to, place, label) {
  for (let p = Math.ceil(Math.log10(from)); p <= Math.floor(Math.log10(to)); p++) {
    place(10 ** p, label(10 ** p));
  }
}

function drawScatter(isShown) {
  const { pen, width, height } = surface(document.getElementById("scatter"));
  const ink = palette();
  const judged = errorOf.some((e) => e >= 0);
  document.getElementById("scatter-hint").textContent = judged
    ? say("E is the error in units of what rounding allows: up to 1 passes, above 3 is wrong. Click a point to see the call.")
    : say("No verdicts here: `op-tools report DIR --judge` makes them, or save OpAutoCompare's results in the folder.");
  scatter.points = [];
  if (!judged) return;
  const range = scatterRange();
  const box = { left: 52, right: width - 10, top: 14, bottom: height - 30 };
  const x = (t) => box.left + (Math.log(t / range.left) / Math.log(range.right / range.left)) * (box.right - box.left);
  const y = (e) => box.bottom - (Math.log(e / range.bottom) / Math.log(range.top / range.bottom)) * (box.bottom - box.top);
  pen.fillStyle = ink.soft;
  pen.strokeStyle = ink.line;
  pen.textAlign = "right";
  let lowest = Infinity;
  logAxis(pen, range.bottom, range.top, (v, label) => {
    pen.beginPath();
    pen.moveTo(box.left, y(v));
    pen.lineTo(box.right, y(v));
    pen.stroke();
    if (lowest - y(v) < 14) return; // no room for one more
    lowest = y(v);
    pen.fillText(label, box.left - 6, y(v) + 4);
  }, (v) => (v >= 1e4 || v < 1e-3 ? power(Math.round(Math.log10(v)), 10) : String(Number(v.toPrecision(1)))));
  pen.textAlign = "center";
  let free = -Infinity;
  logAxis(pen, range.left, range.right, (v, label) => {
    const half = pen.measureText(label).width / 2 + 6;
    if (x(v) - half < free || x(v) + half > width) return;
    free = x(v) + half;
    pen.fillText(label, x(v), box.bottom + 16);
  }, (v) => microseconds(v).replace(/\.0+(?= )/, ""));
  for (const [limit, name] of [[1, "warn"], [3, "error"]]) {
    pen.strokeStyle = ink[name];
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(box.left, y(limit));
    pen.lineTo(box.right, y(limit));
    pen.stroke();
    pen.setLineDash([]);
  }
  drawPoints(pen, ink, isShown, x, y, range);
  pen.globalAlpha = 1;
  if (range.beyond) {
    pen.fillStyle = ink.soft;
    pen.textAlign = "left";
    pen.fillText(say(NOT_FINITE), box.left + 4, box.top + 9);
  }
}

function drawPoints(pen, ink, isShown, x, y, range) {
  const order = ["skip", "pass", "warn", "overflow", "error"];
  for (const verdict of order) {
    pen.fillStyle = ink[verdict];
    const radius = verdict === "pass" ? 2.5 : 4;
    for (let i = 0; i < count; i++) {
      if (errorOf[i] < 0 || tookOf[i] <= 0 || text("verdict", i) !== verdict) continue;
      const e = Math.min(Math.max(errorOf[i], scatter.floor / 2), range.top / 1.1);
      const [px, py] = [x(tookOf[i]), y(e)];
      pen.globalAlpha = isShown[i] ? 0.75 : 0.08;
      pen.beginPath();
      pen.arc(px, py, radius, 0, 2 * Math.PI);
      pen.fill();
      scatter.points.push([px, py, i]);
    }
  }
}

function pointAt(event) {
  const box = event.target.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = 100;
  let found = -1;
  for (const [px, py, i] of scatter.points) {
    const far = (px - x) ** 2 + (py - y) ** 2;
    if (far <= best) [best, found] = [far, i];
  }
  return found;
}

// ---- histograms --------------------------------------------------------------------
// Powers of two between which a dtype's numbers are normal.
const NORMAL = { float16: [-14, 15], bfloat16: [-126, 127], float32: [-126, 127], float64: [-1022, 1023] };

function svg(tag, attributes, words) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (words !== undefined) node.textContent = words;
  return node;
}

const LABEL = 40; // units of the picture

function power(p, base = 2) {
  return `${base}${[...String(p)].map((digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])).join("")}`;
}

// counts: [lowest power, counts, zeros, NaNs, infinities, looked at, all]
function histogram(counts, caption) {
  const [low, bins, zeros, nans, infinities, looked, all] = counts;
  const picture = svg("svg", { class: "histogram", viewBox: "0 0 400 84", preserveAspectRatio: "xMinYMin meet", role: "img", "aria-label": say("Exponents of {0}", caption) });
  const most = Math.max(...bins, 1);
  const wide = Math.min(396 / Math.max(bins.length, 1), 24);
  bins.forEach((n, b) => {
    const tall = n ? Math.max((n / most) * 64, 1) : 0;
    const bar = svg("rect", { x: 2 + b * wide, y: 68 - tall, width: Math.max(wide - 1, 0.5), height: tall });
    bar.append(svg("title", {}, `2^${low + b}: ${n}`));
    picture.append(bar);
  });
  picture.append(svg("line", { x1: 0, x2: 400, y1: 68.5, y2: 68.5 }));
  // Multiples of a round number, so far apart that the widest (2⁻¹⁰²²) has room.
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((n) => n * wide >= LABEL) || 1000;
  for (let p = Math.ceil(low / every) * every; p < low + bins.length; p += every) {
    const at = 2 + (p - low + 0.5) * wide;
    if (at <= 400 - LABEL / 2) picture.append(svg("text", { x: Math.max(at, LABEL / 3), y: 80, "text-anchor": "middle" }, power(p)));
  }
  const parts = [say("{0} of {1} elements", looked, all)];
  if (zeros) parts.push(`${zeros} ${say("zero")}`);
  if (nans) parts.push(`${nans} NaN`);
  if (infinities) parts.push(`${infinities} ${say("infinite")}`);
  const range = NORMAL[caption.match(/b?float\d+/)?.[0]];
  const small = range ? bins.reduce((sum, n, b) => sum + (low + b < range[0] ? n : 0), 0) : 0;
  if (small) parts.push(`${small} ${say("subnormal")}`);
  return el("figure", {}, el("figcaption", {}, ...breakable(`${caption}: ${parts.join(", ")}`)), picture);
}

function addCounts(sum, counts) {
  if (counts[1].length) {
    const low = sum[1].length ? Math.min(sum[0], counts[0]) : counts[0];
    const high = Math.max(sum[0] + sum[1].length, counts[0] + counts[1].length);
    const bins = new Array(high - low).fill(0);
    sum[1].forEach((n, b) => (bins[sum[0] + b - low] += n));
    counts[1].forEach((n, b) => (bins[counts[0] + b - low] += n));
    [sum[0], sum[1]] = [low, bins];
  }
  for (let k = 2; k < 7; k++) sum[k] += counts[k];
}
