// The whole recording on one strip: where findings lie and experiments ran, and the stretch that everything else shows.

import { GUTTER } from "./chart";
import { most, type Page } from "./document";
import { h, onWidth, put, s } from "./dom";
import type { View } from "./view";

const HEIGHT = 64;
/** Room for the names of experiments above the curve. */
const TOP = 16;

export function overview(page: Page, view: View): HTMLElement {
  const strip = s("svg", { class: "strip", height: HEIGHT, role: "img", "aria-label": "The whole recording, with what is looked at" });
  const now = h("output", { class: "now" });
  const bar = h("div", { class: "bar" }, now, ...buttons(view));
  const element = h("div", { class: "overview" }, bar, strip);
  let width = 0;
  // The curve is the same whatever is looked at: drawn once for a document and a width.
  let ghost: { of: Page["series"]; wide: number; drawn: Element[] } | null = null;
  const draw = () => {
    put(now, `${view.isWhole() ? "All of it: " : ""}${view.words(view.stretch)}`);
    if (width === 0) return;
    if (ghost?.of !== page.series || ghost.wide !== width) ghost = { of: page.series, wide: width, drawn: curve(page, view, width) };
    put(strip, ...parts(page, view, width, ghost.drawn));
  };
  onWidth(element, (wide) => {
    width = wide;
    strip.setAttribute("width", String(wide));
    draw();
  });
  view.follow(draw);
  brush(strip, view, () => width);
  return element;
}

function buttons(view: View): HTMLElement[] {
  const button = (sign: string, title: string, act: () => void) =>
    h("button", { type: "button", title, "aria-label": title, on: { click: act } }, sign);
  return [
    button("←", "Earlier (left arrow)", () => view.pan(-0.25)),
    button("→", "Later (right arrow)", () => view.pan(0.25)),
    button("+", "Closer (+)", () => view.zoom(0.5)),
    button("−", "Wider (−)", () => view.zoom(2)),
    button("All", "All of it (0)", () => view.reset()),
  ];
}

/** From seconds to the strip's pixels, and back. */
const place = (view: View, width: number) => (seconds: number) => GUTTER + (seconds / view.whole.to) * (width - GUTTER - 8);
const seconds = (view: View, width: number, x: number) => ((x - GUTTER) / (width - GUTTER - 8)) * view.whole.to;

function parts(page: Page, view: View, width: number, ghost: Element[]): Element[] {
  const x = place(view, width);
  const box = (from: number, to: number, top: number, bottom: number, kind: string) =>
    s("rect", { class: kind, x: x(from), y: top, width: Math.max(x(to) - x(from), 1), height: bottom - top });
  const bands = page.findings.map((finding) => box(finding.from_s, finding.to_s, TOP, HEIGHT, `band ${finding.severity}`));
  const { from, to } = view.stretch;
  const shade = view.isWhole() ? [] : [box(0, from, TOP, HEIGHT, "shade"), box(to, view.whole.to, TOP, HEIGHT, "shade")];
  const edges = view.isWhole() ? [] : [from, to].map((at) => s("line", { class: "edge", x1: x(at), y1: TOP, x2: x(at), y2: HEIGHT }));
  return [
    s("line", { class: "ground", x1: x(0), y1: HEIGHT - 0.5, x2: x(view.whole.to), y2: HEIGHT - 0.5 }),
    ...bands,
    ...ghost,
    ...arms(page, x, width),
    ...shade,
    ...edges,
  ];
}

/** The first chart's first curve, as a reminder of what the recording looks like. */
function curve(page: Page, view: View, width: number): Element[] {
  const first = page.panels[0]?.curves.find((curve) => curve.role === "line");
  if (!first) return [];
  const values = most(page.series[first.series]!, page.axis.count);
  const top = Math.max(...values.map((value) => value ?? 0), 1e-9);
  const x = place(view, width);
  // Of a long recording as many pieces in a bar as share a pixel, the highest counting.
  const each = Math.max(Math.ceil(values.length / width), 1);
  const bar = (order: number) => {
    const known = values.slice(order * each, (order + 1) * each).filter((value) => value !== null);
    if (known.length === 0) return "";
    const [left, right] = [x(order * each * page.axis.step_s), x(Math.min((order + 1) * each, values.length) * page.axis.step_s)];
    const y = HEIGHT - (Math.max(...known, 0) / top) * (HEIGHT - TOP - 4);
    return `M${left.toFixed(1)} ${HEIGHT}V${y.toFixed(1)}H${right.toFixed(1)}V${HEIGHT}Z`;
  };
  const bars = Array.from({ length: Math.ceil(values.length / each) }, (_, order) => bar(order));
  const label = page.panels[0]!.title;
  return [
    s("path", { class: "ghost", d: bars.join("") }),
    s("text", { class: "side", x: GUTTER - 8, y: HEIGHT - 18, "text-anchor": "end" }, label.length < 12 ? label : "Load"),
  ];
}

/** The arms of an experiment, where their names have room. */
function arms(page: Page, x: (seconds: number) => number, width: number): Element[] {
  const loads = page.phases.filter((phase) => phase.phase === "load");
  return loads.flatMap((phase, order) => {
    const left = x(phase.from_s);
    const room = (loads[order + 1] ? x(loads[order + 1]!.from_s) : width) - left;
    const letters = Math.floor(room / 6.4);
    const name = phase.arm.length <= letters ? phase.arm : `${phase.arm.slice(0, Math.max(letters - 1, 0))}…`;
    const line = s("line", { class: "arm", x1: left, y1: 2, x2: left, y2: HEIGHT });
    return letters < 4 ? [line] : [line, s("text", { class: "arm-name", x: left + 4, y: 11 }, name, s("title", {}, phase.arm))];
  });
}

/** Drag chooses a stretch; a click far from it goes back to everything. */
function brush(strip: SVGSVGElement, view: View, width: () => number): void {
  let begin: number | null = null;
  const at = (event: PointerEvent) => seconds(view, width(), event.clientX - strip.getBoundingClientRect().left);
  strip.addEventListener("pointerdown", (event) => {
    begin = at(event);
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener("pointermove", (event) => {
    if (begin === null) return;
    const end = at(event);
    if (Math.abs(end - begin) > view.whole.to / 100) view.look(Math.min(begin, end), Math.max(begin, end));
  });
  strip.addEventListener("pointerup", (event) => {
    if (begin !== null && Math.abs(at(event) - begin) <= view.whole.to / 100) view.reset();
    begin = null;
  });
  strip.addEventListener("pointercancel", () => (begin = null));
}
