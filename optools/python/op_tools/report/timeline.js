// SPDX-License-Identifier: Apache-2.0
// Calls over time: a lane per thread for launches, one for the device, and the memory under them.
let SIDE = 116; // pixels for the names of lanes
const LANE = 40;
const DEVICE = "device";
// Of all calls: a tool may have seen some before the first one that was kept.
const firstStart = calls.start.reduce((least, start) => (start === null ? least : Math.min(least, start)), Infinity);
const timeline = { from: 0, to: 1, all: [0, 1], lanes: [], step: "" };

function inStep(i) {
  return timeline.step === "" || String(calls.step[i]) === timeline.step;
}

function threadName(thread) {
  const name = data.threads[thread];
  return name === "main" ? say(name) : (name || say("thread {0}", thread)).slice(0, 80);
}

// A time since the first call that is shown.
function fromFirst(start) {
  return start === null ? null : start - firstStart;
}

// [begin, length] of a call in a lane; null where it is not there.
function spanIn(lane, i) {
  if (!inStep(i)) return null;
  if (lane === DEVICE) return calls.device_start[i] === null ? null : [calls.device_start[i], calls.device[i]];
  return calls.start[i] === null || calls.thread[i] !== lane ? null : [calls.start[i], calls.took[i] || 0];
}

// The calls of the chosen step, and the span of time they take.
function setTimeline(step) {
  let [from, to] = [Infinity, -Infinity];
  const threads = new Set();
  let onDevice = false;
  timeline.step = step;
  for (let i = 0; i < count; i++) {
    if (calls.start[i] === null || !inStep(i)) continue;
    from = Math.min(from, calls.start[i]);
    to = Math.max(to, calls.start[i] + Math.max(calls.took[i] || 0, 0));
    threads.add(calls.thread[i]);
    if (calls.device_start[i] !== null) {
      onDevice = true;
      to = Math.max(to, calls.device_start[i] + calls.device[i]);
    }
  }
  timeline.lanes = [...threads].sort((a, b) => a - b);
  if (onDevice) timeline.lanes.push(DEVICE);
  const height = 26 + Math.min(Math.max(timeline.lanes.length, 1) * LANE, 320);
  document.getElementById("timeline").style.height = `${height}px`;
  timeline.all = from < to ? [from, to] : [0, 1];
  [timeline.from, timeline.to] = timeline.all;
}

function laneBox(lane, height) {
  const each = Math.min(LANE, (height - 22) / Math.max(timeline.lanes.length, 1));
  return [4 + lane * each, Math.max(each - 4, 2)];
}

function timeScale(width) {
  return (width - SIDE - 4) / (timeline.to - timeline.from);
}

function drawTimeline(isShown, chosen) {
  const { pen, width, height } = surface(document.getElementById("timeline"));
  SIDE = width < 600 ? 64 : 116;
  const ink = palette();
  pen.fillStyle = ink.soft;
  timeline.lanes.forEach((lane, n) => {
    const [top, tall] = laneBox(n, height);
    const name = lane === DEVICE ? say("device") : threadName(lane);
    if (tall > 9) pen.fillText(fitted(pen, name, SIDE - 14), 6, top + tall / 2 + 4);
  });
  pen.save();
  pen.beginPath();
  pen.rect(SIDE - 2, 0, width - SIDE + 2, height);
  pen.clip();
  timeline.lanes.forEach((lane, n) => drawLane(pen, ink, lane, laneBox(n, height), width, isShown, chosen));
  pen.restore();
  drawRuler(pen, ink, width, height);
  drawMemory();
}

function drawLane(pen, ink, lane, [top, tall], width, isShown, chosen) {
  const scale = timeScale(width);
  const bar = (i) => {
    const span = spanIn(lane, i);
    if (!span) return;
    const left = SIDE + (span[0] - timeline.from) * scale;
    const wide = Math.max(span[1] * scale, isWrong(i) ? 2 : 1);
    if (left > width || left + wide < SIDE - 2) return;
    drawBar(pen, ink, i, left, wide, [top, tall], isShown[i] || i === chosen);
    if (i !== chosen) return;
    pen.strokeStyle = ink.text;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, top - 1, wide + 2, tall + 2);
  };
  // What is wrong lies on top: it may be thinner than a pixel.
  for (let i = 0; i < count; i++) if (!isWrong(i)) bar(i);
  for (let i = 0; i < count; i++) if (isWrong(i)) bar(i);
  if (chosen >= 0) bar(chosen);
}

function isWrong(i) {
  const verdict = text("verdict", i);
  return verdict === "error" || verdict === "overflow";
}

function drawBar(pen, ink, i, left, wide, [top, tall], shown) {
  pen.globalAlpha = shown ? 1 : 0.18;
  pen.fillStyle = isWrong(i) ? ink.error : ink[text("phase", i)] || ink.skip;
  pen.fillRect(left, top, wide > 3 ? wide - 0.5 : wide, tall);
  if (wide > 30) {
    const words = fitted(pen, text("op", i).replace("aten::", ""), wide - 8);
    pen.fillStyle = ink.card;
    if (words.length > 2) pen.fillText(words, left + 4, top + tall / 2 + 4);
  }
  pen.globalAlpha = 1;
}

// As much of a text as fits.
function fitted(pen, words, wide) {
  if (words.length < 200 && pen.measureText(words).width <= wide) return words;
  let length = Math.min(words.length - 1, 200);
  while (length > 0 && pen.measureText(`${words.slice(0, length)}…`).width > wide) length--;
  return length > 0 ? `${words.slice(0, length)}…` : "";
}

function drawRuler(pen, ink, width, height) {
  const scale = timeScale(width);
  pen.fillStyle = ink.soft;
  pen.textAlign = "center";
  const rough = (timeline.to - timeline.from) / Math.max((width - SIDE) / 110, 1);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((m) => m * unit).find((step) => step >= rough);
  const begin = timeline.all[0];
  for (let t = Math.ceil((timeline.from - begin) / every) * every; begin + t <= timeline.to; t += every) {
    const at = SIDE + (begin + t - timeline.from) * scale;
    if (at < width - 24) pen.fillText(microseconds(t).replace(/^0\.00 µs/, "0"), at, height - 6);
  }
}

// ---- memory --------------------------------------------------------------------------
function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = 0;
  let value = bytes;
  while (value >= 1024 && n < units.length - 1) [value, n] = [value / 1024, n + 1];
  return `${n ? trim(value) : value} ${units[n]}`;
}

function drawMemory() {
  const memory = data.memory;
  const canvas = document.getElementById("memory");
  canvas.hidden = !memory || !memory.points.length;
  if (canvas.hidden) return;
  const { pen, width, height } = surface(canvas);
  const ink = palette();
  const scale = timeScale(width);
  const x = (t) => SIDE + (t - timeline.from) * scale;
  const most = Math.max(memory.peak[0], 1);
  const y = (bytes) => height - 4 - (bytes / most) * (height - 18);
  pen.fillStyle = ink.soft;
  pen.fillText(say("memory"), 6, 24);
  pen.fillText(memory.device, 6, 38);
  pen.fillText(bytesText(memory.peak[0]), 6, 52);
  pen.save();
  pen.beginPath();
  pen.rect(SIDE, 0, width - SIDE, height);
  pen.clip();
  area(pen, memory.points.map(([t, made, kept]) => [x(t), y(made + kept)]), y(0), ink.memory, width);
  area(pen, memory.points.map(([t, , kept]) => [x(t), y(kept)]), y(0), ink.kept, width);
  pen.restore();
  pen.strokeStyle = ink.line;
  pen.strokeRect(SIDE - 0.5, y(most) - 0.5, width - SIDE, y(0) - y(most));
}

// Steps from point to point, filled down to a line.
function area(pen, points, bottom, fill, width) {
  pen.beginPath();
  pen.moveTo(points[0][0], bottom);
  points.forEach(([px, py], n) => {
    pen.lineTo(px, py);
    pen.lineTo(n + 1 < points.length ? points[n + 1][0] : Math.min(px + 2, width), py);
  });
  pen.lineTo(Math.min(points.at(-1)[0] + 2, width), bottom);
  pen.closePath();
  pen.fillStyle = fill;
  pen.fill();
}

function memoryAt(event) {
  const memory = data.memory;
  if (!memory || !memory.points.length) return "";
  const box = event.target.getBoundingClientRect();
  const at = timeline.from + (event.clientX - box.left - SIDE) / timeScale(box.width);
  let found = null;
  for (const point of memory.points) {
    if (point[0] > at) break;
    found = point;
  }
  if (!found) return "";
  return [[found[1] + found[2], "in use"], [found[1], "made by operators"], [found[2], "there before"]].map(([n, words]) => `${bytesText(n)} ${say(words)}`).join("\n");
}

// ---- pointing ------------------------------------------------------------------------
function callAtTime(event) {
  const box = event.target.getBoundingClientRect();
  const scale = timeScale(box.width);
  const at = timeline.from + (event.clientX - box.left - SIDE) / scale;
  const y = event.clientY - box.top;
  const lane = timeline.lanes.findIndex((_, n) => {
    const [top, tall] = laneBox(n, box.height);
    return y >= top && y <= top + tall;
  });
  const slack = 2 / scale;
  let found = -1;
  for (let i = 0; i < count && lane >= 0; i++) {
    const span = spanIn(timeline.lanes[lane], i);
    if (span && at >= span[0] - slack && at <= span[0] + span[1] + slack) found = i; // the innermost
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
