// Events of the stretch that is looked at, as a list.

import type { Page } from "./document";
import { h, put } from "./dom";
import type { View } from "./view";

const MOST = 200;
const WORDS = {
  log: "log",
  setting: "setting",
  restart: "restart",
  gap: "gap",
  absent: "not seen",
  mark: "experiment",
  recorder: "recorder",
  decision: "decision",
};

export function events(page: Page, view: View): HTMLElement {
  const title = h("summary", {});
  const list = h("div", { class: "scroll", tabindex: 0 });
  view.follow(() => {
    const { from, to } = view.stretch;
    const seen = page.events.filter((mark) => mark.at_s >= from && mark.at_s <= to);
    const row = (mark: Page["events"][number]) =>
      h("tr", {}, h("td", {}, view.time(mark.at_s)), h("td", {}, WORDS[mark.kind] ?? mark.kind), h("td", {}, mark.source), h("td", { class: "wide" }, mark.message));
    const more = seen.length > MOST ? h("p", { class: "hint" }, `The first ${MOST} are listed; look at a shorter stretch for the others.`) : null;
    const lost = page.events_left_out > 0 ? h("p", { class: "hint" }, `${page.events_left_out} events are not in this page.`) : null;
    put(title, `Events ${view.isWhole() ? "" : "of this stretch "}(${seen.length})`);
    put(list, more, lost, h("table", { class: "numbers words events" }, h("tbody", {}, ...seen.slice(0, MOST).map(row))));
  });
  return h("details", { class: "card" }, title, list);
}
