// Flow: what holds work back. Pools, rules, who is held at what rate and by which allowance or queue, and what rules did.

import type { Flow, FlowState, Hold, Page } from "./document";
import { h, keepOpen, put, type Child } from "./dom";
import { show } from "./units";
import type { View } from "./view";

/** Deeds that are listed at once. */
const MOST = 200;
const ACTIONS: Record<string, string> = { penalty: "slows", abort: "cancels", dryrun: "would act" };

export class FlowView {
  readonly element = h("div", {});
  private readonly now = h("div", {});
  private readonly title = h("h3", {});
  private readonly deeds = h("div", {});
  private told = "";

  constructor(
    private readonly page: Page,
    private readonly view: View,
  ) {
    put(this.element, this.now, this.title, this.deeds);
    view.follow(() => this.renew());
  }

  /** Another stretch, or a newer document. */
  private renew(): void {
    const { flow } = this.page;
    if (!flow) return;
    const now = JSON.stringify([flow.at_s, flow.state]);
    if (now !== this.told) {
      this.told = now;
      keepOpen(this.now, () => put(this.now, ...state(flow, this.view)));
    }
    const { from, to } = this.view.stretch;
    const seen = flow.holds.filter((hold) => hold.from_s <= to && (hold.to_s ?? Infinity) >= from);
    put(this.title, `What rules did ${this.view.isWhole() ? "" : "in this stretch "}(${seen.length})`);
    put(this.deeds, ...deeds(flow, seen, this.view));
  }
}

function state(flow: Flow, view: View): Child[] {
  const { state: now, at_s } = flow;
  if (!now || at_s === null) {
    return [h("p", { class: "hint" }, "Only decisions were recorded here, not who was held at what rate.")];
  }
  const held = now.held_in_all;
  const words = [
    `As of ${view.time(at_s)}, ${now.by}: `,
    held === 0 ? "nobody is held. " : h("b", {}, `${held} session${held === 1 ? " is" : "s are"} held. `),
    now.rate_bps === null ? null : `All low-priority sessions together may send ${show("bytes_per_second", now.rate_bps)}, by ${now.rate_by}`,
    now.queueing_us === null ? null : ` (the queue on their way was ${show("microseconds", now.queueing_us)})`,
    now.rate_bps === null ? null : now.waiting === 0 ? "." : `; ${now.waiting} wait${now.waiting === 1 ? "s" : ""} for some of it.`,
  ];
  const parts = now.pools.length > 0 ? [h("h3", {}, "Pools"), pools(now)] : [];
  return [h("p", {}, ...words), whom(now), ...parts, h("h3", {}, "Rules"), rules(now)];
}

function table(kind: string, heads: [string, "text" | "number"][], rows: HTMLElement[]): HTMLElement {
  const head = h("tr", {}, ...heads.map(([name, sort]) => h("th", { scope: "col", class: sort === "text" ? "text" : "" }, name)));
  return h("div", { class: "scroll", tabindex: 0 }, h("table", { class: `numbers ${kind}` }, h("thead", {}, head), h("tbody", {}, ...rows)));
}

const word = (text: string | null) => h("td", { class: "text" }, text === null || text === "" ? "–" : text);
const figure = (text: string) => h("td", {}, text);
const bound = (limit: number | null) => figure(limit === null ? "–" : String(limit));
const name = (text: string) => h("th", { scope: "row" }, text);

function whom(now: FlowState): HTMLElement | null {
  if (now.held.length === 0) return null;
  const row = (one: FlowState["held"][number]) =>
    h(
      "tr",
      {},
      name(`${one.session}`),
      word(one.user),
      word(one.application || one.client),
      word(one.pool),
      word(one.rule ? `rule ${one.rule}` : one.pool ? "its pool is low" : "it was named"),
      word(`${one.state}, ${show("seconds", one.for_s)}`),
      figure(show("bytes_per_second", one.rate_bps)),
      figure(show("bytes", one.sent_bytes)),
      word(one.allowed_bps === null ? "–" : `${show("bytes_per_second", one.allowed_bps)} by ${one.bound_by}`),
    );
  const heads: [string, "text" | "number"][] = [
    ["session", "text"],
    ["user", "text"],
    ["who", "text"],
    ["pool", "text"],
    ["held because", "text"],
    ["does", "text"],
    ["is sent", "number"],
    ["so far", "number"],
    ["may be sent", "text"],
  ];
  const rest = now.held_in_all - now.held.length;
  const more = rest > 0 ? h("p", { class: "hint" }, `${rest} more are held and send less.`) : null;
  return h("div", {}, h("h3", {}, "Who is held"), table("held", heads, now.held.map(row)), more);
}

function pools(now: FlowState): HTMLElement {
  const row = (pool: FlowState["pools"][number]) =>
    h(
      "tr",
      {},
      name(pool.name),
      word(pool.priority),
      figure(String(pool.weight)),
      word(pool.rules.join(", ")),
      figure(show("bytes_per_second", pool.bandwidth_bps)),
      bound(pool.max_connections),
      bound(pool.max_active),
      figure(String(pool.sessions)),
      figure(String(pool.held)),
      figure(String(pool.running)),
      figure(String(pool.waiting)),
      figure(show("bytes", pool.sent_bytes)),
    );
  const heads: [string, "text" | "number"][] = [
    ["pool", "text"],
    ["priority", "text"],
    ["weight", "number"],
    ["rules", "text"],
    ["bandwidth", "number"],
    ["most sessions", "number"],
    ["most at once", "number"],
    ["sessions", "number"],
    ["held", "number"],
    ["running", "number"],
    ["waiting", "number"],
    ["sent so far", "number"],
  ];
  return table("pools", heads, now.pools.map(row));
}

function rules(now: FlowState): HTMLElement {
  if (now.rules.length === 0) return h("p", { class: "hint" }, "There is no rule: nobody is held but pools of low priority and sessions that were named.");
  const row = (rule: FlowState["rules"][number]) =>
    h(
      "tr",
      {},
      name(rule.name),
      word(rule.conditions),
      word(rule.action),
      word(rule.pools.join(", ")),
      figure(String(rule.began)),
      figure(String(rule.lifted)),
      figure(String(rule.escalated)),
      word(rule.unseen),
    );
  const heads: [string, "text" | "number"][] = [
    ["rule", "text"],
    ["when", "text"],
    ["does", "text"],
    ["of pools", "text"],
    ["acted", "number"],
    ["over", "number"],
    ["ended sessions", "number"],
    ["what cannot be seen", "text"],
  ];
  return table("rules", heads, now.rules.map(row));
}

function deeds(flow: Flow, seen: Hold[], view: View): Child[] {
  if (seen.length === 0) return [h("p", { class: "hint" }, "None.")];
  const row = (hold: Hold) =>
    h(
      "tr",
      {},
      name(view.time(hold.from_s)),
      figure(hold.to_s === null ? "goes on" : show("seconds", hold.to_s - hold.from_s)),
      word(hold.rule),
      word(ACTIONS[hold.action] ?? hold.action),
      word(hold.user),
      word(hold.pool),
      word(hold.session),
      word(hold.end),
      h("td", { class: "text wide" }, hold.message),
    );
  const heads: [string, "text" | "number"][] = [
    ["from", "text"],
    ["for", "number"],
    ["rule", "text"],
    ["does", "text"],
    ["user", "text"],
    ["pool", "text"],
    ["session", "text"],
    ["let go because", "text"],
    ["in words", "text"],
  ];
  const more = seen.length > MOST ? h("p", { class: "hint" }, `The first ${MOST} are listed; look at a shorter stretch for the others.`) : null;
  const lost = flow.left_out > 0 ? h("p", { class: "hint" }, `${flow.left_out} older ones are not in this page.`) : null;
  return [more, lost, table("deeds events", heads, seen.slice(0, MOST).map(row))];
}
