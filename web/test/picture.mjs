// The picture of README.md: node test/picture.mjs REPORT OUT.png [FROM TO] [dark], FROM and TO being shares of the strip to look at.
//   backwater report crates/backwater/tests/recordings/stampede -o report.html
//   node web/test/picture.mjs report.html docs/images/report-light.png 0.09 0.45
import { launch, open } from "./browser.mjs";

const [file, out, from, to, look] = process.argv.slice(2);
const browser = await launch();
const { page, close } = await open(browser, file, { width: 1280, height: 1080, dark: look === "dark" });
await page.locator(".flow .queue").first().waitFor();
if (from && to) {
  const strip = await page.locator(".strip").boundingBox();
  const at = (share) => strip.x + strip.width * Number(share);
  await page.mouse.move(at(from), strip.y + strip.height / 2);
  await page.mouse.down();
  await page.mouse.move(at(to), strip.y + strip.height / 2, { steps: 8 });
  await page.mouse.up();
  // Away from everything that would show what is under the pointer.
  await page.mouse.move(3, 600);
}
await page.evaluate(() => {
  const head = document.querySelector(".sticky").getBoundingClientRect().height;
  scrollTo(0, document.querySelector("#path").getBoundingClientRect().top + scrollY - head - 6);
});
// Charts that have come into sight are drawn by the next frames.
await page.locator("figure.chart canvas").first().waitFor();
await page.waitForTimeout(300);
await page.screenshot({ path: out });
await close();
await browser.close();
