// A live page in a browser: it signs in, shows what its server has, follows what is newer without losing what was looked at, and
// asks nobody else for anything.
//
// BACKWATER_LIVE is the address that `backwater serve` printed, of a recording that grows by a second each second and whose names
// are hostile; BACKWATER_LATER a file: once it is there, the recording also tells who is held, what a run of the lab came to,
// and of a server that was upgraded and one more.
// Both are made by crates/backwater/tests/live.rs.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { browserPath, inaccessible, launch, watched } from "./browser.mjs";

const address = process.env.BACKWATER_LIVE;
assert.ok(address, "BACKWATER_LIVE names no server");
assert.ok(browserPath(), "no Chromium is installed; set BACKWATER_CHROMIUM");
const origin = new URL(address).origin;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A page that is signed in, with the faults, dialogs and requests it made. */
async function opened(path = address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, timezoneId: "UTC", reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const seen = watched(page);
  await page.goto(path);
  return { context, page, seen };
}

const check = (what, act, options) =>
  test(`live: ${what}`, async () => {
    const { context, page, seen } = await opened(address, options);
    try {
      await page.waitForSelector("footer");
      await act(page, seen);
      assert.deepEqual(seen.faults, [], "the console holds no error");
      assert.deepEqual(seen.dialogs, [], "nothing of the recording ran");
      const others = seen.requests.filter((url) => !url.startsWith(`${origin}/`) && !url.startsWith("data:"));
      assert.deepEqual(others, [], "no request leaves the page");
    } finally {
      await context.close();
    }
  });

/** The newest time that the page says it is of, in seconds of the recording. */
const recorded = (page) => page.locator("header .hint").first().innerText();

check("the address loses its token and the page has it", async (page) => {
  assert.ok(!page.url().includes("token"), page.url());
  assert.equal(await page.evaluate(() => document.cookie), "", "no script can read the cookie");
});

check("what is newer is shown, and what was looked at stays", async (page) => {
  await page.locator('[data-queue="0"]').click();
  await page.keyboard.press("+");
  const stretch = await page.locator(".now").innerText();
  assert.ok(!stretch.startsWith("All of it"), stretch);
  const before = await recorded(page);
  await page.waitForFunction((text) => document.querySelector("header .hint").innerText !== text, before);
  assert.equal(await page.locator(".detail .card").count(), 1, "the chosen queue is still told of");
  assert.ok(!(await page.locator(".now").innerText()).startsWith("All of it"));
  assert.ok((await page.locator(".chart[data-panel] canvas").count()) > 0);
});

check("a click counts, though something newer came while the button was pressed", async (page) => {
  await page.locator('[data-queue="0"]').hover();
  const before = await recorded(page);
  await page.mouse.down();
  await page.waitForFunction((text) => document.querySelector("header .hint").innerText !== text, before);
  await page.mouse.up();
  await page.waitForSelector(".detail .card");
});

check("the path shows the server's own document", async (page) => {
  await page.keyboard.press("p");
  assert.match(await page.locator(".live-state").innerText(), /paused/);
  const document = await page.evaluate(() => fetch("/view/0/document").then((answer) => answer.json()));
  assert.equal(await page.locator(".flow .queue").count(), document.path.queues.length);
  const still = await recorded(page);
  await page.waitForTimeout(5_000);
  assert.equal(await recorded(page), still, "nothing moves while it is paused");
  await page.keyboard.press("p");
  await page.waitForFunction((text) => document.querySelector("header .hint").innerText !== text, still);
});

for (const colorScheme of ["light", "dark"]) {
  check(`accessible, ${colorScheme}`, async (page) => {
    assert.deepEqual(await inaccessible(page), []);
  }, { colorScheme });
}

check("nothing is cut off on a phone", async (page) => {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(wide, 0);
}, { viewport: { width: 390, height: 844 }, hasTouch: true });

test("live: pausing tells of when what is shown is, and of a server that does not answer", async () => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  let end;
  const ended = new Promise((resolve) => (end = resolve));
  // No word of anything newer, until the stream ends and is not begun anew.
  await context.route("**/view/0/events", async (route) => {
    await ended;
    await route.fulfill({ contentType: "text/event-stream", body: "retry: 600000\n\n" });
  });
  await context.route("**/view/0/document", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), findings: [], failing: ["host: nothing can be read"] } });
  });
  const page = await context.newPage();
  await page.goto(address);
  const shows = (pattern) => page.waitForFunction((text) => new RegExp(text).test(document.querySelector(".live-state")?.textContent ?? ""), pattern);
  const state = () => page.locator(".live-state").innerText();
  await shows("^live, as of ");
  const verdict = page.locator("header .hint b");
  assert.equal(await verdict.innerText(), "No finding. Something could not be read.");
  assert.equal(await verdict.getAttribute("class"), "bad");
  const shown = (await state()).replace("live, ", "");
  await page.waitForFunction((text) => !text.endsWith(new Date().toLocaleTimeString("en-GB")), shown);
  await page.keyboard.press("p");
  assert.equal(await state(), `paused, ${shown}`);
  end();
  await shows("does not answer");
  const lost = await state();
  // Going on asks for the document, which is given here; it is held back so that the words are those of the key alone.
  await context.route("**/view/0/document", () => {});
  await page.keyboard.press("p");
  assert.equal(await state(), lost);
  await page.keyboard.press("p");
  assert.equal(await state(), lost);
  await context.close();
});

test("live: without a token, or with a wrong one, nothing is told", async () => {
  for (const path of [`${origin}/`, `${origin}/?token=0123456789abcdefghij`]) {
    const { context, page } = await opened(path);
    const text = await page.locator("body").innerText();
    assert.match(text, /token/i);
    assert.equal(await page.locator("main").count(), 0);
    await context.close();
  }
});

// The last one: what comes stays.
check("who is held, a run's results and another server appear when they are there, in their places, and the title with them", async (page) => {
  const sections = () => page.locator("main > section").evaluateAll((list) => list.map(({ id }) => id));
  const links = () => page.locator("header nav.screen a[href^='#']").evaluateAll((list) => list.map((link) => link.getAttribute("href").slice(1)));
  const first = ["findings", "path", "timeline", "sessions", "about"];
  assert.deepEqual([await sections(), await links()], [first, first]);
  const title = await page.locator("h1").textContent();
  const servers = () => page.locator("#about table.facts tr", { has: page.locator("th", { hasText: /^server$/ }) }).locator("td").allTextContents();
  assert.deepEqual(await servers(), ["primary (postgres 18)"]);
  await page.locator('[data-queue="0"]').click();
  writeFileSync(process.env.BACKWATER_LATER, "now");
  await page.waitForSelector("#flow");
  await page.waitForSelector("#lab");
  const then = ["findings", "path", "timeline", "sessions", "flow", "lab", "about"];
  assert.deepEqual([await sections(), await links()], [then, then]);
  assert.match(await page.locator("#flow").textContent(), /3 sessions are held.*5\.00 MiB\/s/);
  assert.equal(await page.locator("#flow table.pools tbody tr").count(), 1);
  assert.match(await page.locator("#lab").textContent(), /1,234|1234/);
  const other = await page.locator("h1").textContent();
  assert.ok(other !== title && other.includes("Experiment late"), other);
  assert.ok((await page.title()).includes("Experiment late"));
  assert.equal(await page.locator(".detail .card").count(), 1, "what was chosen stays chosen");
  // What a server is stands in a file of its own, which is written after those of the flow and the run: it may come with a later document.
  const told = () => [...document.querySelectorAll("#about table.facts tr")].some((row) => row.textContent.endsWith("primary (postgres 19)"));
  await page.waitForFunction(told).catch(async () => assert.fail(`what is told of a server is not what it is now: ${await servers()}`));
  const [upgraded, second] = await servers();
  assert.equal(upgraded, "primary (postgres 19)", "what is told of a server is what it is now");
  assert.ok(second?.startsWith("second </script>") && second.endsWith("(mongodb)"), second);
  // Newer states and results take the place of older ones.
  const asOf = () => page.locator("#flow p").first().textContent();
  const before = await asOf();
  await page.waitForFunction((text) => document.querySelector("#flow p").textContent !== text, before);
  writeFileSync(process.env.BACKWATER_LATER, "gone");
  await page.waitForSelector("#flow", { state: "detached" });
  assert.deepEqual(await links(), then.filter((id) => id !== "flow"));
});
