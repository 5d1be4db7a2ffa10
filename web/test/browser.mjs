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

/** A report in a page of its own, with the faults, warnings and requests it made. */
export async function open(browser, file, { width = 1280, height = 900, dark = false, touch = false } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    hasTouch: touch,
    timezoneId: "UTC",
    reducedMotion: "reduce",
  });
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
