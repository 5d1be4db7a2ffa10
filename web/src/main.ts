// The page: reads the document inside it, or follows a server that sends it, and builds its parts.

import "uplot/dist/uPlot.min.css";
import "./style.css";
import { read, type Page } from "./document";
import { h, put } from "./dom";
import { events } from "./events";
import { Findings } from "./findings";
import { FlowView } from "./flow";
import { lab } from "./lab";
import { config, Follower, type Live, type State } from "./live";
import { overview } from "./overview";
import { Parts, Words } from "./parts";
import { path } from "./path";
import { SessionView } from "./sessions";
import { shards } from "./shards";
import { themes } from "./theme";
import { Timeline } from "./timeline";
import { show } from "./units";
import { View } from "./view";

/** What is shown, and how a newer document takes its place. */
interface Built {
  renew(page: Page): void;
}

function build(page: Page, host: HTMLElement, live: LiveBar | null): Built {
  const view = new View(page.axis);
  let redraw = () => {};
  const { toggle } = themes(() => redraw());
  const timeline = new Timeline(page, view);
  const sessions = new Sessions(page, view);
  const found = new Findings(page, view);
  const drawn = path(page, view, (panels) => timeline.show(panels));
  const charts = h("div", {}, timeline.element, events(page, view));
  const results = new Words(() => page.lab, () => [page.lab ? lab(page.lab) : null]);
  const sideBySide = new Words(() => page.shards, () => [shards(page.shards)]);
  const facts = new Words(() => [page.about.facts, page.about.written_by, page.axis.step_s], () => about(page));
  let flow: FlowView | null = null;
  redraw = () => {
    timeline.redraw();
    sessions.redraw();
  };
  const end = h("footer", {});
  const parts = new Parts(
    [
      { id: "findings", title: "Findings", content: () => found.element },
      { id: "path", title: "The path", content: () => drawn },
      { id: "shards", title: "Shards side by side", content: () => (page.shards.length > 0 ? sideBySide.element : null) },
      { id: "timeline", title: "Timeline", content: () => charts },
      { id: "sessions", title: "Sessions", content: () => sessions.element },
      { id: "flow", title: "Flow", content: () => (page.flow ? (flow ??= new FlowView(page, view)).element : null) },
      { id: "lab", title: "Lab results", content: () => (page.lab ? results.element : null) },
      { id: "about", title: live ? "About what is watched" : "About this recording", content: () => facts.element },
    ],
    end,
  );
  const title = h("h1", {});
  const said = h("div", {});
  const tell = () => {
    put(title, h("span", { class: "brand" }, "Backwater"), ` ${page.about.title}`);
    if (live) document.title = `Backwater: ${page.about.title}`;
    put(said, summary(page, view), ...page.about.warnings.map((warning) => h("p", { class: "bad" }, `▲ ${warning}`)));
    put(end, `Backwater ${page.about.made_by}. Times are yours: ${view.day()}.`);
  };
  put(host, header(title, said, toggle, parts, live), h("div", { class: "sticky" }, overview(page, view)), end);
  parts.renew();
  tell();
  keys(view, toggle, live);
  return {
    renew(newer) {
      // Every part reads from this one document.
      Object.assign(page, newer);
      view.renew(page.axis);
      timeline.renew();
      sessions.renew();
      found.renew();
      results.renew();
      sideBySide.renew();
      facts.renew();
      parts.renew();
      tell();
    },
  };
}

/** The sessions' part, which may begin to have something to show while a page is live. */
class Sessions {
  readonly element = h("div", {});
  private view: SessionView | null = null;

  constructor(
    private readonly page: Page,
    private readonly stretch: View,
  ) {
    this.renew();
  }

  renew(): void {
    const { sessions } = this.page;
    if (sessions && this.view) return this.view.renew(sessions);
    if (!sessions && this.element.firstChild) return;
    this.view = sessions ? new SessionView(this.page, sessions, this.stretch) : null;
    put(this.element, this.view?.element ?? h("p", { class: "hint" }, "No server was watched, so nobody's sessions were looked at."));
  }

  redraw(): void {
    this.view?.redraw();
  }
}

function header(title: HTMLElement, said: HTMLElement, toggle: () => void, parts: Parts, live: LiveBar | null): HTMLElement {
  const theme = h("button", { type: "button", title: "Light or dark (t)", "aria-label": "Light or dark", on: { click: toggle } }, "◐");
  return h("header", {}, h("div", { class: "head" }, title, theme), live?.element ?? null, said, parts.nav);
}

function summary(page: Page, view: View): HTMLElement {
  return h("p", { class: "hint" }, `${view.day()}; ${show("seconds", page.about.seconds)} recorded. `, verdict(page));
}

/** `2 findings: 1 critical, 1 warning.`, and whether something could not be read: then what is not found may be there all the same. */
function verdict(page: Page): HTMLElement {
  const { length } = page.findings;
  const unread = page.failing.length + page.blind.length > 0 ? " Something could not be read." : "";
  if (length === 0) return h("b", { class: unread ? "bad" : page.path.queues.length > 0 ? "good" : "" }, `No finding.${unread}`);
  const of = (severity: string) => page.findings.filter((finding) => finding.severity === severity).length;
  const counts = [of("critical") && `${of("critical")} critical`, of("warning") && `${of("warning")} warning${of("warning") === 1 ? "" : "s"}`, of("info") && `${of("info")} worth knowing`];
  return h("b", { class: of("critical") + of("warning") > 0 ? "bad" : "" }, `${length} finding${length === 1 ? "" : "s"}: ${counts.filter(Boolean).join(", ")}.${unread}`);
}

function about(page: Page): HTMLElement[] {
  const row = ([name, value]: [string, string]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "text" }, value));
  const piece = show("seconds", page.axis.step_s);
  return [
    h("table", { class: "figures facts" }, h("tbody", {}, ...page.about.facts.map(row))),
    h(
      "p",
      { class: "hint" },
      `Recorded by ${page.about.written_by}. Curves have one piece for ${piece}: its least and its most, so that no peak is lost.`,
    ),
    h("h3", { class: "screen" }, "Keys"),
    h("p", { class: "hint screen" }, "← → move, + − look closer or wider, 0 shows all, t changes between light and dark; on a live page p stops and goes on."),
  ];
}

function keys(view: View, toggle: () => void, live: LiveBar | null): void {
  const acts: Record<string, () => void> = {
    ArrowLeft: () => view.pan(-0.25),
    ArrowRight: () => view.pan(0.25),
    "+": () => view.zoom(0.5),
    "=": () => view.zoom(0.5),
    "-": () => view.zoom(2),
    "0": () => view.reset(),
    t: toggle,
    p: () => live?.toggle(),
  };
  addEventListener("keydown", (event) => {
    const target = event.target as Element | null;
    if (event.ctrlKey || event.metaKey || event.altKey || target?.closest("input, select, pre, .scroll")) return;
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** What a live page says of its server, and the way to the other things that are watched. */
class LiveBar {
  readonly element: HTMLElement;
  private readonly state = h("output", { class: "live-state" }, "…");
  private readonly button = h("button", { type: "button", title: "Stop, or go on (p)", on: { click: () => this.toggle() } }, "Pause");
  follower: Follower | null = null;
  /** What was told last, and when. */
  private told: { state: State; at: Date } | null = null;

  constructor(live: Live) {
    const one = ({ name, href, kind, here }: Live["sources"][number]) =>
      h("a", { href, "aria-current": here ? "page" : false }, `${kind === "live" ? "● " : ""}${name}`);
    const others = live.sources.length > 1 ? h("nav", { class: "sources screen", "aria-label": "What is watched" }, ...live.sources.map(one)) : null;
    this.element = h("div", { class: "live" }, h("div", { class: "live-bar" }, this.state, this.button), others);
  }

  tell(state: State): void {
    this.told = { state, at: new Date() };
    this.draw();
  }

  toggle(): void {
    if (!this.follower) return;
    this.follower.pause(!this.follower.paused);
    put(this.button, this.follower.paused ? "Go on" : "Pause");
    this.draw();
  }

  private draw(): void {
    if (!this.told) return;
    const { state, at } = this.told;
    this.state.className = `live-state ${state.kind}`;
    const paused = this.follower?.paused ? "paused" : "live";
    put(this.state, state.kind === "fresh" ? `${paused}, as of ${at.toLocaleTimeString("en-GB")}` : state.words);
  }
}

function wrong(host: HTMLElement, words: string): void {
  put(host, h("p", { class: "bad" }, words));
}

function start(host: HTMLElement): void {
  const live = config();
  if (!live) {
    build(read(), host, null);
    return;
  }
  const bar = new LiveBar(live);
  let built: Built | null = null;
  const shown = (page: Page) => {
    if (built) built.renew(page);
    else built = build(page, host, bar);
  };
  const tell = (state: State) => (built ? bar.tell(state) : wrong(host, state.words || "…"));
  bar.follower = new Follower(live, shown, tell);
}

const host = document.getElementById("page");
if (host) {
  try {
    start(host);
  } catch (error) {
    wrong(host, error instanceof Error ? error.message : String(error));
    console.error(error);
  }
}
