// The timeline: charts below each other on one axis, and which of them are drawn.

import type uPlot from "uplot";
import { chart, heightOf, look, reach, renewed } from "./chart";
import type { Page, Panel } from "./document";
import { h, onSight, onWidth, put, s } from "./dom";
import { seen } from "./figures";
import { show } from "./units";
import type { View } from "./view";

/** A chart's place on the page. It is drawn once somebody is about to see it. */
interface Drawn {
  plot: uPlot | null;
  forget: () => void;
  legend: HTMLElement;
  place: number;
}

export class Timeline {
  readonly element: HTMLElement;
  private readonly charts = h("div", { class: "charts" });
  private readonly choiceHost = h("div", {});
  private chosen: Set<number>;
  private boxes = new Map<number, HTMLInputElement>();
  private plots: Drawn[] = [];
  /** Names of the charts there are, by which a newer document's are told apart. */
  private names: string[];
  private width = 0;

  constructor(
    private readonly page: Page,
    private readonly view: View,
  ) {
    this.chosen = new Set(page.panels.flatMap((panel, place) => (panel.shown ? [place] : [])));
    const hint = h("p", { class: "hint screen" }, "Drag over a chart to look closer, double-click to go back. All charts share one time axis.");
    this.names = page.panels.map(nameOf);
    put(this.choiceHost, this.choice());
    this.element = h("div", {}, hint, this.choiceHost, this.charts);
    view.follow(() => this.restretch());
    view.followCursor(() => this.tell());
    onWidth(this.charts, (width) => {
      this.width = width;
      this.redraw();
    });
  }

  /** Draws these charts too, and goes to the first of them. */
  show(panels: number[]): void {
    panels.forEach((panel) => this.chosen.add(panel));
    this.boxes.forEach((box, place) => (box.checked = this.chosen.has(place)));
    this.redraw();
    this.charts.querySelector(`[data-panel="${panels[0]}"]`)?.scrollIntoView({ block: "center" });
  }

  /** The document is a newer one. */
  renew(): void {
    const names = this.page.panels.map(nameOf);
    if (names.join("\n") !== this.names.join("\n")) {
      // A chart that was not there before is drawn where the document says so.
      const had = new Set([...this.chosen].map((place) => this.names[place]));
      const known = new Set(this.names);
      this.chosen = new Set(this.page.panels.flatMap((panel, place) => (had.has(names[place]!) || (panel.shown && !known.has(names[place]!)) ? [place] : [])));
      this.names = names;
      this.boxes = new Map();
      put(this.choiceHost, this.choice());
      return this.redraw();
    }
    if (!this.plots.every(({ plot, place }) => !plot || renewed(plot, this.page, this.view, this.page.panels[place]!))) return this.redraw();
    this.tell();
  }

  /** Which charts there are, by the part of the system they belong to. */
  private choice(): HTMLElement {
    const groups = [...new Set(this.page.panels.map((panel) => panel.group))];
    const box = (place: number) => {
      const input = h("input", { type: "checkbox", on: { change: () => this.toggle(place) } });
      input.checked = this.chosen.has(place);
      this.boxes.set(place, input);
      return h("label", {}, input, ` ${this.page.panels[place]!.title}`);
    };
    const places = (group: string) => this.page.panels.flatMap((panel, place) => (panel.group === group ? [place] : []));
    const field = (group: string) => h("fieldset", {}, h("legend", {}, group), ...places(group).map(box));
    return h(
      "details",
      { class: "choice screen" },
      h("summary", {}, `Choose charts (${this.page.panels.length} in all)`),
      h("div", { class: "fields" }, ...groups.map(field)),
    );
  }

  private toggle(place: number): void {
    if (!this.chosen.delete(place)) this.chosen.add(place);
    this.redraw();
  }

  /** Everything anew: another width, other charts, another theme. */
  redraw(): void {
    if (this.width === 0) return;
    this.plots.forEach(({ plot, forget }) => {
      forget();
      plot?.destroy();
    });
    const places = [...this.chosen].sort((a, b) => a - b);
    if (places.length === 0) put(this.charts, h("p", { class: "hint" }, "No chart is chosen."));
    else put(this.charts);
    this.plots = places.map((place, order) => {
      const panel = this.page.panels[place]!;
      const legend = h("div", { class: "legend" });
      const [first, last] = [order === 0, order === places.length - 1];
      const host = h("div", { class: "plot", role: "img", "aria-label": this.words(panel) });
      host.style.minHeight = `${heightOf(last)}px`;
      const figure = h("figure", { class: "chart", "data-panel": place }, h("figcaption", {}, h("h3", {}, panel.title), legend), host);
      this.charts.append(figure);
      const drawn: Drawn = { plot: null, forget: () => {}, legend, place };
      drawn.forget = onSight(host, () => {
        drawn.plot = chart(this.page, this.view, this.page.panels[place]!, host, this.width, first, last);
      });
      return drawn;
    });
    this.tell();
  }

  /** A chart for those who cannot see it. */
  private words(panel: Panel): string {
    const curve = ({ series }: { series: number }) => {
      const whole = seen(this.page, this.view, series);
      return `${this.page.series[series]!.label} from ${show(panel.unit, whole.least)} to ${show(panel.unit, whole.most)}`;
    };
    return `${panel.title}: ${panel.curves.map(curve).join("; ")}`;
  }

  private restretch(): void {
    const { from, to } = this.view.stretch;
    this.plots.forEach(({ plot }) => plot?.setScale("x", { min: this.view.x(from), max: this.view.x(to) }));
    this.tell();
  }

  /** Values of each curve at the pointer, else the most of what is seen. */
  private tell(): void {
    for (const { legend, place } of this.plots) {
      const panel = this.page.panels[place]!;
      const { high } = reach(this.page, this.view, panel);
      const item = (curve: Panel["curves"][number]) => {
        const { colour, dash } = look(panel, curve);
        const values = seen(this.page, this.view, curve.series);
        const at = this.view.cursor !== null || curve.role !== "line";
        const value = show(panel.unit, at ? values.last : values.most);
        const line = s("line", { x1: 0, y1: 5, x2: 22, y2: 5, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") });
        const swatch = s("svg", { class: "swatch", width: 22, height: 10, "aria-hidden": "true" }, line);
        const far = curve.role === "line" || (values.last ?? 0) <= high ? "" : " (off the chart)";
        return h("span", { class: "item" }, swatch, `${this.page.series[curve.series]!.label} `, h("b", {}, value), at ? far : " at most");
      };
      put(legend, ...panel.curves.map(item));
    }
  }
}

const nameOf = (panel: Panel) => `${panel.group}: ${panel.title}`;
