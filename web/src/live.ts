// A page that is served live: what there is to look at, and the newest document whenever the server says that there is one.

import { understood, type Page } from "./document";

/** What the server says of itself in the page. Paths only: a page asks nobody but the server it came from. */
export interface Live {
  /** Where the document is. */
  document: string;
  /** Where the server tells of a newer one. */
  events: string;
  /** Everything that can be looked at here. */
  sources: { name: string; href: string; kind: "live" | "recording"; here: boolean }[];
}

/** How the page stands to its server. */
export interface State {
  kind: "fresh" | "still" | "lost" | "refused";
  words: string;
}

/** Whether this page is a live one. */
export function config(): Live | null {
  const text = document.getElementById("live")?.textContent;
  return text ? (JSON.parse(text) as Live) : null;
}

/** Follows the server until the page is closed. One document is asked for at a time, and none while nobody looks. */
export class Follower {
  paused = false;
  /** Nothing newer will come: what is shown is the whole. */
  private ended = false;
  private asking = false;
  private again = false;

  constructor(
    private readonly live: Live,
    private readonly show: (page: Page) => void,
    private readonly tell: (state: State) => void,
  ) {
    const stream = new EventSource(live.events);
    stream.addEventListener("newer", () => {
      this.ended = false;
      this.newer();
    });
    stream.addEventListener("still", () => {
      this.ended = true;
      this.newer();
    });
    stream.addEventListener("error", () => {
      // Closed for good: the server refused. Else the browser tries again by itself.
      if (stream.readyState === EventSource.CLOSED) void this.ask();
      else this.tell({ kind: "lost", words: "The server does not answer; what is shown is old." });
    });
    document.addEventListener("visibilitychange", () => this.newer());
    void this.ask();
  }

  /** Stops, or goes on with the newest. */
  pause(paused: boolean): void {
    this.paused = paused;
    if (!paused) this.newer();
  }

  private newer(): void {
    if (this.paused || document.hidden) return;
    if (this.asking) this.again = true;
    else void this.ask();
  }

  private async ask(): Promise<void> {
    this.asking = true;
    try {
      const answer = await fetch(this.live.document, { credentials: "same-origin", cache: "no-store" });
      if (answer.ok) {
        this.show(understood((await answer.json()) as Page));
        this.tell(this.ended ? { kind: "still", words: "This recording has ended." } : { kind: "fresh", words: "" });
      } else {
        this.tell({ kind: answer.status === 503 ? "lost" : "refused", words: await answer.text() });
      }
    } catch (error) {
      this.tell({ kind: "lost", words: `The server does not answer (${error instanceof Error ? error.message : String(error)}); what is shown is old.` });
    }
    this.asking = false;
    if (this.again) {
      this.again = false;
      this.newer();
    }
  }
}
