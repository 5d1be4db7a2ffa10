// Sessions: who waited on what, stacked by class over time, and lists that follow what is looked at.

import uPlot from "uplot";
import { GUTTER } from "./chart";
import type { Group, Page, Sessions } from "./document";
import { h, onSight, onWidth, put, s, variable } from "./dom";
import { show } from "./units";
import type { View } from "./view";

const NAMED = ["on CPU", "IO", "LWLock", "Lock", "Client", "IPC", "Timeout", "BufferPin", "Extension", "kernel"];

function colour(name: string, order: number): string {
  const place = NAMED.indexOf(name);
  return variable(`wait-${place >= 0 ? place : (order % 4) + 6}`);
}

/** Stripes that tell neighbours apart without colour: every other class has them. */
function paint(context: CanvasRenderingContext2D, colour: string, order: number): string | CanvasPattern {
  if (order % 2 === 0) return colour;
  const size = 6 * devicePixelRatio;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const brush = tile.getContext("2d");
  if (!brush) return colour;
  brush.fillStyle = colour;
  brush.fillRect(0, 0, size, size);
  brush.strokeStyle = variable("ground");
  brush.globalAlpha = 0.45;
  brush.lineWidth = devicePixelRatio;
  for (const shift of [-size, 0, size]) {
    brush.moveTo(shift, size);
    brush.lineTo(shift + size, 0);
  }
  brush.stroke();
  return context.createPattern(tile, "repeat") ?? colour;
}

/** Sessions slot by slot; a slot in which nobody looked is a hole. */
function dense(sessions: Sessions, group: Group): (number | null)[] {
  const values: (number | null)[] = sessions.looked.map((looked) => (looked ? 0 : null));
  group.slots.forEach(([slot, value]) => (values[slot] = value));
  return values;
}

export class SessionView {
  readonly element: HTMLElement;
  private readonly host = h("div", { class: "plot tall" });
  private readonly legend = h("div", { class: "legend" });
  private readonly list = h("div", { class: "scroll", tabindex: 0 });
  private values: (number | null)[][];
  private plot: uPlot | null = null;
  private width = 0;
  private forget = () => {};
  private by = 0;

  constructor(
    private readonly page: Page,
    private sessions: Sessions,
    private readonly view: View,
  ) {
    this.values = sessions.classes.map((group) => dense(sessions, group));
    const caption = h("figcaption", {}, h("h3", {}, "Active sessions by class of wait"), this.legend);
    this.element = h("div", {}, h("figure", { class: "chart" }, caption, this.host), this.choice(), this.list);
    view.follow(() => {
      const { from, to } = view.stretch;
      this.plot?.setScale("x", { min: view.x(from), max: view.x(to) });
      this.tell();
    });
    view.followCursor(() => this.tellLegend());
    onWidth(this.host, (width) => {
      this.width = width;
      this.forget();
      this.forget = onSight(this.host, () => this.redraw());
    });
  }

  /** The sessions of a newer document. */
  renew(sessions: Sessions): void {
    this.sessions = sessions;
    this.values = sessions.classes.map((group) => dense(sessions, group));
    this.redraw();
  }

  private choice(): HTMLElement {
    const option = (top: { by: string }, place: number) => h("option", { value: place }, top.by);
    const select = h("select", { id: "by" }, ...this.sessions.tops.map(option));
    select.addEventListener("change", () => {
      this.by = Number(select.value);
      this.tell();
    });
    return h("p", { class: "choose" }, h("label", { for: "by" }, "The most frequent, by "), select);
  }

  /** The chart anew: another width, another theme. */
  redraw(): void {
    if (this.width === 0) return;
    this.plot?.destroy();
    const { view, sessions, page } = this;
    const slot_s = sessions.pieces * page.axis.step_s;
    // Each slot from its begin to the next one's; the last needs an end.
    const times = [...sessions.looked, false].map((_, slot) => view.x(slot * slot_s));
    const sums: (number | null)[][] = [];
    this.values.forEach((values, order) => sums.push(values.map((value, slot) => (value === null ? null : value + (order > 0 ? (sums[order - 1]![slot] ?? 0) : 0)))));
    const count = sums.length;
    const series = sessions.classes.map((group, order): uPlot.Series => {
      const own = colour(group.name, order);
      const fill = (u: uPlot) => paint(u.ctx, own, order) as string;
      return { label: group.name, stroke: own, width: 1, fill, paths: uPlot.paths.stepped!({ align: 1 }), points: { show: false } };
    });
    const line = { stroke: variable("grid"), width: 1 };
    const axis = { stroke: variable("faint"), font: variable("chart-font"), grid: line, ticks: { ...line, size: 4 } };
    const stamps = (_: uPlot, at: number[]) => at.map((second) => (page.axis.from_unix_ms === null ? `${second} s` : view.time(second - view.x(0))));
    const top = Math.max(...(sums[count - 1] ?? [0]).map((value) => value ?? 0), 0.1);
    const options: uPlot.Options = {
      width: this.width,
      height: 208,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "backwater" }, drag: { x: true, y: false, setScale: false }, points: { show: false } },
      scales: {
        x: { time: page.axis.from_unix_ms !== null, range: () => [view.x(view.stretch.from), view.x(view.stretch.to)] },
        y: { range: [0, top * 1.06] },
      },
      axes: [
        { ...axis, size: 34, space: 80, values: stamps },
        { ...axis, size: GUTTER, space: 30, values: (_: uPlot, at: number[]) => at.map((value) => show("count", value)) },
      ],
      // The tallest is drawn first, so that each of the others covers what is below it.
      series: [{}, ...series.reverse()],
      hooks: {
        setSelect: [
          (u) => {
            if (u.select.width < 4) return;
            const at = (x: number) => u.posToVal(x, "x") - view.x(0);
            const [from, to] = [at(u.select.left), at(u.select.left + u.select.width)];
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            view.look(from, to);
          },
        ],
        setCursor: [
          (u) => {
            const x = u.cursor.left ?? -1;
            const piece = Math.floor((u.posToVal(x, "x") - view.x(0)) / page.axis.step_s);
            view.point(x >= 0 && piece >= 0 && piece < page.axis.count ? piece : null);
          },
        ],
        ready: [(u) => u.over.addEventListener("dblclick", () => view.reset())],
      },
    };
    put(this.host);
    this.plot = new uPlot(options, [times, ...sums.reverse().map((values) => [...values, values.at(-1) ?? null])] as uPlot.AlignedData, this.host);
    this.tell();
  }

  /** Slots that are looked at. */
  private slots(): [number, number] {
    const [first, end] = this.view.pieces();
    const { pieces } = this.sessions;
    return [Math.floor(first / pieces), Math.ceil(end / pieces)];
  }

  private mean(values: (number | null)[], [first, end]: [number, number]): number | null {
    let [sum, known] = [0, 0];
    for (let slot = first; slot < end; slot += 1) {
      const value = values[slot] ?? null;
      if (value === null) continue;
      sum += value;
      known += 1;
    }
    return known > 0 ? sum / known : null;
  }

  private tell(): void {
    this.tellLegend();
    const top = this.sessions.tops[this.by]!;
    const range = this.slots();
    const all = this.values.reduce((sum, values) => sum + (this.mean(values, range) ?? 0), 0);
    const rows = top.groups
      .map((group) => ({ name: group.name, mean: this.mean(dense(this.sessions, group), range) ?? 0 }))
      .filter(({ mean }) => mean > 0)
      .sort((a, b) => Number(a.name === "others") - Number(b.name === "others") || b.mean - a.mean);
    const largest = Math.max(...rows.map(({ mean }) => mean), 1e-9);
    const row = ({ name, mean }: { name: string; mean: number }) => {
      const bar = s("svg", { class: "bar", width: 120, height: 10, "aria-hidden": "true" }, s("rect", { width: (120 * mean) / largest, height: 10, rx: 2 }));
      return h("tr", {}, h("th", { scope: "row", class: "text" }, name), h("td", {}, show("count", mean)), h("td", {}, show("ratio", all > 0 ? mean / all : 0)), h("td", { class: "text" }, bar));
    };
    const head = h("tr", {}, h("th", { scope: "col", class: "text" }, top.by), h("th", { scope: "col" }, "sessions"), h("th", { scope: "col" }, "of time"), h("td", {}));
    if (rows.length === 0) put(this.list, h("p", { class: "hint" }, "No session was seen to be active here."));
    else put(this.list, h("table", { class: "numbers tops" }, h("thead", {}, head), h("tbody", {}, ...rows.map(row))));
  }

  private tellLegend(): void {
    const { cursor } = this.view;
    const slot = cursor === null ? null : Math.floor(cursor / this.sessions.pieces);
    const item = (group: Group, order: number) => {
      const values = this.values[order]!;
      const value = slot === null ? this.mean(values, this.slots()) : (values[slot] ?? null);
      const box = s("rect", { width: 14, height: 10, rx: 2, fill: colour(group.name, order) });
      const stripe = order % 2 === 1 ? s("path", { class: "stripes", d: "M0 8L8 0M6 10L14 2" }) : null;
      return h("span", { class: "item" }, s("svg", { class: "swatch", width: 14, height: 10, "aria-hidden": "true" }, box, stripe), `${group.name} `, h("b", {}, show("count", value)));
    };
    const word = slot === null ? " on average" : "";
    put(this.legend, ...this.sessions.classes.map(item), h("span", { class: "item" }, word));
  }
}
