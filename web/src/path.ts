// The path: queues from clients to durable storage and to standbys, with what stands in each and what flows between them.

import type { Finding, Page, Queue } from "./document";
import { h, keepOpen, onWidth, put, s } from "./dom";
import { fullest, seen, type Summary } from "./figures";
import { perSecond, show } from "./units";
import type { View } from "./view";

const HEIGHT = 92;
const GAP = 64;
const LEAST_WIDTH = 116;
const ROW_TITLE = 36;
const ROW_GAP = 30;
/** Narrower than this, queues stand below each other. */
const NARROW = 720;

/** What is told of one queue at the moment, or over the stretch, that is looked at. */
interface Told {
  level: Summary;
  soft: number | null;
  /** The hard limit when it was nearest, and how full the queue was then: limits change. */
  hard: number | null;
  fill: number | null;
  inflow: number | null;
  outflow: number | null;
}

interface Place {
  x: number;
  y: number;
  width: number;
}

export function path(page: Page, view: View, curves: (panels: number[]) => void): HTMLElement {
  const host = h("div", { class: "path" });
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  const when = h("p", { class: "hint" });
  const moved = h("div", {});
  let width = 0;
  /** The queue that is told of, by name and server: its place may be another in a newer document. */
  let chosen: string | null = null;
  const draw = () => {
    if (width === 0) return;
    const { queues } = page.path;
    const place = queues.findIndex((queue) => nameOf(queue) === chosen);
    put(when, queues.length === 0 ? "Nothing was recorded of any queue." : heading(view));
    const focused = (document.activeElement as Element | null)?.getAttribute("data-queue") ?? null;
    put(host, queues.length === 0 ? null : drawing(page, view, width, place < 0 ? null : place, choose));
    if (focused !== null) host.querySelector<SVGElement>(`[data-queue="${focused}"]`)?.focus();
    put(detail, place < 0 ? null : details(page, view, queues[place]!, curves));
  };
  const choose = (queue: number) => {
    const name = nameOf(page.path.queues[queue]!);
    chosen = chosen === name ? null : name;
    draw();
    host.querySelector<SVGElement>(`[data-queue="${queue}"]`)?.focus();
  };
  let told = "";
  const stagesToo = () => {
    const now = JSON.stringify(page.path.stages);
    if (now !== told) keepOpen(moved, () => put(moved, stages(page)));
    told = now;
  };
  onWidth(host, (wide) => {
    width = wide;
    draw();
  });
  view.follow(() => {
    draw();
    stagesToo();
  });
  view.followCursor(draw);
  return h("div", {}, when, host, detail, moved);
}

const nameOf = (queue: Queue) => `${queue.name} ${queue.target ?? ""}`;

function heading(view: View): string {
  const what = "a level is the highest, a flow the mean";
  if (view.cursor === null) return `Over ${view.isWhole() ? "the whole recording" : view.words(view.stretch)}: ${what}. Choose a queue for what it is.`;
  return `At ${view.time((view.cursor + 0.5) * view.axis.step_s)}, where the pointer is.`;
}

function tell(page: Page, view: View, queue: Queue): Told {
  const nearest = fullest(page, view, queue.level, queue.hard_limit);
  return {
    level: seen(page, view, queue.level),
    soft: seen(page, view, queue.soft_limit).last,
    hard: nearest?.limit ?? seen(page, view, queue.hard_limit).last,
    fill: nearest?.fill ?? null,
    inflow: seen(page, view, queue.inflow).mean,
    outflow: seen(page, view, queue.outflow).mean,
  };
}

/** Findings that have to do with what is looked at. */
function current(page: Page, view: View): Finding[] {
  const step = view.axis.step_s;
  const { from, to } = view.cursor === null ? view.stretch : { from: view.cursor * step, to: (view.cursor + 1) * step };
  return page.findings.filter((finding) => finding.from_s <= to && finding.to_s >= from);
}

function drawing(page: Page, view: View, width: number, chosen: number | null, choose: (queue: number) => void): SVGSVGElement {
  const { queues, rows } = page.path;
  const narrow = width < NARROW;
  const { places, titles, size } = narrow ? stacked(page, width) : spread(page, width);
  const told = queues.map((queue) => tell(page, view, queue));
  const findings = current(page, view);
  const element = s("svg", {
    class: "flow",
    width: Math.max(width, size.width),
    height: size.height,
    role: "group",
    "aria-label": "Queues and what flows between them",
  });
  element.append(patterns(), ...titles.map(({ x, y }, row) => s("text", { class: "row-title", x, y }, rows[row] ?? "")));
  element.append(...flows(page, told, places, narrow));
  queues.forEach((queue, order) => {
    // Servers have queues of the same name; a finding is of one server's.
    const own = findings.filter((finding) => !finding.server || !queue.target || finding.server === queue.target);
    const binding = own.find((finding) => finding.queue === queue.name);
    const victim = !binding && own.some((finding) => finding.victims.includes(queue.name));
    const act = () => choose(order);
    const kind = `queue ${binding ? `binding ${binding.severity}` : victim ? "victim" : ""} ${chosen === order ? "chosen" : ""}`;
    element.append(node(queue, told[order]!, places[order]!, kind, act, order, chosen === order));
  });
  return element;
}

/** Columns by how far a queue is along the way, rows as the document has them. */
function spread(page: Page, width: number) {
  const { queues, rows } = page.path;
  const steps = [...new Set(queues.map((queue) => queue.step))].sort((a, b) => a - b);
  const room = (width - GAP * (steps.length + 1)) / steps.length;
  const wide = Math.min(Math.max(room, LEAST_WIDTH), 190);
  const high = ROW_TITLE + HEIGHT + ROW_GAP;
  const places = queues.map((queue) => ({ x: GAP + steps.indexOf(queue.step) * (wide + GAP), y: queue.row * high + ROW_TITLE, width: wide }));
  const titles = rows.map((_, row) => ({ x: 0, y: row * high + 14 }));
  return { places, titles, size: { width: GAP + steps.length * (wide + GAP), height: rows.length * high - ROW_GAP + 14 } };
}

/** One below the other. */
function stacked(page: Page, width: number) {
  const { queues, rows } = page.path;
  const places: Place[] = [];
  const titles: { x: number; y: number }[] = [];
  let y = 0;
  rows.forEach((_, row) => {
    titles.push({ x: 0, y: y + 14 });
    y += ROW_TITLE;
    queues.forEach((queue, order) => {
      if (queue.row !== row) return;
      places[order] = { x: 2, y, width: width - 4 };
      y += HEIGHT + 26;
    });
    y += 6;
  });
  return { places, titles, size: { width, height: y } };
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

/** Arrows as thick as what flows, compared with the most that flows anywhere in the same unit. */
function flows(page: Page, told: Told[], places: Place[], narrow: boolean): Element[] {
  const { queues, links } = page.path;
  const most = new Map<string, number>();
  queues.forEach((queue, order) => {
    const here = Math.max(told[order]!.inflow ?? 0, told[order]!.outflow ?? 0);
    most.set(queue.unit, Math.max(most.get(queue.unit) ?? 0, here));
  });
  const arrow: Arrow = (d, queue, rate, label, side = false) => {
    const share = (rate ?? 0) / (most.get(queue.unit) || 1);
    const thick = rate === null ? 1 : 1.2 + (side ? 2.5 : 7) * Math.sqrt(Math.max(share, 0));
    const line = s("path", { class: rate ? "stream" : "stream still", d, "stroke-width": thick.toFixed(1), "marker-end": "url(#arrow)" });
    const text = label && rate !== null ? s("text", { class: "rate", x: label[0], y: label[1], "text-anchor": narrow ? "start" : "middle" }, show(perSecond(queue.unit), rate)) : null;
    return text ? [line, text] : [line];
  };
  const parts: Element[] = [];
  for (const [from, to] of links) {
    const [a, b] = [places[from]!, places[to]!];
    const rate = told[from]!.outflow ?? told[to]!.inflow;
    const queue = told[from]!.outflow === null ? queues[to]! : queues[from]!;
    if (narrow) {
      if (queues[from]!.row !== queues[to]!.row) continue;
      const x = a.x + 40;
      parts.push(...arrow(`M${x} ${a.y + HEIGHT + 2}V${b.y - 5}`, queue, rate, [x + 14, a.y + HEIGHT + 17]));
      continue;
    }
    const [x1, y1, x2, y2] = [a.x + a.width + 2, a.y + HEIGHT / 2, b.x - 5, b.y + HEIGHT / 2];
    const middle = (x1 + x2) / 2;
    // To another row: down beside the columns, the farther the lower it begins and the more to the left it runs.
    const rows = queues[to]!.row - queues[from]!.row;
    const below = Math.min(4 + 8 * rows, HEIGHT / 2 - 8);
    const turn = x1 + Math.max(GAP - 14 - 12 * rows, 12);
    const d = y1 === y2 ? `M${x1} ${y1}H${x2}` : `M${x1} ${y1 + below}H${turn - 8}q8 0 8 8V${y2 + 6}q0 8 8 8H${x2}`;
    parts.push(...arrow(d, queue, rate, y1 === y2 ? [middle, y1 - 9] : null, y1 !== y2));
  }
  if (!narrow) parts.push(...ends(page, told, places, arrow));
  return parts;
}

type Arrow = (d: string, queue: Queue, rate: number | null, label: [number, number] | null, side?: boolean) => Element[];

/** What comes from outside, and what leaves for good. */
function ends(page: Page, told: Told[], places: Place[], arrow: Arrow): Element[] {
  const { queues, links } = page.path;
  return queues.flatMap((queue, order) => {
    const { x, y, width } = places[order]!;
    const middle = y + HEIGHT / 2;
    const { inflow, outflow } = told[order]!;
    // What is kept is no stop on the way: it holds what stands in all the others.
    if (queue.name.startsWith("pg.wal.retained")) return [];
    const parts: Element[] = [];
    if (!links.some(([, to]) => to === order) && inflow !== null) {
      parts.push(...arrow(`M${x - GAP + 10} ${middle}H${x - 5}`, queue, inflow, [x - GAP / 2 + 2, middle - 9]));
    }
    if (!links.some(([from]) => from === order) && outflow !== null) {
      const right = x + width;
      parts.push(...arrow(`M${right + 2} ${middle}H${right + GAP - 12}`, queue, outflow, [right + GAP / 2 - 4, middle - 9]));
    }
    return parts;
  });
}

function node(queue: Queue, told: Told, place: Place, kind: string, act: () => void, order: number, open: boolean): SVGGElement {
  const { x, y, width } = place;
  const cut = (text: string, letter: number) => {
    const most = Math.floor((width - 14) / letter);
    return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
  };
  const level = show(queue.unit, told.level.most);
  const { fill } = told;
  const state = kind.includes("binding") ? "it binds" : kind.includes("victim") ? "held up" : "";
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
    transform: `translate(${x} ${y})`,
    on: { click: act, keydown: key },
  });
  group.append(
    s("rect", { class: "box", width, height: HEIGHT, rx: 6 }),
    s("rect", { class: "shading", width, height: HEIGHT, rx: 6 }),
    s("text", { class: "title", x: 8, y: 18 }, cut(queue.title, 7.7)),
    s("text", { class: "name", x: 8, y: 32 }, cut(queue.name, 6)),
    s("text", { class: "level", x: 8, y: 56 }, level),
    s("text", { class: "limit", x: 8, y: 72 }, limit(queue, told, fill)),
    ...gauge(told, fill, width),
  );
  if (state) group.append(s("text", { class: "flag", x: width, y: -4, "text-anchor": "end" }, state === "it binds" ? "▲ binds" : "held up"));
  return group;
}

function limit(queue: Queue, told: Told, fill: number | null): string {
  if (told.hard === null) return queue.waiters === null ? "no limit of its own" : "sessions waiting";
  return fill === null ? `limit ${show(queue.unit, told.hard)}` : `≤ ${show("ratio", fill)} of ${show(queue.unit, told.hard)}`;
}

/** How full: a bar up to the hard limit with the soft one as a notch. */
function gauge(told: Told, fill: number | null, width: number): Element[] {
  if (fill === null || !told.hard) return [];
  const room = width - 16;
  const at = (share: number) => Math.min(Math.max(share, 0), 1) * room;
  const tone = fill >= 0.75 ? "full" : fill >= 0.5 ? "filling" : "";
  const soft = told.soft === null ? [] : [s("line", { class: "notch", x1: 8 + at(told.soft / told.hard), x2: 8 + at(told.soft / told.hard), y1: 77, y2: 87 })];
  return [
    s("rect", { class: "gauge", x: 8, y: 79, width: room, height: 6, rx: 3 }),
    s("rect", { class: `gauge-fill ${tone}`, x: 8, y: 79, width: Math.max(at(fill), fill > 0 ? 2 : 0), height: 6, rx: 3 }),
    ...soft,
  ];
}

/** What a queue is, and its figures. */
function details(page: Page, view: View, queue: Queue, curves: (panels: number[]) => void): HTMLElement {
  const told = tell(page, view, queue);
  const rate = perSecond(queue.unit);
  const mean = told.level.mean;
  const growth = told.inflow !== null && told.outflow !== null ? told.inflow - told.outflow : null;
  const residence = mean !== null && told.outflow ? mean / told.outflow : null;
  const room = told.hard !== null && told.level.last !== null ? told.hard - told.level.last : null;
  const until = room !== null && growth !== null && growth > 0 && room > 0 ? room / growth : null;
  const rows: [string, string][] = [
    ["highest level", show(queue.unit, told.level.most)],
    ["mean level", show(queue.unit, mean)],
    ["soft limit", show(queue.unit, told.soft)],
    ["hard limit", show(queue.unit, told.hard)],
    ["arrives", show(rate, told.inflow)],
    ["leaves", show(rate, told.outflow)],
    ["stays for (mean level ÷ what leaves)", show("seconds", residence)],
    ["until the limit, at these rates", show("seconds", until)],
  ];
  const known = rows.filter(([, value]) => value !== "–");
  const button = h("button", { type: "button", on: { click: () => curves(queue.panels) } }, "Show its curves");
  return h(
    "div",
    { class: "card" },
    h("h3", {}, queue.title, " ", h("code", {}, queue.name), queue.target ? ` on ${queue.target}` : null),
    h("p", {}, queue.about),
    h("p", {}, h("b", {}, "At its limit: "), queue.at_limit),
    h("table", { class: "figures" }, h("tbody", {}, ...known.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))),
    queue.panels.length > 0 ? h("p", { class: "screen" }, button) : null,
  );
}

/** What moves WAL, and how it spent the recording. */
function stages(page: Page): HTMLElement | null {
  const list = page.path.stages;
  if (list.length === 0) return null;
  const share = (value: number | null) => h("td", {}, show("ratio", value));
  const row = (stage: (typeof list)[number]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, stage.name)),
      share(stage.shares.busy),
      share(stage.shares.blocked),
      share(stage.shares.starved),
      h("td", {}, show("bytes_per_second", stage.rate_per_s)),
      h("td", {}, stage.ceiling ? show(stage.ceiling.unit, stage.ceiling.per_second) : "–"),
      h("td", { class: "text" }, stage.resource ?? "–"),
    );
  const heads = ["stage", "busy", "blocked", "starved", "moves", "ceiling", "needs"];
  const head = h("tr", {}, ...heads.map((name, place) => h("th", { scope: "col", class: place === 0 || place === 6 ? "text" : "" }, name)));
  return h(
    "details",
    { class: "stages" },
    h("summary", {}, "What moves WAL to standbys, and how it spent its time"),
    h("p", { class: "hint" }, "Over the whole recording. Blocked: what comes next was full. Starved: there was nothing to do."),
    h("div", { class: "scroll", tabindex: 0 }, h("table", { class: "numbers" }, h("thead", {}, head), h("tbody", {}, ...list.map(row)))),
  );
}
