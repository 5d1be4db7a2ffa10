// A browser that is installed already (nothing is downloaded), and a page opened from disk with everything it does noted.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Where a browser is: BACKWATER_CHROMIUM, or one of the usual places; none where there is none. */
export function browserPath() {
  return [process.env.BACKWATER_CHROMIUM, ...PLACES].find((path) => path && existsSync(path));
}

/** A browser. */
export function launch() {
  return chromium.launch({ executablePath: browserPath(), args: ["--no-sandbox", "--disable-gpu"] });
}

/** What a page does from now on: faults, warnings, requests and dialogs. */
export function watched(page) {
  const seen = { faults: [], requests: [], dialogs: [] };
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && seen.faults.push(message.text()));
  page.on("pageerror", (error) => seen.faults.push(String(error)));
  page.on("request", (request) => seen.requests.push(request.url()));
  page.on("dialog", (dialog) => {
    seen.dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  return seen;
}

/** What axe finds inaccessible. The page's own policy forbids such a script: it runs outside of it. */
export async function inaccessible(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  const { result } = await session.send("Runtime.evaluate", {
    expression: "axe.run().then((r) => JSON.stringify(r.violations.map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 140))])))",
    awaitPromise: true,
  });
  return JSON.parse(result.value);
}

/** Brings every chart before a reader's eyes once: one that nobody has been near is not drawn. Ends at the head of the page. */
export async function seeAll(page) {
  const plots = page.locator(".plot");
  for (let place = 0; place < (await plots.count()); place += 1) {
    await plots.nth(place).evaluate((element) => element.scrollIntoView({ block: "center" }));
    await plots.nth(place).locator("canvas").waitFor();
  }
  await page.evaluate(() => scrollTo(0, 0));
}

/** Notes what is drawn on each canvas since it was last cleared: rectangles, and straight lines with their colour. */
function noteDrawing() {
  const drawn = new WeakMap();
  const brush = CanvasRenderingContext2D.prototype;
  const { clearRect, fillRect, moveTo, lineTo } = brush;
  const note = (canvas, deed) => drawn.set(canvas, [...(drawn.get(canvas) ?? []), deed]);
  brush.clearRect = function (...place) {
    drawn.set(this.canvas, []);
    return clearRect.apply(this, place);
  };
  brush.fillRect = function (x, y, width, height) {
    note(this.canvas, { kind: "box", x, y, width, height, colour: this.fillStyle });
    return fillRect.call(this, x, y, width, height);
  };
  let from = [0, 0];
  brush.moveTo = function (x, y) {
    from = [x, y];
    return moveTo.call(this, x, y);
  };
  brush.lineTo = function (x, y) {
    note(this.canvas, { kind: "line", from, to: [x, y], colour: this.strokeStyle });
    return lineTo.call(this, x, y);
  };
  window.drawnOn = (canvas) => drawn.get(canvas) ?? [];
  // A colour as a canvas writes it.
  window.asDrawn = (colour) => {
    const context = document.createElement("canvas").getContext("2d");
    context.fillStyle = colour;
    return context.fillStyle;
  };
}

/** A report in a page of its own, with the faults, warnings and requests it made. */
export async function open(browser, file, { width = 1280, height = 900, dark = false, touch = false, clipboard = false } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    hasTouch: touch,
    timezoneId: "UTC",
    reducedMotion: "reduce",
    permissions: clipboard ? ["clipboard-read", "clipboard-write"] : [],
  });
  await context.addInitScript(noteDrawing);
  const page = await context.newPage();
  const seen = watched(page);
  const url = pathToFileURL(file).href;
  await page.goto(url);
  await page.waitForSelector("footer");
  const document = JSON.parse(await page.textContent("#document"));
  // The file itself, and pictures that stand in it.
  const others = () => seen.requests.filter((request) => request !== url && !request.startsWith("data:"));
  return { page, document, seen, others, close: () => context.close() };
}
