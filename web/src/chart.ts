// One chart of the timeline: curves with their least and most, limits, findings as bands, events as marks.

import uPlot from "uplot";
import { least, most, type Curve, type Page, type Panel, type Values } from "./document";
import { variable } from "./dom";
import { isBinary, show } from "./units";
import type { View } from "./view";

/** Room for the numbers at the left, the same in every chart, so that times stand below each other. */
export const GUTTER = 76;
/** Charts share their pointer. */
const SYNC = "backwater";
/** A limit has room on a chart where it is no more than so many times what was measured; else it would flatten the curves. */
const NEAR = 2.5;
/** Dashes that tell lines apart without colour. */
const DASHES: number[][] = [[], [7, 3], [2, 3], [10, 3, 2, 3], [4, 2]];

/** How a curve is drawn. */
export interface Look {
  colour: string;
  dash: number[];
  width: number;
}

export function look(panel: Panel, curve: Curve): Look {
  if (curve.role === "hard_limit") return { colour: variable("limit"), dash: [8, 4], width: 1.5 };
  if (curve.role === "soft_limit") return { colour: variable("soft"), dash: [2, 4], width: 1.5 };
  const place = panel.curves.filter((other) => other.role === "line").indexOf(curve);
  return { colour: variable(`line-${place % 5}`), dash: DASHES[place % DASHES.length] ?? [], width: 1.6 };
}

/** From where to where a chart reaches over what is looked at: all of its lines, and limits wherever they are near to these. */
export function reach(page: Page, view: View, panel: Panel): { low: number; high: number } {
  const { count } = page.axis;
  const [first, end] = view.pieces();
  const each = (values: Values, act: (value: number) => void) => {
    for (let piece = first; piece < end; piece += 1) if (values[piece] !== null) act(values[piece]!);
  };
  let [low, high] = [0, 0];
  for (const { role, series } of panel.curves) {
    if (role !== "line") continue;
    each(least(page.series[series]!, count), (value) => (low = Math.min(low, value)));
    each(most(page.series[series]!, count), (value) => (high = Math.max(high, value)));
  }
  const near = NEAR * high;
  for (const { role, series } of panel.curves) {
    if (role !== "line") each(most(page.series[series]!, count), (value) => value <= near && (high = Math.max(high, value)));
  }
  return { low, high };
}

/** What a chart draws: its numbers, how each is drawn, and what is shaded between least and most. */
interface Columns {
  data: uPlot.AlignedData;
  series: uPlot.Series[];
  bands: uPlot.Band[];
}

function columns(page: Page, view: View, panel: Panel): Columns {
  const { count, step_s } = page.axis;
  const times = Array.from({ length: count }, (_, piece) => view.x((piece + 0.5) * step_s));
  const data: (number | null)[][] = [times];
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  for (const curve of panel.curves) {
    const values = page.series[curve.series]!;
    const { colour, dash, width: thick } = look(panel, curve);
    data.push(most(values, count));
    // A reading alone between two holes is a dot, not nothing.
    const points = { show: curve.role === "line" ? undefined : false, size: 3, fill: colour };
    series.push({ label: values.label, stroke: colour, width: thick, dash, points } as uPlot.Series);
    if (values.min) {
      data.push(least(values, count));
      series.push({ label: `${values.label}, least`, stroke: colour, width: 0.5, points: { show: false } });
      bands.push({ series: [series.length - 2, series.length - 1], fill: `${colour}40` });
    }
  }
  return { data: data as uPlot.AlignedData, series, bands };
}

/** Gives a chart the numbers of a newer document; false where its curves are others, so that it must be made anew. */
export function renewed(plot: uPlot, page: Page, view: View, panel: Panel): boolean {
  const { data, series } = columns(page, view, panel);
  const same = series.length === plot.series.length && series.every((one, place) => place === 0 || one.label === plot.series[place]?.label);
  if (!same) return false;
  plot.setData(data, false);
  plot.setScale("x", { min: view.x(view.stretch.from), max: view.x(view.stretch.to) });
  return true;
}

/** The height of a chart; the last one has the times below it. */
export const heightOf = (last: boolean) => (last ? 168 : 138);

/** A chart of this panel in `host`, as wide as told. */
export function chart(page: Page, view: View, panel: Panel, host: HTMLElement, width: number, first: boolean, last: boolean): uPlot {
  const { data, series, bands } = columns(page, view, panel);
  const plot = new uPlot(
    {
      width,
      height: heightOf(last),
      padding: [8, 8, last ? 0 : 4, 0],
      legend: { show: false },
      cursor: { sync: { key: SYNC, setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      scales: { x: { time: page.axis.from_unix_ms !== null, range: () => [view.x(view.stretch.from), view.x(view.stretch.to)] }, y: { range: () => range(reach(page, view, panel), first) } },
      axes: [times_axis(page, last), numbers_axis(panel)],
      series,
      bands,
      hooks: { drawClear: [(u) => under(u, page, view)], draw: [(u) => over(u, page, view, first)], ...acts(view) },
    },
    data,
    host,
  );
  return plot;
}

/** From nothing (or the least, where that is less) to a little over the most; more where names stand at the head. */
function range({ low, high }: { low: number; high: number }, named: boolean): uPlot.Range.MinMax {
  return [low, high <= 0 ? 1 : high * (named ? 1.25 : 1.06)];
}

function times_axis(page: Page, last: boolean): uPlot.Axis {
  const line = { stroke: variable("grid"), width: 1 };
  const clock = page.axis.from_unix_ms !== null;
  return {
    stroke: variable("faint"),
    font: variable("chart-font"),
    size: last ? 34 : 4,
    grid: line,
    ticks: { ...line, size: last ? 5 : 0 },
    space: 70,
    values: (_u, at, _axis, _space, step) =>
      at.map((seconds) => (!last ? "" : clock ? clock_time(seconds, step) : `${seconds} s`)),
  };
}

/** `15:46:30`, without seconds where ticks are minutes apart. */
function clock_time(seconds: number, step: number): string {
  return new Date(seconds * 1e3).toLocaleTimeString("en-GB").slice(0, step < 60 ? 8 : 5);
}

function numbers_axis(panel: Panel): uPlot.Axis {
  const line = { stroke: variable("grid"), width: 1 };
  const binary = { incrs: Array.from({ length: 50 }, (_, power) => 2 ** power) };
  return {
    stroke: variable("faint"),
    font: variable("chart-font"),
    size: GUTTER,
    grid: line,
    ticks: { ...line, size: 4 },
    space: 30,
    values: (_u, at) => at.map((value) => show(panel.unit, value)),
    ...(isBinary(panel.unit) ? binary : {}),
  };
}

/** The pointer chooses a moment; what is dragged over becomes what is looked at; a double click goes back. */
function acts(view: View): Pick<uPlot.Hooks.Arrays, "setCursor" | "setSelect" | "ready"> {
  const left = (u: uPlot) => u.posToVal(u.select.left, "x") - view.x(0);
  return {
    setCursor: [(u) => view.point(u.cursor.left !== undefined && u.cursor.left >= 0 ? (u.cursor.idx ?? null) : null)],
    setSelect: [
      (u) => {
        if (u.select.width < 4) return;
        const from = left(u);
        const to = u.posToVal(u.select.left + u.select.width, "x") - view.x(0);
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        view.look(from, to);
      },
    ],
    ready: [(u) => u.over.addEventListener("dblclick", () => view.reset())],
  };
}

/** Where a moment stands on a chart, no farther than its edges. */
function within(u: uPlot, view: View, seconds: number): number {
  return Math.min(Math.max(u.valToPos(view.x(seconds), "x", true), u.bbox.left), u.bbox.left + u.bbox.width);
}

/** Below the curves: a band for each finding, an edge for each phase of an experiment. */
function under(u: uPlot, page: Page, view: View): void {
  const { ctx, bbox } = u;
  ctx.save();
  for (const finding of page.findings) {
    const [from, to] = [within(u, view, finding.from_s), within(u, view, finding.to_s)];
    if (to <= from) continue;
    ctx.fillStyle = variable(`band-${finding.severity}`);
    ctx.fillRect(from, bbox.top, to - from, bbox.height);
  }
  ctx.strokeStyle = variable("phase");
  ctx.lineWidth = devicePixelRatio;
  for (const phase of page.phases) {
    const at = Math.round(within(u, view, phase.from_s)) + 0.5;
    if (at <= bbox.left || at >= bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** The findings' rules at the heads of their bands, where they have room. */
function names(u: uPlot, page: Page, view: View): void {
  /** Where names end, line by line, so that none is written over another. */
  const ends: number[] = [];
  const earliest = [...page.findings].sort((a, b) => a.from_s - b.from_s);
  for (const finding of earliest) {
    const [from, to] = [within(u, view, finding.from_s), within(u, view, finding.to_s)];
    if (to > from) name(u.ctx, finding.rule, from, to, u.bbox.top, ends);
  }
}

/** A finding's rule at the head of its band. */
function name(ctx: CanvasRenderingContext2D, rule: string, from: number, to: number, top: number, ends: number[]): void {
  ctx.font = `600 ${10.5 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillStyle = variable("faint");
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  const { width } = ctx.measureText(rule);
  if (width + 10 * devicePixelRatio >= to - from) return;
  const free = ends.findIndex((end) => end <= from);
  const line = free < 0 ? ends.length : free;
  if (line > 1) return;
  ends[line] = from + width + 10 * devicePixelRatio;
  ctx.fillText(rule, from + 5 * devicePixelRatio, top + (3 + 13 * line) * devicePixelRatio);
}

/** Kinds of events that change what curves mean have a line through the chart; the others a tick below it. */
const LINES = new Set(["restart", "setting", "decision", "gap"]);

function over(u: uPlot, page: Page, view: View, named: boolean): void {
  const { ctx, bbox } = u;
  const bottom = bbox.top + bbox.height;
  ctx.save();
  if (named) names(u, page, view);
  ctx.lineWidth = devicePixelRatio;
  for (const mark of page.events) {
    if (mark.kind === "mark" || mark.at_s < view.stretch.from || mark.at_s > view.stretch.to) continue;
    const at = Math.round(u.valToPos(view.x(mark.at_s), "x", true)) + 0.5;
    const through = LINES.has(mark.kind);
    ctx.strokeStyle = variable(through ? "event" : "faint");
    ctx.setLineDash(through ? [3 * devicePixelRatio, 3 * devicePixelRatio] : []);
    ctx.beginPath();
    ctx.moveTo(at, through ? bbox.top : bottom - 7 * devicePixelRatio);
    ctx.lineTo(at, bottom);
    ctx.stroke();
  }
  ctx.restore();
}
