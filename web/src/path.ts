// The path: queues from clients to durable storage and to standbys, with what stands in each and what flows between them.

import type { Finding, Page, Queue, Unit } from "./document";
import { h, keepOpen, onWidth, put } from "./dom";
import { concerns, current, drawing, tell } from "./drawing";
import { missing } from "./figures";
import { perSecond, show } from "./units";
import type { View } from "./view";

/** On paper it is drawn for this width, and as wide as the sheet: small type, but all of it. */
const PAPER = 860;

export function path(page: Page, view: View, curves: (panels: number[]) => void): HTMLElement {
  const host = h("div", { class: "path" });
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  const when = h("p", { class: "hint" });
  const elsewhere = h("p", { class: "hint" });
  const moved = h("div", {});
  let width = 0;
  let printed = false;
  /** Whether somebody presses a button on it, and something newer waits until it is let go: drawn anew in between, nobody would hear
   * the click. */
  let pressed = false;
  let late = false;
  /** The queue that is told of, by name and server: its place may be another in a newer document. */
  let chosen: string | null = null;
  const draw = () => {
    if (width === 0 && !printed) return;
    late = pressed;
    if (late) return;
    const { queues } = page.path;
    const place = queues.findIndex((queue) => nameOf(queue) === chosen);
    put(when, queues.length === 0 ? "Nothing was recorded of any queue." : heading(view));
    put(elsewhere, unrecorded(page));
    const focused = (document.activeElement as Element | null)?.getAttribute("data-queue") ?? null;
    put(host, queues.length === 0 ? null : drawing(page, view, printed ? PAPER : width, place < 0 ? null : place, choose));
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
  const print = (on: boolean) => () => {
    printed = on;
    draw();
  };
  host.addEventListener("pointerdown", () => (pressed = true));
  const letGo = () => {
    pressed = false;
    // After the click, which comes next.
    if (late) setTimeout(draw);
  };
  addEventListener("pointerup", letGo);
  addEventListener("pointercancel", letGo);
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  view.follow(() => {
    draw();
    stagesToo();
  });
  view.followCursor(draw);
  return h("div", {}, when, host, elsewhere, detail, moved);
}

const nameOf = (queue: Queue) => `${queue.name} ${queue.target ?? ""}`;

function heading(view: View): string {
  const what = "a level is the highest, with its limit at that moment, and a flow the mean";
  if (view.cursor === null) return `Over ${view.isWhole() ? "the whole recording" : view.words(view.stretch)}: ${what}. Choose a queue for what it is.`;
  return `At ${view.time((view.cursor + 0.5) * view.axis.step_s)}, where the pointer is.`;
}

/** Queues that findings name and of which no figure was recorded: better said than left out. */
function unrecorded(page: Page): string | null {
  const known = (finding: Finding) => page.path.queues.some((queue) => queue.name === finding.queue && concerns(finding, queue));
  const names = [...new Set(page.findings.filter((finding) => !known(finding)).map(({ queue }) => queue))];
  return names.length > 0 ? `Named by findings, with no figures of their own: ${names.join(", ")}.` : null;
}

/** What a queue is, and its figures. */
function details(page: Page, view: View, queue: Queue, curves: (panels: number[]) => void): HTMLElement {
  const told = tell(page, view, queue);
  const { highest, fullest } = told;
  const rate = perSecond(queue.unit);
  const mean = told.level.mean;
  const growth = told.inflow !== null && told.outflow !== null ? told.inflow - told.outflow : null;
  const residence = mean !== null && told.outflow && !queue.at_least ? mean / told.outflow : null;
  const room = told.heldFrom !== null && told.level.last !== null ? told.heldFrom - told.level.last : null;
  const until = room !== null && growth !== null && growth > 0 && room > 0 ? room / growth : null;
  const full = fullest && `${show("ratio", fullest.fill)}: ${show(queue.unit, fullest.level)} of ${show(queue.unit, fullest.heldFrom)}`;
  // What was never counted has no row; what was, and has no reading here, says so.
  const of = (place: number | null, unit: Unit, value: number | null) => (value === null && place !== null ? missing(place) : show(unit, value));
  const bound = (text: string) => (queue.at_least && /\d/.test(text) ? `at least ${text}` : text);
  const rows: [string, string][] = [
    ["highest level", bound(of(queue.level, queue.unit, told.level.most))],
    ["mean level", bound(of(queue.level, queue.unit, mean))],
    ["soft limit", of(queue.soft_limit, queue.unit, told.soft)],
    ["hard limit", of(queue.hard_limit, queue.unit, told.hard)],
    ["writers are paused from", queue.held_midway ? show(queue.unit, highest?.heldFrom ?? told.heldFrom) : "–"],
    ["fullest", full ?? "–"],
    ["in line for it, at most", of(queue.waiters, "count", told.waiters)],
    ["arrives", bound(of(queue.inflow, rate, told.inflow))],
    ["leaves", bound(of(queue.outflow, rate, told.outflow))],
    ["stays for (mean level ÷ what leaves)", show("seconds", residence)],
    [queue.held_midway ? "until writers are paused, at these rates" : "until the limit, at these rates", show("seconds", until)],
  ];
  const known = rows.filter(([, value]) => value !== "–");
  const button = h("button", { type: "button", on: { click: () => curves(queue.panels) } }, "Show its curves");
  const found = current(page, view).filter((finding) => finding.queue === queue.name && concerns(finding, queue));
  const partial = queue.at_least ? h("p", { class: "hint" }, "Not all of it is read: its figures are lower bounds.") : null;
  const more = queue.docs.flatMap(({ title, url }, place) => [place > 0 ? " · " : null, h("a", { href: url, rel: "noreferrer", target: "_blank" }, title)]);
  const limits = highest?.hard ? h("p", { class: "hint" }, "The limits are those of the moment at which the level was highest.") : null;
  return h(
    "div",
    { class: "card" },
    h("h3", {}, queue.title, " ", h("code", {}, queue.name), queue.target ? ` on ${queue.target}` : null),
    h("p", {}, queue.about),
    h("p", {}, h("b", {}, "At its limit: "), queue.at_limit),
    found.length > 0 ? h("p", {}, h("b", {}, "It binds: "), found.map((finding) => `${finding.rule} (${finding.cause})`).join(", ")) : null,
    h("table", { class: "figures" }, h("tbody", {}, ...known.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))),
    limits,
    partial,
    more.length > 0 ? h("p", { class: "docs" }, h("b", {}, "Documentation: "), ...more) : null,
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
