// What did each run do, and what does it do now?
import { byId, make, shown, style, text } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { PHASES, phaseOf, state } from "./state.js";
import { VirtualTable } from "./virtual.js";

const ROW = 26;
const NAMES = { held: "held", prefill: "prefill", decode: "decode", tool: "in a tool", approval: "awaits approval", idle: "idle", over: "over" };
const HEIGHTS = { held: 14, prefill: 14, decode: 14, tool: 6, approval: 14, idle: 2 };
const TICKS = [5, 10, 15, 30, 60, 120, 300];
const AXIS = 18;
const LANE_MIN = 24; // pixels; a narrower picture shows nothing

let table;
let axis;
let colours = {};
let hatch = null;
let hidden = new Set();
let drawn = 0; // the time at the right edge when it was drawn last
let pointer = null;

const spanMs = () => 1000 * Number(byId("span").value);

export function start(onSelect) {
  table = new VirtualTable(byId("timeline"), {
    label: "Runs and what they do",
    rowHeight: ROW,
    rowsMax: 22,
    canvas: true,
    key: (run) => run.number,
    select: onSelect,
    columns: [
      { title: "Run", track: "minmax(5.5rem, 13rem)", fill: (cell, run) => named(cell, run) },
      { title: "Caller", track: "minmax(4rem, 8rem)", className: "optional", fill: (cell, run) => text(cell, run.caller || "–") },
      { title: "Class", track: "6rem", className: "optional", fill: (cell, run) => text(cell, run.turn_class) },
      { title: "Doing", track: "minmax(6.5rem, 11rem)", fill: doing },
      { title: "For", track: "5.2rem", className: "num optional", fill: (cell, run) => text(cell, duration((Date.now() - phaseOf(run)[1]) / 1000)) },
      { title: "", track: "minmax(5rem, 5fr)", className: "lane", fill: (cell, run) => text(cell.firstChild || cell.appendChild(make("span", { className: "vh" })), lately(run)) },
    ],
  });
  table.headRow.lastChild.append(make("span", { className: "vh", textContent: "Lately" }), (axis = make("canvas", { className: "axis", "aria-hidden": "true" })));
  table.onDraw = draw;
  for (const phase of PHASES) byId("filters").append(filter(phase));
  byId("find").addEventListener("input", render);
  byId("span").addEventListener("change", render);
  document.addEventListener("themechange", readColours);
  table.body.addEventListener("pointermove", (event) => point(event));
  table.body.addEventListener("pointerleave", () => point(null));
  readColours();
  animate();
}

function filter(phase) {
  const button = make("button", { type: "button", className: `chip ${phase}` }, make("i", { className: `sw ${phase}` }), make("span", { textContent: NAMES[phase] }), make("b"));
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    if (!hidden.delete(phase)) hidden.add(phase);
    button.setAttribute("aria-pressed", String(!hidden.has(phase)));
    render();
  });
  return button;
}

function named(cell, run) {
  text(cell, run.run);
  const title = `${run.run} · ${run.model}${run.parent ? ` · below ${run.parent}` : ""}`;
  if (cell.title !== title) cell.title = title;
}

function doing(cell, run) {
  const [phase, , detail] = phaseOf(run);
  if (!cell.firstChild) cell.append(make("i"), make("span"));
  if (cell.firstChild.className !== `sw ${phase}`) cell.firstChild.className = `sw ${phase}`;
  const said = detail && phase !== "over" ? `${NAMES[phase]} · ${detail}` : NAMES[phase];
  text(cell.lastChild, said);
  if (cell.title !== said) cell.title = said;
}

/** The last three things that it did, for those who don't see the bars. */
function lately(run) {
  return stretches(run).slice(-4, -1).map(([phase, from, until]) => `${NAMES[phase]} ${duration((until - from) / 1000)}`).join(", ");
}

/** What a run did: [phase, from, until, detail] on the wall clock, oldest first. */
export function stretches(run) {
  const now = Date.now();
  const changes = run.changes;
  const found = changes.map(([at, phase, detail], index) => [phase, at + state.offset, index + 1 < changes.length ? changes[index + 1][0] + state.offset : now, detail]);
  for (const [from, until, tool] of state.approvals.get(run.run) || []) found.push(["approval", from, until ?? now, tool]);
  return found;
}

export function render() {
  const wanted = byId("find").value.trim().toLowerCase();
  const counts = Object.fromEntries(PHASES.map((phase) => [phase, 0]));
  const items = [];
  for (const run of state.runs.values()) {
    const phase = phaseOf(run)[0];
    counts[phase]++;
    if (hidden.has(phase)) continue;
    if (wanted && !`${run.run}\n${run.caller}\n${run.model}\n${run.replica}`.toLowerCase().includes(wanted)) continue;
    items.push(run);
  }
  items.sort((a, b) => b.number - a.number);
  [...byId("filters").children].forEach((button, index) => text(button.lastChild, count(counts[PHASES[index]])));
  shown(byId("timeline"), items.length > 0);
  shown(byId("no-runs"), !items.length);
  text(byId("no-runs"), state.runs.size ? "No run fits the filter." : "No run has been seen yet. Send a turn to the proxy and it appears here.");
  table.setItems(items);
}

export function selectedGone(number) {
  if (table.selected === number) table.selected = null;
}

// ---- the picture -------------------------------------------------------------------------------------------------

function readColours() {
  const css = getComputedStyle(document.documentElement);
  colours = Object.fromEntries([...PHASES, "line", "muted", "text", "surface"].map((name) => [name, css.getPropertyValue(`--${name}`).trim()]));
  hatch = null;
  if (table) draw();
}

function sized(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    style(canvas, "width", `${width}px`);
    style(canvas, "height", `${height}px`);
    hatch = null;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function stripes(pen) {
  if (hatch) return hatch;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const small = tile.getContext("2d");
  small.fillStyle = colours.held;
  small.fillRect(0, 0, 6, 6);
  small.strokeStyle = colours.surface;
  small.globalAlpha = 0.55;
  small.lineWidth = 1.4;
  for (const shift of [-6, 0, 6]) {
    small.beginPath();
    small.moveTo(shift, 6);
    small.lineTo(shift + 6, 0);
    small.stroke();
  }
  hatch = pen.createPattern(tile, "repeat");
  return hatch;
}

function draw() {
  if (!table.items.length) return;
  const lane = table.headRow.lastChild;
  const left = lane.offsetLeft;
  const width = Math.max(0, table.body.clientWidth - left);
  const height = table.body.clientHeight;
  style(table.canvas, "margin-left", `${left}px`);
  style(table.canvas, "margin-bottom", `${-height}px`);
  shown(table.canvas, width >= LANE_MIN);
  shown(axis, width >= LANE_MIN);
  if (width < LANE_MIN) return;
  const pen = sized(table.canvas, width, height);
  const now = Date.now();
  const from = now - spanMs();
  const scale = width / spanMs();
  drawn = now;
  ticks(pen, from, scale, width, height);
  const first = table.first;
  const last = Math.min(table.items.length, first + Math.ceil(height / ROW) + 1);
  for (let index = first; index < last; index++) lane_(pen, table.items[index], index * ROW - table.body.scrollTop, from, scale, width);
  if (pointer) hover(pen, from, scale, height);
}

function lane_(pen, run, top, from, scale, width) {
  const middle = top + ROW / 2;
  for (const [phase, start, until] of stretches(run)) {
    const right = Math.min(width, (until - from) * scale);
    if (right < 0) continue;
    const left = Math.max(0, (start - from) * scale);
    if (phase === "over") {
      pen.fillStyle = colours.idle;
      if (start >= from) pen.fillRect(left - 1, middle - 4, 2, 8);
      continue;
    }
    pen.fillStyle = phase === "held" ? stripes(pen) : colours[phase];
    const tall = HEIGHTS[phase];
    pen.fillRect(left, middle - tall / 2, Math.max(1, right - left - (tall > 6 && right - left > 3 ? 0.5 : 0)), tall);
  }
}

function ticks(pen, from, scale, width, height) {
  const step = 1000 * (TICKS.find((seconds) => seconds * 1000 * scale >= 84) || 300);
  const head = sized(axis, width, AXIS);
  head.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  head.fillStyle = colours.muted;
  head.textBaseline = "middle";
  pen.fillStyle = colours.line;
  for (let at = Math.ceil(from / step) * step; ; at += step) {
    const x = Math.round((at - from) * scale);
    if (x > width) break;
    pen.fillRect(x, 0, 1, height);
    const label = clock(at);
    if (x + 50 <= width) head.fillText(label, x + 3, AXIS / 2);
    head.fillRect(x, 4, 1, AXIS);
  }
}

/** Drawn again as soon as the picture has moved by half a pixel, and not while nobody looks. */
function animate() {
  const moves = (spanMs() / Math.max(1, table.canvas.clientWidth)) * 0.5;
  if (!document.hidden && table.items.length && Date.now() - drawn >= Math.max(moves, 33)) draw();
  requestAnimationFrame(animate);
}

// ---- what is under the pointer -----------------------------------------------------------------------------------

function point(event) {
  const box = table.body.getBoundingClientRect();
  const left = table.headRow.lastChild.offsetLeft;
  pointer = event && event.clientX - box.left >= left && table.items.length ? { x: event.clientX - box.left - left, y: event.clientY - box.top, clientX: event.clientX, clientY: event.clientY } : null;
  shown(byId("tip"), false);
  draw();
}

function hover(pen, from, scale, height) {
  pen.fillStyle = colours.muted;
  pen.fillRect(Math.round(pointer.x), 0, 1, height);
  const run = table.items[Math.floor((pointer.y + table.body.scrollTop) / ROW)];
  if (!run) return;
  const at = from + pointer.x / scale;
  const found = stretches(run).findLast(([, start, until]) => start <= at && at <= until);
  const tip = byId("tip");
  const what = found ? `${NAMES[found[0]]}${found[3] ? ` · ${found[3]}` : ""}, ${duration((found[2] - found[1]) / 1000)}` : "nothing known";
  text(tip, `${run.run}\n${clock(at)}  ${what}`);
  shown(tip, true);
  const right = pointer.clientX + 14 + tip.offsetWidth > innerWidth;
  style(tip, "left", `${right ? pointer.clientX - 14 - tip.offsetWidth : pointer.clientX + 14}px`);
  style(tip, "top", `${Math.min(pointer.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`);
}

export { NAMES };
