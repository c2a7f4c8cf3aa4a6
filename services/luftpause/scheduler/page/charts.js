// How did held turns, placements and tokens go over the last quarter of an hour?
import { byId, make, text } from "./dom.js";
import { clock, compact, count, percent, rate } from "./format.js";
import { state } from "./state.js";

const HEIGHT = 150;
const SPAN_SECONDS_MIN = 180;
const GAP_MS = 7000; // between two samples: nothing was known meanwhile
const COLUMNS = { at: 0, heldInteractive: 1, heldBatch: 2, interactive: 3, batch: 4, placements: 5, over: 6, prompt: 7, cached: 8, completion: 9 };

const CHARTS = [
  {
    id: "chart-turns",
    title: "Turns in flight and held",
    series: [
      { name: "interactive", colour: "interactive", read: (s) => s[COLUMNS.interactive], fill: true },
      { name: "batch", colour: "batch", read: (s) => s[COLUMNS.batch], fill: true },
      { name: "held", colour: "held", read: (s) => s[COLUMNS.heldInteractive] + s[COLUMNS.heldBatch], dash: [5, 3] },
    ],
    say: count,
  },
  {
    id: "chart-rate",
    title: "Turns per second",
    series: [
      { name: "placed", colour: "decode", rate: (s) => s[COLUMNS.placements], fill: true },
      { name: "over", colour: "muted", rate: (s) => s[COLUMNS.over], dash: [2, 3] },
    ],
    say: rate,
  },
  {
    id: "chart-tokens",
    title: "Tokens per second",
    series: [
      { name: "cached", colour: "tool", rate: (s) => s[COLUMNS.cached], fill: true },
      { name: "computed", colour: "prefill", rate: (s) => s[COLUMNS.prompt] - s[COLUMNS.cached] },
      { name: "generated", colour: "decode", rate: (s) => s[COLUMNS.completion], dash: [5, 3] },
    ],
    say: (value) => (value >= 1000 ? compact(value) : rate(value)),
    note: () => {
      const [first, last] = [state.samples.at(-31) || state.samples[0], state.samples.at(-1)];
      const prompt = last ? last[COLUMNS.prompt] - first[COLUMNS.prompt] : 0;
      return prompt > 0 ? `${percent((last[COLUMNS.cached] - first[COLUMNS.cached]) / prompt)} cached` : "";
    },
  },
];

export function start() {
  for (const chart of CHARTS) {
    const figure = byId(chart.id);
    chart.legend = make("ul", { className: "legend" });
    for (const each of chart.series) {
      chart.legend.append(make("li", {}, make("i", { className: `sw ${each.colour}${each.dash ? " dashed" : ""}` }), make("span", { textContent: each.name }), make("b")));
    }
    chart.area = make("div", { className: "plot", role: "img" });
    chart.aside = make("span", { className: "note" });
    figure.append(make("figcaption", {}, make("h2", { textContent: chart.title }), chart.aside), chart.legend, chart.area);
    new ResizeObserver(() => chart.plot && chart.plot.setSize({ width: chart.area.clientWidth, height: HEIGHT })).observe(chart.area);
  }
  document.addEventListener("themechange", () => {
    for (const chart of CHARTS) {
      if (chart.plot) chart.plot.destroy();
      chart.plot = null;
    }
    render();
  });
}

export function render() {
  for (const chart of CHARTS) {
    const data = dataOf(chart);
    if (!chart.plot) chart.plot = plotOf(chart, data);
    else chart.plot.setData(data);
    if (chart.plot.cursor.idx === null || chart.plot.cursor.idx === undefined) legend(chart, data[0].length - 1);
    const said = chart.series.map((each, index) => `${each.name} ${chart.say(data[index + 1].at(-1) ?? 0)}`).join(", ");
    chart.area.setAttribute("aria-label", `${chart.title}, now: ${said}`);
    if (chart.note) text(chart.aside, chart.note());
  }
}

/** uPlot's columns: seconds, then one per series; a gap where no sample was taken. */
function dataOf(chart) {
  const data = [[], ...chart.series.map(() => [])];
  const samples = state.samples;
  for (let index = 0; index < samples.length; index++) {
    const [now, before] = [samples[index], samples[index - 1]];
    const seconds = before ? (now[0] - before[0]) / 1000 : 0;
    const gap = before && now[0] - before[0] > GAP_MS;
    data[0].push((now[0] + state.offset) / 1000);
    chart.series.forEach((each, at) => {
      const value = each.read ? each.read(now) : before && seconds > 0 ? Math.max(0, each.rate(now) - each.rate(before)) / seconds : null;
      data[at + 1].push(gap ? null : value);
    });
  }
  return data;
}

function plotOf(chart, data) {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const options = {
    width: chart.area.clientWidth || 300,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true, range: (_, low, high) => [Math.min(low ?? 0, (high ?? 0) - SPAN_SECONDS_MIN), high ?? 0] }, y: { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.12)] } },
    axes: [
      { ...axis, size: 24, space: 70, values: (_, at) => at.map((each) => clock(1000 * each).slice(0, 5)), incrs: [60, 120, 180, 300, 600, 900] },
      { ...axis, size: 44, values: (_, at) => at.map((each) => count(each)), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7] },
    ],
    series: [
      {},
      ...chart.series.map((each) => ({
        label: each.name,
        stroke: colour(each.colour),
        width: 1.75,
        dash: each.dash,
        fill: each.fill ? `${colour(each.colour)}26` : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: { setCursor: [(plot) => legend(chart, plot.cursor.idx ?? plot.data[0].length - 1, plot.data)] },
  };
  return new uPlot(options, data, chart.area);
}

function legend(chart, index, data = chart.plot.data) {
  chart.series.forEach((_, at) => text(chart.legend.children[at].lastChild, chart.say(data[at + 1][index] ?? 0)));
}
