// Where the path's queues stand and how its arrows run: arithmetic alone, so that it can be checked without a browser.
// Rows are laid on a grid whose gaps hold no box, and wrap where the width does not hold them; arrows to other lines run through
// the gaps.

export const HEIGHT = 122;
/** Least width of a box, in which every figure has room, and the greatest. */
const LEAST = 160;
const MOST = 214;
/** Between columns, and beside a single one. */
const GAP = 40;
const SIDE = 28;
/** Above a line of boxes: the title of its row and what comes from another one, a line of text each. */
const HEAD = 44;
export const TEXT = 12;
const ROW_GAP = 10;
/** Between arrows side by side in one gap. */
const LANE = 6;
/** An arrow's point stops so far before its box. */
const CLEAR = 4;

export interface Spot {
  row: number;
  step: number;
}

export interface Box {
  x: number;
  y: number;
  width: number;
}

export interface Point {
  x: number;
  y: number;
}

/** Where an arrow runs; `straight` from a box to its neighbour. */
export interface Route {
  from: number;
  to: number;
  points: Point[];
  straight: boolean;
}

export interface Layout {
  boxes: Box[];
  titles: Point[];
  routes: Route[];
  columns: number;
  gap: number;
  width: number;
  height: number;
}

interface Cell {
  line: number;
  column: number;
}

/** Lays out queues by row and step in this width, and the arrows between them. */
export function layout(spots: Spot[], rows: number, links: [number, number][], width: number): Layout {
  const ofRow = Array.from({ length: rows }, (_, row) =>
    spots.map((_, place) => place).filter((place) => spots[place]!.row === row).sort((a, b) => spots[a]!.step - spots[b]!.step),
  );
  const longest = Math.max(1, ...ofRow.map((places) => places.length));
  const columns = Math.min(longest, Math.max(1, Math.floor((width - GAP) / (LEAST + GAP))));
  const gap = columns === 1 ? SIDE : GAP;
  const room = (width - gap * (columns + 1)) / columns;
  const wide = columns === 1 && width < 2 * LEAST + 3 * GAP ? room : Math.min(room, MOST);
  const cells: Cell[] = [];
  let line = 0;
  ofRow.forEach((places) => {
    places.forEach((place, order) => (cells[place] = { line: line + Math.floor(order / columns), column: order % columns }));
    line += Math.ceil(places.length / columns);
  });
  const boxes: Box[] = [];
  const titles: Point[] = [];
  const heads = Array.from({ length: line }, (_, own) => Math.max(0, ...cells.map((cell, place) => (cell.line === own ? origins(spots, links, place).length : 0))));
  let y = 0;
  ofRow.forEach((places) => {
    titles.push({ x: 0, y: y + 14 });
    for (let first = 0; first < places.length; first += columns) {
      y += HEAD + TEXT * Math.max(0, heads[cells[places[first]!]!.line]! - 1);
      places.slice(first, first + columns).forEach((place, column) => (boxes[place] = { x: gap + column * (wide + gap), y, width: wide }));
      y += HEIGHT;
    }
    y += ROW_GAP;
  });
  const grid = { cells, boxes, heads, columns, gap, wide };
  return { boxes, titles, routes: routes(grid, links), columns, gap, width: gap + columns * (wide + gap), height: y };
}

interface Grid {
  cells: Cell[];
  boxes: Box[];
  /** Lines of text over each line of boxes. */
  heads: number[];
  columns: number;
  gap: number;
  wide: number;
}

/** What comes to a queue from another row. */
export function origins(spots: Spot[], links: [number, number][], place: number): number[] {
  return links.filter(([from, to]) => to === place && spots[from]!.row !== spots[to]!.row).map(([from]) => from);
}

function routes(grid: Grid, links: [number, number][]): Route[] {
  const { cells, boxes, columns } = grid;
  const taken = new Map<string, number>();
  const next = (place: string) => {
    const lane = taken.get(place) ?? 0;
    taken.set(place, lane + 1);
    return lane;
  };
  return links.map(([from, to]) => {
    const [a, b] = [boxes[from]!, boxes[to]!];
    const [own, other] = [cells[from]!, cells[to]!];
    const middle = HEIGHT / 2;
    if (own.line === other.line && other.column === own.column + 1) {
      const points = [{ x: a.x + a.width + 1, y: a.y + middle }, { x: b.x - CLEAR, y: b.y + middle }];
      return { from, to, points, straight: true };
    }
    if (columns === 1 && other.line === own.line + 1) {
      const x = a.x + 0.8 * a.width;
      return { from, to, points: [{ x, y: a.y + HEIGHT + 1 }, { x, y: b.y - CLEAR }], straight: true };
    }
    return { from, to, points: around(grid, from, to, next), straight: false };
  });
}

/** Out at the right, through the gap beside the column, over the line of the other box, and in at its left. */
function around({ cells, boxes, heads, columns, gap, wide }: Grid, from: number, to: number, next: (place: string) => number): Point[] {
  const [a, b] = [boxes[from]!, boxes[to]!];
  const [own, other] = [cells[from]!, cells[to]!];
  const lane = (place: string, most: number) => Math.min(next(place), most) * LANE;
  const out = { x: a.x + a.width + 1, y: a.y + HEIGHT - 14 - lane(`out ${from}`, 5) };
  const enter = b.y + 20 + lane(`in ${to}`, 4);
  const beside = a.x + a.width + (columns === 1 ? 12 : gap / 2 - 8) + lane(`gap ${own.column + 1}`, 2);
  if (columns === 1) {
    // One column: down its right side and back in there.
    return [out, { x: beside, y: out.y }, { x: beside, y: enter }, { x: b.x + b.width + CLEAR, y: enter }];
  }
  const last = { x: b.x - CLEAR, y: enter };
  if (other.column === own.column + 1) return [out, { x: beside, y: out.y }, { x: beside, y: enter }, last];
  const over = b.y - 8 - TEXT * Math.max(1, heads[other.line]!) - lane(`over ${other.line}`, 1);
  const before = gap + other.column * (wide + gap) - gap / 2 - 8 + lane(`gap ${other.column}`, 2);
  return [out, { x: beside, y: out.y }, { x: beside, y: over }, { x: before, y: over }, { x: before, y: enter }, last];
}

/** The points as an SVG path. */
export function drawn(points: Point[]): string {
  return points.map(({ x, y }, place) => `${place === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}
