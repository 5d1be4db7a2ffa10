// The path as a drawing: boxes with level, limits and what arrives and leaves, arrows as thick as what flows.

import type { Finding, Page, Queue } from "./document";
import { s } from "./dom";
import { heldFrom, missing, seen, standing, type Standing, type Summary } from "./figures";
import { drawn, HEIGHT, layout, origins, TEXT, type Box, type Layout, type Point } from "./layout";
import { perSecond, show } from "./units";
import type { View } from "./view";

/** What is told of one queue at the moment, or over the stretch, that is looked at. */
export interface Told {
  level: Summary;
  /** When it was highest, and when it was nearest to where it holds. */
  highest: Standing | null;
  fullest: Standing | null;
  soft: number | null;
  hard: number | null;
  /** Where whoever fills it begins to be held, as last known, for what is still to come. */
  heldFrom: number | null;
  inflow: number | null;
  outflow: number | null;
  /** The most that waited on it. */
  waiters: number | null;
}

export function tell(page: Page, view: View, queue: Queue): Told {
  const { highest, fullest } = standing(page, view, queue);
  const [lastSoft, lastHard] = [seen(page, view, queue.soft_limit).last, seen(page, view, queue.hard_limit).last];
  return {
    level: seen(page, view, queue.level),
    highest,
    fullest,
    soft: highest?.soft ?? lastSoft,
    hard: highest?.hard ?? lastHard,
    heldFrom: heldFrom(queue, lastSoft, lastHard),
    inflow: seen(page, view, queue.inflow).mean,
    outflow: seen(page, view, queue.outflow).mean,
    waiters: seen(page, view, queue.waiters).most,
  };
}

/** Findings that have to do with what is looked at. */
export function current(page: Page, view: View): Finding[] {
  const step = view.axis.step_s;
  const { from, to } = view.cursor === null ? view.stretch : { from: view.cursor * step, to: (view.cursor + 1) * step };
  return page.findings.filter((finding) => finding.from_s <= to && finding.to_s >= from);
}

/** Servers have queues of the same name; a finding is of one server's. */
export const concerns = (finding: Finding, queue: Queue) => !finding.server || !queue.target || finding.server === queue.target;

export function drawing(page: Page, view: View, width: number, chosen: number | null, choose: (queue: number) => void): SVGSVGElement {
  const { queues, rows, links } = page.path;
  const placed = layout(queues, rows.length, links, width);
  const told = queues.map((queue) => tell(page, view, queue));
  const findings = current(page, view);
  const size = { width: Math.ceil(placed.width), height: Math.ceil(placed.height) };
  const element = s("svg", {
    class: "flow",
    ...size,
    viewBox: `0 0 ${size.width} ${size.height}`,
    role: "group",
    "aria-label": "Queues and what flows between them",
  });
  const titles = placed.titles.map(({ x, y }, row) => s("text", { class: "row-title", x, y }, rows[row] ?? ""));
  element.append(patterns(), ...flows(page, told, placed), ...titles, ...sources(page, told, placed));
  queues.forEach((queue, order) => {
    const own = findings.filter((finding) => concerns(finding, queue));
    const binding = own.find((finding) => finding.queue === queue.name);
    const victim = !binding && own.some((finding) => finding.victims.includes(queue.name));
    const act = () => choose(order);
    const kind = `queue ${binding ? `binding ${binding.severity}` : victim ? "victim" : ""} ${chosen === order ? "chosen" : ""}`;
    element.append(node(queue, told[order]!, placed.boxes[order]!, kind, act, order, chosen === order));
  });
  return element;
}

function patterns(): SVGElement {
  const stripe = s("path", { d: "M-2 2l4-4M0 8l8-8M6 10l4-4", class: "hatch" });
  const head = s("path", { d: "M0 0L7 4L0 8z", class: "head" });
  return s(
    "defs",
    {},
    s("pattern", { id: "held-up", width: 8, height: 8, patternUnits: "userSpaceOnUse" }, stripe),
    s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, head),
  );
}

/** A piece of an arrow, as thick as what flows there; thin and broken where nothing does, or nobody counts it. */
type Draw = (points: Point[], queue: Queue, rate: number | null, pointed: boolean, most?: number) => SVGElement;

/** Thickness compares with the most that flows anywhere in the same unit. */
function pen(page: Page, told: Told[]): Draw {
  const greatest = new Map<string, number>();
  page.path.queues.forEach((queue, order) => {
    const here = Math.max(told[order]!.inflow ?? 0, told[order]!.outflow ?? 0);
    greatest.set(queue.unit, Math.max(greatest.get(queue.unit) ?? 0, here));
  });
  return (points, queue, rate, pointed, most = 7) => {
    const share = Math.max(rate ?? 0, 0) / (greatest.get(queue.unit) || 1);
    const thick = rate ? 1.2 + most * Math.sqrt(share) : 1;
    return s("path", {
      class: rate ? "stream" : "stream still",
      d: drawn(points),
      "stroke-width": thick.toFixed(1),
      "marker-end": pointed ? "url(#arrow)" : false,
    });
  };
}

/** Arrows between queues. Between neighbours, the first half is as thick as what leaves the one and the second as what arrives at the other. */
function flows(page: Page, told: Told[], placed: Layout): Element[] {
  const { queues, links } = page.path;
  const draw = pen(page, told);
  const parts: Element[] = [];
  placed.routes.forEach(({ from, to, points, straight }) => {
    const [source, into] = [queues[from]!, queues[to]!];
    if (!straight) {
      parts.push(draw(points, source, told[from]!.outflow, true, 2.5));
      return;
    }
    const [begin, end] = [points[0]!, points[1]!];
    const middle = { x: (begin.x + end.x) / 2, y: (begin.y + end.y) / 2 };
    parts.push(draw([begin, middle], source, told[from]!.outflow, false), draw([middle, end], into, told[to]!.inflow, true));
  });
  // What comes from outside, and what leaves for good. What is kept is no stop on the way: it holds what stands in all the others.
  queues.forEach((queue, order) => {
    if (queue.name.startsWith("pg.wal.retained") || placed.columns === 1) return;
    const { x, y, width } = placed.boxes[order]!;
    const middle = y + HEIGHT / 2;
    const { inflow, outflow } = told[order]!;
    if (inflow !== null && !links.some(([, to]) => to === order)) {
      parts.push(draw([{ x: x - placed.gap + 12, y: middle }, { x: x - 4, y: middle }], queue, inflow, true));
    }
    if (outflow !== null && !links.some(([from]) => from === order)) {
      parts.push(draw([{ x: x + width + 1, y: middle }, { x: x + width + placed.gap - 14, y: middle }], queue, outflow, true));
    }
  });
  return parts;
}

/** Over a queue, what comes to it from another row, and how much of it leaves there: a line each. */
function sources(page: Page, told: Told[], { boxes, gap, columns }: Layout): Element[] {
  const { queues, links } = page.path;
  return queues.flatMap((_, order) => {
    const { x, y, width } = boxes[order]!;
    const room = columns === 1 ? 0.75 * width : width + gap - 6;
    return origins(queues, links, order).map((from, line) => {
      const [queue, rate] = [queues[from]!, told[from]!.outflow];
      const text = rate === null ? `from ${queue.title}` : `from ${queue.title} ${show(perSecond(queue.unit), rate)}`;
      return s("text", { class: "rate", x: x + 2, y: y - 6 - TEXT * line }, cut(text, room, 5.3));
    });
  });
}

/** As much of a text as a width holds, at so much a letter. */
function cut(text: string, width: number, letter: number): string {
  const most = Math.floor(width / letter);
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function node(queue: Queue, told: Told, { x, y, width }: Box, kind: string, act: () => void, order: number, open: boolean): SVGGElement {
  const inside = width - 14;
  const state = kind.includes("binding") ? "▲ binds" : kind.includes("victim") ? "held up" : "";
  const key = (event: Event) => {
    const { key } = event as KeyboardEvent;
    if (key !== "Enter" && key !== " ") return;
    event.preventDefault();
    act();
  };
  const group = s("g", {
    class: kind,
    role: "button",
    tabindex: 0,
    "aria-expanded": String(open),
    "data-queue": order,
    transform: `translate(${x.toFixed(1)} ${y})`,
    on: { click: act, keydown: key },
  });
  const bound = queue.at_least ? "at least " : "";
  const level = told.level.most === null ? missing(queue.level) : bound + show(queue.unit, told.level.most);
  const rate = (value: number | null) => (value === null ? "–" : (queue.at_least ? "≥ " : "") + show(perSecond(queue.unit), value));
  const moves = queue.inflow !== null || queue.outflow !== null;
  group.append(
    s("rect", { class: "box", width, height: HEIGHT, rx: 6 }),
    s("rect", { class: "shading", width, height: HEIGHT, rx: 6 }),
    s("text", { class: "title", x: 8, y: 18 }, cut(queue.title, inside, 7.2)),
    s("text", { class: "name", x: 8, y: 32 }, cut(queue.name, inside, 6)),
    s("text", { class: told.level.most === null ? "level uncounted" : "level", x: 8, y: 54 }, level),
    ...limits(queue, told).map((text, line) => s("text", { class: "limit", x: 8, y: 69 + 13 * line }, cut(text, inside, 5.4))),
    ...gauge(told, width),
  );
  if (moves) {
    group.append(
      s("text", { class: "move", x: 8, y: HEIGHT - 8 }, `in ${rate(told.inflow)}`),
      s("text", { class: "move", x: width - 8, y: HEIGHT - 8, "text-anchor": "end" }, `out ${rate(told.outflow)}`),
    );
  }
  if (state) group.append(s("text", { class: "flag", x: width - 8, y: 54, "text-anchor": "end" }, state));
  return group;
}

/** Where it holds at the moment at which the level was highest; when it was nearest to that, where that was another moment; who waits. */
function limits(queue: Queue, { level, highest, fullest, hard, waiters }: Told): string[] {
  const line = waiters === null ? [] : [`${show("count", waiters)} in line`];
  if (!highest?.heldFrom) {
    if (hard !== null) return [`limit ${show(queue.unit, hard)}`, ...line];
    // What stands in it are those who wait.
    if (waiters !== null && waiters === level.most) return ["sessions waiting"];
    return [queue.hard_limit === null ? "no limit of its own" : `limit ${missing(queue.hard_limit)}`, ...line];
  }
  const of = ({ fill, heldFrom }: Standing) => `${show("ratio", fill)} of ${show(queue.unit, heldFrom)}`;
  const other = fullest && fullest.fill! > highest.fill! * 1.005;
  return other ? [of(highest), `fullest ${of(fullest)}`] : [of(highest), ...line];
}

/** How full it was at most: a bar up to where it holds with the soft one of that moment as a notch. */
function gauge({ fullest }: Told, width: number): Element[] {
  if (!fullest?.heldFrom) return [];
  const { fill, soft, heldFrom } = fullest;
  const room = width - 16;
  const at = (share: number) => Math.min(Math.max(share, 0), 1) * room;
  const tone = fill! >= 0.75 ? "full" : fill! >= 0.5 ? "filling" : "";
  const notch = soft === null ? [] : [s("line", { class: "notch", x1: 8 + at(soft / heldFrom), x2: 8 + at(soft / heldFrom), y1: 88, y2: 98 })];
  return [
    s("rect", { class: "gauge", x: 8, y: 90, width: room, height: 6, rx: 3 }),
    s("rect", { class: `gauge-fill ${tone}`, x: 8, y: 90, width: Math.max(at(fill!), fill! > 0 ? 2 : 0), height: 6, rx: 3 }),
    ...notch,
  ];
}
