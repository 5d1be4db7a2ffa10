// The path's geometry: at every width boxes stand apart and within it, and arrows run beside boxes, never through them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import { transformWithEsbuild } from "vite";

const source = new URL("../src/layout.ts", import.meta.url);
const { code } = await transformWithEsbuild(readFileSync(source, "utf8"), source.pathname);
const { layout, HEIGHT } = await import(`data:text/javascript;base64,${Buffer.from(code).toString("base64")}`);

/** Rows of so many queues each, linked one after the other, and links from one row to another. */
function path(lengths, more = []) {
  const spots = lengths.flatMap((length, row) => Array.from({ length }, (_, step) => ({ row, step: step * 2 + row })));
  const at = (row, step) => lengths.slice(0, row).reduce((sum, length) => sum + length, 0) + step;
  const within = lengths.flatMap((length, row) => Array.from({ length: Math.max(length - 1, 0) }, (_, step) => [at(row, step), at(row, step + 1)]));
  return { spots, rows: lengths.length, links: [...within, ...more.map(([a, b]) => [at(...a), at(...b)])] };
}

const paths = {
  "a primary with two standbys": path([4, 3, 5, 5], [[[0, 2], [1, 2]], [[0, 2], [2, 1]], [[0, 2], [3, 1]]]),
  "a MongoDB server with a replica set": path([5, 5, 4, 6, 2], [[[0, 3], [2, 0]], [[0, 1], [1, 1]], [[0, 4], [2, 3]], [[1, 0], [2, 0]], [[3, 0], [3, 2]], [[3, 0], [3, 3]], [[3, 1], [3, 5]]]),
  "seven in a row": path([7], []),
  "upwards": path([2, 2], [[[1, 1], [0, 1]], [[1, 0], [0, 0]]]),
  "one": path([1]),
  "none": { spots: [], rows: 0, links: [] },
};

const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + HEIGHT && b.y < a.y + HEIGHT;
const through = (p, q, box) =>
  Math.max(p.x, q.x) > box.x + 0.5 && Math.min(p.x, q.x) < box.x + box.width - 0.5 && Math.max(p.y, q.y) > box.y + 0.5 && Math.min(p.y, q.y) < box.y + HEIGHT - 0.5;

for (const [name, { spots, rows, links }] of Object.entries(paths)) {
  test(`${name}: boxes and arrows at every width`, () => {
    for (let width = 300; width <= 1600; width += 10) {
      const placed = layout(spots, rows, links, width);
      const what = `${name} at ${width}`;
      assert.equal(placed.boxes.length, spots.length, what);
      assert.ok(placed.width <= width + 0.01, `${what}: ${placed.width} wide`);
      placed.boxes.forEach((box, place) => {
        assert.ok(box.x >= 0 && box.x + box.width <= width && box.y + HEIGHT <= placed.height, what);
        assert.ok(box.width >= Math.min(160, width - 60), `${what}: room for every figure (${box.width})`);
        placed.boxes.slice(place + 1).forEach((other) => assert.ok(!overlap(box, other), `${what}: one box upon another`));
      });
      assert.equal(placed.routes.length, links.length, what);
      for (const { from, to, points, straight } of placed.routes) {
        assert.ok(points.length >= 2 && straight === (points.length === 2), what);
        const ends = [points[0], points.at(-1)];
        [from, to].forEach((place, end) => {
          const { x, y, width } = placed.boxes[place];
          const { x: px, y: py } = ends[end];
          assert.ok(px >= x - 6 && px <= x + width + 6 && py >= y - 6 && py <= y + HEIGHT + 6, `${what}: an arrow ends at its box`);
        });
        for (let piece = 1; piece < points.length; piece += 1) {
          const [p, q] = [points[piece - 1], points[piece]];
          assert.ok(p.x === q.x || p.y === q.y, `${what}: arrows run straight`);
          for (const { x } of [p, q]) assert.ok(x >= 0 && x <= width, `${what}: ${x}`);
          placed.boxes.forEach((box) => assert.ok(!through(p, q, box), `${what}: an arrow through a box`));
        }
      }
    }
  });
}

test("rows wrap only where they must, and a wide page has room for five in a row", () => {
  const { spots, rows, links } = paths["a primary with two standbys"];
  assert.equal(layout(spots, rows, links, 1_200).columns, 5);
  assert.equal(layout(spots, rows, links, 860).columns, 4);
  assert.equal(layout(spots, rows, links, 358).columns, 1);
});

test("another row is reached by an arrow of its own at every width, on a phone too", () => {
  const { spots, rows, links } = paths["a primary with two standbys"];
  for (const width of [358, 760, 1_200]) {
    const far = layout(spots, rows, links, width).routes.filter(({ from, to }) => spots[from].row !== spots[to].row);
    assert.equal(far.length, 3);
    far.forEach(({ straight }) => assert.equal(straight, false));
  }
});
