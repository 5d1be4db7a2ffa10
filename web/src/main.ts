// The page: reads the document inside it and builds its parts.

import "uplot/dist/uPlot.min.css";
import "./style.css";
import { read, type Page } from "./document";
import { h, put } from "./dom";
import { events } from "./events";
import { findings } from "./findings";
import { lab } from "./lab";
import { overview } from "./overview";
import { path } from "./path";
import { SessionView } from "./sessions";
import { themes } from "./theme";
import { Timeline } from "./timeline";
import { show } from "./units";
import { View } from "./view";

function section(id: string, title: string, ...children: (Node | null)[]): HTMLElement {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

function build(page: Page, host: HTMLElement): void {
  const view = new View(page.axis);
  let redraw = () => {};
  const { toggle } = themes(() => redraw());
  const timeline = new Timeline(page, view);
  const sessions = page.sessions ? new SessionView(page, page.sessions, view) : null;
  redraw = () => {
    timeline.redraw();
    sessions?.redraw();
  };
  const parts: [string, string, HTMLElement][] = [
    ["findings", "Findings", findings(page, view)],
    ["path", "The path", path(page, view, (panels) => timeline.show(panels))],
    ["timeline", "Timeline", h("div", {}, timeline.element, events(page, view))],
    ["sessions", "Sessions", sessions?.element ?? h("p", { class: "hint" }, "No server was watched, so nobody's sessions were looked at.")],
  ];
  if (page.lab) parts.push(["lab", "Lab results", lab(page.lab)]);
  parts.push(["about", "About this recording", about(page)]);
  put(
    host,
    header(page, view, toggle, parts),
    h("div", { class: "sticky" }, overview(page, view)),
    ...parts.map(([id, title, content]) => section(id, title, content)),
    h("footer", {}, `Backwater ${page.about.made_by}. Times are yours: ${view.day()}.`),
  );
  keys(view, toggle);
}

function header(page: Page, view: View, toggle: () => void, parts: [string, string, HTMLElement][]): HTMLElement {
  const links = parts.map(([id, title]) => h("a", { href: `#${id}` }, title));
  const theme = h("button", { type: "button", title: "Light or dark (t)", "aria-label": "Light or dark", on: { click: toggle } }, "◐");
  return h(
    "header",
    {},
    h("div", { class: "head" }, h("h1", {}, h("span", { class: "brand" }, "Backwater"), ` ${page.about.title}`), theme),
    h("p", { class: "hint" }, `${view.day()}; ${show("seconds", page.about.seconds)} recorded. `, verdict(page)),
    h("nav", { class: "screen", "aria-label": "Parts of this page" }, ...links),
    ...page.about.warnings.map((warning) => h("p", { class: "bad" }, `▲ ${warning}`)),
  );
}

/** `2 findings: 1 critical, 1 warning`. */
function verdict(page: Page): HTMLElement {
  const { length } = page.findings;
  if (length === 0) return h("b", { class: "good" }, "No finding.");
  const of = (severity: string) => page.findings.filter((finding) => finding.severity === severity).length;
  const counts = [of("critical") && `${of("critical")} critical`, of("warning") && `${of("warning")} warning${of("warning") === 1 ? "" : "s"}`, of("info") && `${of("info")} worth knowing`];
  return h("b", { class: of("critical") + of("warning") > 0 ? "bad" : "" }, `${length} finding${length === 1 ? "" : "s"}: ${counts.filter(Boolean).join(", ")}.`);
}

function about(page: Page): HTMLElement {
  const row = ([name, value]: [string, string]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "text" }, value));
  const piece = show("seconds", page.axis.step_s);
  return h(
    "div",
    {},
    h("table", { class: "figures facts" }, h("tbody", {}, ...page.about.facts.map(row))),
    h(
      "p",
      { class: "hint" },
      `Recorded by Backwater ${page.about.written_by || "of an unknown version"}. Curves have one piece for ${piece}: its least and its most, so that no peak is lost.`,
    ),
    h("h3", {}, "Keys"),
    h("p", { class: "hint screen" }, "← → move, + − look closer or wider, 0 shows all, t changes between light and dark."),
  );
}

function keys(view: View, toggle: () => void): void {
  const acts: Record<string, () => void> = {
    ArrowLeft: () => view.pan(-0.25),
    ArrowRight: () => view.pan(0.25),
    "+": () => view.zoom(0.5),
    "=": () => view.zoom(0.5),
    "-": () => view.zoom(2),
    "0": () => view.reset(),
    t: toggle,
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

const host = document.getElementById("page");
if (host) {
  try {
    build(read(), host);
  } catch (error) {
    put(host, h("p", { class: "bad" }, error instanceof Error ? error.message : String(error)));
    console.error(error);
  }
}
