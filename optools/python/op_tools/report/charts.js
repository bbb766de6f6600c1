// SPDX-License-Identifier: Apache-2.0
// Scatter of E against time, the timeline, and histograms.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function palette() {
  const names = "text soft line card hover accent pass warn error overflow skip forward backward optimizer";
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
  const lines = [`${text("op", i)}  call ${calls.number[i]}`, `${microseconds(tookOf[i])}, ${text("phase", i)}, step ${calls.step[i]}`];
  if (verdict) lines.push(`${verdict}, E ${errorText(i)}`);
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
  return { left: left / pad, right: Math.max(right * pad, left * 10), top: Math.max(top * 3, 10), bottom: scatter.floor / 3 };
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
    ? "E is the error in units of what rounding allows: up to 1 passes, above 3 is wrong. Click a point to see the call."
    : "No verdicts here: `op-tools report DIR --judge` makes them, or save OpAutoCompare's results in the folder.";
  scatter.points = [];
  if (!judged) return;
  const range = scatterRange();
  const box = { left: 52, right: width - 10, top: 8, bottom: height - 30 };
  const x = (t) => box.left + (Math.log(t / range.left) / Math.log(range.right / range.left)) * (box.right - box.left);
  const y = (e) => box.bottom - (Math.log(e / range.bottom) / Math.log(range.top / range.bottom)) * (box.bottom - box.top);
  pen.fillStyle = ink.soft;
  pen.strokeStyle = ink.line;
  pen.textAlign = "right";
  logAxis(pen, range.bottom, range.top, (v, label) => {
    pen.beginPath();
    pen.moveTo(box.left, y(v));
    pen.lineTo(box.right, y(v));
    pen.stroke();
    pen.fillText(label, box.left - 6, y(v) + 4);
  }, (v) => String(Number(v.toPrecision(1))));
  pen.textAlign = "center";
  logAxis(pen, range.left, range.right, (v, label) => pen.fillText(label, x(v), box.bottom + 16), microseconds);
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

// ---- timeline ----------------------------------------------------------------------
const timeline = { from: 0, to: 1, all: [0, 1], lanes: [], step: "" };

// The calls of the chosen step, and the span of time they take.
function setTimeline(step) {
  let [from, to] = [Infinity, 0];
  const threads = new Set();
  timeline.step = step;
  for (let i = 0; i < count; i++) {
    if (calls.start[i] === null || (step !== "" && String(calls.step[i]) !== step)) continue;
    from = Math.min(from, calls.start[i]);
    to = Math.max(to, calls.start[i] + Math.max(calls.took[i] || 0, 0));
    threads.add(calls.thread[i]);
  }
  timeline.lanes = [...threads].sort((a, b) => a - b);
  const height = 30 + Math.min(Math.max(timeline.lanes.length, 1) * 46, 300);
  document.getElementById("timeline").style.height = `${height}px`;
  timeline.all = from < to ? [from, to] : [0, 1];
  [timeline.from, timeline.to] = timeline.all;
}

function laneBox(lane, height) {
  const each = Math.min(46, (height - 26) / Math.max(timeline.lanes.length, 1));
  return [4 + lane * each, Math.max(each - 4, 2)];
}

function drawTimeline(isShown, chosen) {
  const { pen, width, height } = surface(document.getElementById("timeline"));
  const ink = palette();
  const scale = (width - 70) / (timeline.to - timeline.from);
  const lanes = new Map(timeline.lanes.map((thread, lane) => [thread, lane]));
  pen.fillStyle = ink.soft;
  for (const [thread, lane] of lanes) {
    const [top, tall] = laneBox(lane, height);
    if (tall > 9) pen.fillText(`thread ${thread}`, 6, top + tall / 2 + 4);
  }
  pen.save();
  pen.beginPath();
  pen.rect(64, 0, width - 64, height);
  pen.clip();
  const bar = (i) => {
    const left = 66 + (calls.start[i] - timeline.from) * scale;
    const wide = Math.max((calls.took[i] || 0) * scale, isWrong(i) ? 2 : 1);
    if (left <= width && left + wide >= 64) drawBar(pen, ink, i, left, wide, laneBox(lanes.get(calls.thread[i]), height), isShown[i] || i === chosen);
    return [left, wide];
  };
  // What is wrong lies on top: it may be thinner than a pixel.
  const here = [];
  for (let i = 0; i < count; i++) {
    if (calls.start[i] !== null && (timeline.step === "" || String(calls.step[i]) === timeline.step)) here.push(i);
  }
  here.filter((i) => !isWrong(i)).forEach(bar);
  here.filter(isWrong).forEach(bar);
  if (here.includes(chosen)) {
    const [left, wide] = bar(chosen);
    const [top, tall] = laneBox(lanes.get(calls.thread[chosen]), height);
    pen.strokeStyle = ink.text;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, top - 1, wide + 2, tall + 2);
  }
  pen.restore();
  drawRuler(pen, ink, width, height, scale);
}

function isWrong(i) {
  const verdict = text("verdict", i);
  return verdict === "error" || verdict === "overflow";
}

function drawBar(pen, ink, i, left, wide, [top, tall], shown) {
  pen.globalAlpha = shown ? 1 : 0.18;
  pen.fillStyle = isWrong(i) ? ink.error : ink[text("phase", i)] || ink.skip;
  pen.fillRect(left, top, wide > 3 ? wide - 0.5 : wide, tall);
  if (wide > 46) {
    pen.fillStyle = ink.card;
    pen.fillText(clipped(text("op", i).replace("aten::", ""), wide), left + 4, top + tall / 2 + 4);
  }
}

function clipped(words, wide) {
  const room = Math.floor((wide - 6) / 6.2);
  return words.length <= room ? words : `${words.slice(0, Math.max(room - 1, 0))}…`;
}

function drawRuler(pen, ink, width, height, scale) {
  pen.globalAlpha = 1;
  pen.fillStyle = ink.soft;
  pen.textAlign = "center";
  const rough = (timeline.to - timeline.from) / Math.max((width - 70) / 110, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough);
  const begin = timeline.all[0];
  for (let t = Math.ceil((timeline.from - begin) / every) * every; begin + t <= timeline.to; t += every) {
    pen.fillText(microseconds(t), 66 + (begin + t - timeline.from) * scale, height - 6);
  }
}

function callAtTime(event) {
  const box = event.target.getBoundingClientRect();
  const scale = (box.width - 70) / (timeline.to - timeline.from);
  const at = timeline.from + (event.clientX - box.left - 66) / scale;
  const y = event.clientY - box.top;
  const lane = timeline.lanes.findIndex((_, n) => {
    const [top, tall] = laneBox(n, box.height);
    return y >= top && y <= top + tall;
  });
  const slack = 2 / scale;
  let found = -1;
  for (let i = 0; i < count && lane >= 0; i++) {
    const start = calls.start[i];
    if (start === null || calls.thread[i] !== timeline.lanes[lane]) continue;
    if (timeline.step !== "" && String(calls.step[i]) !== timeline.step) continue;
    if (at >= start - slack && at <= start + (calls.took[i] || 0) + slack) found = i; // the innermost
  }
  return found;
}

function zoom(factor, centre) {
  const [low, high] = timeline.all;
  const at = centre ?? (timeline.from + timeline.to) / 2;
  const span = Math.min(Math.max((timeline.to - timeline.from) * factor, 0.5), high - low);
  const share = (at - timeline.from) / (timeline.to - timeline.from);
  timeline.from = Math.min(Math.max(at - share * span, low), high - span);
  timeline.to = timeline.from + span;
}

function pan(share) {
  const [low, high] = timeline.all;
  const span = timeline.to - timeline.from;
  timeline.from = Math.min(Math.max(timeline.from + share * span, low), high - span);
  timeline.to = timeline.from + span;
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

// counts: [lowest power, counts, zeros, NaNs, infinities, looked at, all]
function histogram(counts, caption) {
  const [low, bins, zeros, nans, infinities, looked, all] = counts;
  const picture = svg("svg", { class: "histogram", viewBox: "0 0 400 84", preserveAspectRatio: "xMinYMin meet", role: "img", "aria-label": `Exponents of ${caption}` });
  const most = Math.max(...bins, 1);
  const wide = Math.min(396 / Math.max(bins.length, 1), 24);
  bins.forEach((n, b) => {
    const tall = n ? Math.max((n / most) * 64, 1) : 0;
    const bar = svg("rect", { x: 2 + b * wide, y: 68 - tall, width: Math.max(wide - 1, 0.5), height: tall });
    bar.append(svg("title", {}, `2^${low + b}: ${n}`));
    picture.append(bar);
  });
  picture.append(svg("line", { x1: 0, x2: 400, y1: 68.5, y2: 68.5 }));
  const every = Math.max(Math.ceil(30 / wide), 1);
  for (let b = 0; b < bins.length; b += every) {
    picture.append(svg("text", { x: 2 + b * wide, y: 80 }, `2^${low + b}`));
  }
  const parts = [`${looked} of ${all} elements`];
  if (zeros) parts.push(`${zeros} zero`);
  if (nans) parts.push(`${nans} NaN`);
  if (infinities) parts.push(`${infinities} infinite`);
  const range = NORMAL[caption.match(/b?float\d+/)?.[0]];
  const small = range ? bins.reduce((sum, n, b) => sum + (low + b < range[0] ? n : 0), 0) : 0;
  if (small) parts.push(`${small} subnormal`);
  return el("figure", {}, el("figcaption", {}, `${caption}: ${parts.join(", ")}`), picture);
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
