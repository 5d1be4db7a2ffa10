// Screenshots to look at: node test/shots.mjs REPORT DIRECTORY
//
// Of each of three sizes, light and dark: the whole page with every chart drawn, each of its parts by itself, and what a reader has on
// the screen who looks at a finding and at the queue that binds.
import { mkdirSync } from "node:fs";
import { launch, open, seeAll } from "./browser.mjs";

const [file, into] = process.argv.slice(2);
mkdirSync(into, { recursive: true });
const browser = await launch();
for (const [name, width, height] of [["desktop", 1440, 900], ["tablet", 834, 1112], ["phone", 390, 844]]) {
  for (const dark of [false, true]) {
    const to = `${into}/${name}-${dark ? "dark" : "light"}`;
    const { page, close } = await open(browser, file, { width, height, dark, touch: name !== "desktop" });
    await seeAll(page);
    await page.screenshot({ path: `${to}.png`, fullPage: true });
    // The strip would hide what is beneath it.
    const strip = (position) => page.locator(".sticky").evaluate((element, position) => (element.style.position = position), position);
    await strip("static");
    for (const part of await page.locator("main > section").all()) {
      await part.screenshot({ path: `${to}-${await part.getAttribute("id")}.png` });
    }
    await strip("");
    const look = page.locator("article.finding button", { hasText: "Look at it" }).first();
    if (await look.count()) await look.click();
    const binding = page.locator(".queue.binding").first();
    const queue = (await binding.count()) ? binding : page.locator(".queue").first();
    if (await queue.count()) {
      await queue.click();
      await page.locator("#path").evaluate((element) => element.scrollIntoView());
      await page.screenshot({ path: `${to}-closer.png` });
    }
    await close();
  }
}
const { page, close } = await open(browser, file);
await page.pdf({ path: `${into}/paper.pdf`, format: "A4" });
await close();
await browser.close();
