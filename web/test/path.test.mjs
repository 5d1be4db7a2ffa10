// The path of pages that BACKWATER_PATHS names (one for each case, by crates/report/tests/path.rs): what binds is marked, and at every
// width and on paper all of it is there, in its place and readable.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { basename } from "node:path";
import { browserPath, launch, open } from "./browser.mjs";

const pages = (process.env.BACKWATER_PATHS ?? "").split(":").filter(Boolean);
assert.ok(pages.length > 0, "BACKWATER_PATHS names no page");
assert.ok(browserPath(), "no Chromium is installed; set BACKWATER_CHROMIUM");
let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Where the path's parts are, in pixels of the page. */
const measure = (page) =>
  page.evaluate(() => {
    const place = (element) => {
      const { left, right, top, bottom } = element.getBoundingClientRect();
      return { left, right, top, bottom };
    };
    const host = document.querySelector(".path");
    const texts = (group) => [...group.querySelectorAll("text")].map((text) => ({ ...place(text), words: text.textContent }));
    return {
      overrun: host.scrollWidth - host.clientWidth,
      svg: place(host.querySelector("svg")),
      host: place(host),
      boxes: [...host.querySelectorAll(".queue")].map((group) => ({ name: group.querySelector(".name").textContent, box: place(group.querySelector(".box")), texts: texts(group) })),
      labels: [...host.querySelectorAll("svg > text")].map((text) => ({ ...place(text), words: text.textContent })),
    };
  });

const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 2 || b.bottom <= a.top + 2;

function readable({ svg, host, boxes, labels, overrun }, queues, what) {
  assert.ok(overrun <= 0 && svg.right <= host.right + 1, `${what}: it is wider than its place`);
  assert.equal(boxes.length, queues, what);
  for (const [order, { name, box, texts }] of boxes.entries()) {
    assert.ok(box.left >= host.left && box.right <= host.right + 1, `${what}: ${name} is cut off`);
    for (const other of boxes.slice(order + 1)) assert.ok(apart(box, other.box), `${what}: ${name} stands on ${other.name}`);
    for (const label of labels) assert.ok(apart(box, label), `${what}: '${label.words}' lies over ${name}`);
    for (const [place, text] of texts.entries()) {
      assert.ok(text.left >= box.left && text.right <= box.right && text.bottom <= box.bottom + 1, `${what}: '${text.words}' leaves ${name}`);
      for (const other of texts.slice(place + 1)) assert.ok(apart(text, other), `${what}: '${text.words}' lies over '${other.words}' in ${name}`);
    }
  }
}

for (const file of pages) {
  const name = basename(file, ".html");
  const check = (what, act, options) =>
    test(`${name}: ${what}`, async () => {
      const opened = await open(browser, file, options);
      try {
        await opened.page.locator(".flow .queue").first().waitFor();
        await act(opened);
        assert.deepEqual(opened.seen.faults, []);
      } finally {
        await opened.close();
      }
    });

  check("what binds is marked, and its card leads on", async ({ page, document }) => {
    const [first] = document.findings;
    const place = document.path.queues.findIndex((queue) => queue.name === first.queue);
    assert.ok(place >= 0, `${first.queue} is on the path`);
    const queue = page.locator(`[data-queue="${place}"]`);
    assert.match(await queue.getAttribute("class"), /\bbinding\b/);
    assert.equal(await queue.locator(".flag").textContent(), "▲ binds");
    for (const victim of first.victims) {
      const held = document.path.queues.findIndex((queue) => queue.name === victim);
      assert.match(await page.locator(`[data-queue="${held}"]`).getAttribute("class"), /\b(victim|binding)\b/, victim);
    }
    await queue.press("Enter");
    const links = await page.locator(".detail .docs a").evaluateAll((list) => list.map(({ href, rel, target }) => ({ href, rel, target })));
    assert.equal(links.length, document.path.queues[place].docs.length);
    for (const { href, rel, target } of links) assert.ok(href.startsWith("https://") && rel === "noreferrer" && target === "_blank", href);
    assert.ok((await page.locator(".detail").innerText()).includes(first.rule));
  });

  for (const width of [1280, 800, 390]) {
    check(`all of it is there at ${width} pixels`, async ({ page, document }) => readable(await measure(page), document.path.queues.length, `${name} at ${width}`), { width });
  }

  check("links to other rows are told with their number, on a phone too", async ({ page, document }) => {
    const { queues, links } = document.path;
    const far = links.filter(([from, to]) => queues[from].row !== queues[to].row);
    const told = await page.locator(".flow > .rate").allTextContents();
    assert.equal(told.length, far.length);
    for (const [from] of far) {
      const known = document.series[queues[from].outflow] !== undefined;
      const one = told.find((text) => text.startsWith(`from ${queues[from].title}`));
      assert.ok(one && (!known || /\d/.test(one)), `${queues[from].name}: ${one}`);
    }
  }, { width: 390 });

  check("paper holds all of it", async ({ page, document }) => {
    await page.emulateMedia({ media: "print" });
    // A4 without its margins.
    await page.setViewportSize({ width: 718, height: 1040 });
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    const shown = await measure(page);
    readable(shown, document.path.queues.length, `${name} on paper`);
    assert.ok(shown.svg.right <= 718 + 1, "not cut off at the right");
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  });
}
