// The parts of the page in their order, and the way to each. One that has nothing to show has no place until it has.

import { h, keepOpen, put, type Child } from "./dom";

export interface Part {
  id: string;
  title: string;
  /** What it shows; nothing while there is nothing. */
  content: () => HTMLElement | null;
}

export class Parts {
  readonly nav = h("nav", { class: "screen", "aria-label": "Parts of this page" });
  private readonly sections = new Map<string, HTMLElement>();

  /** Parts that stand before the page's `end`. None is there before [`Parts.renew`]. */
  constructor(
    private readonly parts: Part[],
    private readonly end: HTMLElement,
  ) {}

  /** Puts each part that has something to show now where it belongs, and takes away what has nothing any more. */
  renew(): void {
    let next = this.end;
    let changed = false;
    for (const part of [...this.parts].reverse()) {
      const shown = part.content();
      const known = this.sections.get(part.id);
      if (shown && !known) {
        const section = framed(part, shown);
        next.before(section);
        this.sections.set(part.id, section);
        changed = true;
      } else if (!shown && known) {
        known.remove();
        this.sections.delete(part.id);
        changed = true;
      }
      next = this.sections.get(part.id) ?? next;
    }
    if (changed) put(this.nav, ...this.parts.filter(({ id }) => this.sections.has(id)).map(({ id, title }) => h("a", { href: `#${id}` }, title)));
  }
}

function framed({ id, title }: Part, content: HTMLElement): HTMLElement {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), content);
}

/** Words that are told anew where they rest on something else than before; what was unfolded stays so. */
export class Words {
  readonly element = h("div", {});
  private told: string | null = null;

  constructor(
    private readonly of: () => unknown,
    private readonly tell: () => Child[],
  ) {
    this.renew();
  }

  renew(): void {
    const now = JSON.stringify(this.of());
    if (now === this.told) return;
    this.told = now;
    keepOpen(this.element, () => put(this.element, ...this.tell()));
  }
}
