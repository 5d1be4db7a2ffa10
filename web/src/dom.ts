// Elements from words. Text goes in as text and nothing else: no function here takes markup.

export type Child = Node | string | null | undefined | false;

interface Settings {
  class?: string;
  on?: Partial<Record<string, (event: Event) => void>>;
  [attribute: string]: unknown;
}

function fill(element: Element, settings: Settings, children: Child[]): void {
  for (const [name, value] of Object.entries(settings)) {
    if (name === "on") {
      for (const [event, act] of Object.entries(value as Record<string, (event: Event) => void>)) {
        element.addEventListener(event, act);
      }
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
}

/** An element of HTML. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  settings: Settings = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, settings, children);
  return element;
}

/** An element of SVG. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  settings: Settings = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, settings, children);
  return element;
}

/** Puts other children into an element. */
export function put(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  fill(element, {}, children);
}

/** Variables of the style sheet that were asked for: asking the browser may cost a computation of every element's style. */
const variables = new Map<string, string>();

/** A colour or another variable of the style sheet, as it is now. */
export function variable(name: string): string {
  const known = variables.get(name);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  variables.set(name, value);
  return value;
}

/** Variables have other values from now on. */
export function otherVariables(): void {
  variables.clear();
}

/** Makes what an element holds anew; what was unfolded in it stays so, by its words. */
export function keepOpen(element: Element, act: () => void): void {
  const all = () => [...element.querySelectorAll("details")];
  const words = (details: Element) => details.querySelector("summary")?.textContent ?? "";
  const known = new Map(all().map((details) => [words(details), details.open]));
  act();
  all().forEach((details) => (details.open = known.get(words(details)) ?? details.open));
}

/** What waits until its element is seen. */
const unseen = new Set<() => void>();

/** As if all of the page were seen: paper shows all of it. */
export function seeAll(): void {
  [...unseen].forEach((seen) => seen());
}

/** Calls back once, when an element is seen or will be soon, or is printed: what nobody looks at need not be drawn. Gives what takes it back. */
export function onSight(element: Element, act: () => void): () => void {
  const seen = () => {
    forget();
    act();
  };
  const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && seen(), { rootMargin: "600px" });
  const forget = () => {
    observer.disconnect();
    unseen.delete(seen);
  };
  observer.observe(element);
  unseen.add(seen);
  return forget;
}

/** Calls back whenever an element's width changes. */
export function onWidth(element: Element, act: (width: number) => void): void {
  let known = 0;
  new ResizeObserver((entries) => {
    const width = Math.floor(entries[0]?.contentRect.width ?? 0);
    if (width > 0 && width !== known) {
      known = width;
      act(width);
    }
  }).observe(element);
}
