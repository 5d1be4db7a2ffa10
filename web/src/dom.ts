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

/** A colour or another variable of the style sheet, as it is now. */
export function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
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
