// Findings: plain words, what they rest on, what was ruled out, what could not be seen, what to do.

import type { Finding, Page, Remedy, Unseen } from "./document";
import { h, keepOpen, put } from "./dom";
import { show } from "./units";
import type { View } from "./view";

const SIGNS = { critical: "✗ Critical", warning: "▲ Warning", info: "• Worth knowing" };
const SURE = {
  high: "high (independent readings agree)",
  medium: "medium (one usual piece of evidence is missing)",
  low: "low (the evidence would also fit something that could not be seen)",
};
const ACTIVE = { immediate: "Takes effect at once.", reload: "Takes effect after a reload.", restart: "Takes effect after a restart." };

export class Findings {
  readonly element = h("div", {});
  private told = "";

  constructor(
    private readonly page: Page,
    private readonly view: View,
  ) {
    this.renew();
  }

  /** The document may be a newer one: told anew where it says something else, what was unfolded staying so. */
  renew(): void {
    const { findings: list, unseen: hidden, failing, blind } = this.page;
    const now = JSON.stringify([list, hidden, failing, blind, this.page.path.queues.length > 0]);
    if (now === this.told) return;
    this.told = now;
    const healthy = list.length === 0 ? none(this.page) : null;
    // Before what was found: it is no longer known whether that still holds, nor whether there is more.
    const doubts = [...failing, ...blind].map((text) => h("p", { class: "bad failing" }, `▲ ${text}`));
    const each = list.map((finding, order) => one(this.page, this.view, finding, order));
    keepOpen(this.element, () => put(this.element, ...doubts, healthy, ...each, unseen(hidden)));
  }
}

/** That nothing was found, and whether there was anything to judge. */
function none(page: Page): HTMLElement {
  if (page.path.queues.length === 0) return h("p", {}, "No finding: no queue was recorded, so there was nothing to judge.");
  const sure = page.failing.length + page.blind.length === 0;
  return h("p", { class: sure ? "good" : "" }, `${sure ? "✓ " : ""}No finding: no rule saw a queue at its limit.`);
}

function one(page: Page, view: View, finding: Finding, order: number): HTMLElement {
  const { from_s, to_s } = finding;
  const margin = Math.max((to_s - from_s) * 0.25, page.axis.step_s * 2);
  const zoom = () => {
    view.look(from_s - margin, to_s + margin);
    document.getElementById("timeline")?.scrollIntoView();
  };
  const when = from_s < 0 || from_s > view.whole.to ? "outside this page's stretch of time" : view.words({ from: from_s, to: to_s });
  const rule = page.rules[finding.rule];
  return h(
    "article",
    { class: `card finding ${finding.severity}`, id: `finding-${order + 1}` },
    h("h3", {}, h("span", { class: "sign" }, SIGNS[finding.severity]), ` ${finding.rule} `, h("span", { class: "cause" }, `(${finding.cause})`), " ", h("code", {}, finding.queue), finding.server ? ` on ${finding.server}` : null),
    h("p", { class: "hint" }, `${when}, confidence ${SURE[finding.confidence]} `, h("button", { type: "button", class: "screen", on: { click: zoom } }, "Look at it")),
    h("p", { class: "summary" }, finding.summary),
    finding.foreground_lost === null ? null : h("p", {}, h("b", {}, `Foreground time lost: ${show("ratio", finding.foreground_lost)}`)),
    finding.victims.length > 0 ? h("p", {}, `It also holds up: ${finding.victims.join(", ")}`) : null,
    remedies(finding.remedies),
    h(
      "div",
      { class: "columns" },
      finding.evidence.length > 0 ? evidence(finding.evidence) : null,
      h("div", {}, ...ruledOut(finding), finding.unseen.length > 0 ? h("h4", {}, "Could not be seen") : null, ...finding.unseen.map(hidden)),
    ),
    rule ? h("details", {}, h("summary", {}, `The rule: ${rule.summary}`), h("pre", { class: "page", tabindex: 0 }, rule.page)) : null,
  );
}

/** Figures shown before anybody asks for the others. */
const FIRST = 8;

function evidence(list: Finding["evidence"]): HTMLElement {
  const rest = list.slice(FIRST);
  return h(
    "div",
    {},
    h("h4", {}, "Evidence"),
    figures(list.slice(0, FIRST)),
    rest.length > 0 ? h("details", {}, h("summary", {}, `${rest.length} more figures`), figures(rest)) : null,
  );
}

function figures(list: Finding["evidence"]): HTMLElement {
  const row = (figure: Finding["evidence"][number]) =>
    h("tr", {}, h("th", { scope: "row" }, figure.label), h("td", { title: figure.name }, show(figure.unit, figure.value)));
  return h("table", { class: "figures" }, h("tbody", {}, ...list.map(row)));
}

function ruledOut(finding: Finding): HTMLElement[] {
  if (finding.ruled_out.length === 0) return [];
  const item = (out: { cause: string; because: string }) => h("li", {}, h("b", {}, out.cause), `: ${out.because}`);
  return [h("h4", {}, "Ruled out"), h("ul", {}, ...finding.ruled_out.map(item))];
}

function hidden(one: Unseen): HTMLElement {
  return h("div", {}, h("p", {}, h("b", {}, one.what), `: ${one.why}`), one.remedy ? commands("To see it", [one.remedy]) : null);
}

function remedies(list: Remedy[]): HTMLElement | null {
  if (list.length === 0) return null;
  const remedy = (one: Remedy, order: number) =>
    h(
      "details",
      { class: "remedy", open: order === 0 },
      h("summary", {}, one.title),
      commands("Now", one.runtime),
      commands("To keep it", one.persistent),
      h("p", {}, ACTIVE[one.activation]),
      one.predicted.length > 0 ? h("div", {}, h("h5", {}, "Predicted"), figures(one.predicted)) : null,
      one.risk ? h("p", {}, h("b", {}, "Risk: "), one.risk) : null,
      commands("To take it back", one.undo),
    );
  return h("div", { class: "remedies" }, h("h4", {}, "What to do"), ...list.map(remedy));
}

/** Commands with a button that copies them, whole. */
function commands(title: string, list: string[]): HTMLElement | null {
  if (list.length === 0) return null;
  const text = list.join("\n");
  const code = h("code", {}, text);
  const button = h("button", { type: "button", class: "copy screen", "aria-label": `Copy: ${title}` }, "Copy");
  button.addEventListener("click", () => {
    void copy(text, code).then((done) => {
      put(button, done ? "Copied" : "Selected: press Ctrl-C");
      setTimeout(() => put(button, "Copy"), 2_000);
    });
  });
  return h("div", { class: "commands" }, h("span", { class: "label" }, title), button, h("pre", { tabindex: 0 }, code));
}

/** Puts text where it can be pasted; where a page from disk may not, selects it. */
async function copy(text: string, code: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(code);
    return false;
  }
}

function unseen(list: Unseen[]): HTMLElement | null {
  if (list.length === 0) return null;
  return h("details", { class: "card" }, h("summary", {}, `What could not be seen here (${list.length})`), ...list.map(hidden));
}
