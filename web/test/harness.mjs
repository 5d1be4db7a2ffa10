// Checks of every report that BACKWATER_REPORTS names, each in a page of its own, which must also stay quiet: no error, no request, no
// script of the recording's.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { basename } from "node:path";
import { browserPath, launch, open } from "./browser.mjs";
import { reader } from "./figures.mjs";

/** Declares checks for each report whose name is wanted; a check is given its page, its document, and what its reader says. */
export function checks(declare, wanted = () => true) {
  const reports = (process.env.BACKWATER_REPORTS ?? "").split(":").filter((file) => file && wanted(basename(file, ".html")));
  assert.ok(reports.length > 0, "BACKWATER_REPORTS names no report");
  assert.ok(browserPath(), "no Chromium is installed; set BACKWATER_CHROMIUM");
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser.close());
  for (const file of reports) {
    const name = basename(file);
    const read = reader(file);
    assert.ok(read, `${name}: nothing tells what its recording holds`);
    read.queue = (queue) => {
      const found = read.queues.find((one) => one.name === queue.name && one.target === queue.target) ?? read.queues.find((one) => one.name === queue.name);
      assert.ok(found, `${queue.name} was not read`);
      return found;
    };
    const check = (what, act, options) =>
      test(`${name}: ${what}`, async () => {
        const opened = await open(browser, file, options);
        try {
          await act({ ...opened, reader: read });
          assert.deepEqual(opened.seen.faults, [], "the console holds no error");
          assert.deepEqual(opened.others(), [], "no request leaves the page");
          assert.deepEqual(opened.seen.dialogs, [], "nothing of the recording ran");
        } finally {
          await opened.close();
        }
      });
    declare(check);
  }
}
