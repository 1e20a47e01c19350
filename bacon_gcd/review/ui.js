// What the page shows just now: which list, which images of it, and which are selected.
import { CONFIRMED, LABELED, OUTLIER, WRONG, has, listed, model } from "./model.js";

export const PAGE = 200; // cards shown at first, and added at the end of the page

export const ui = {
  view: "uncertain", // or "suspected", "outliers", "wrong", "map", or the id of a class
  shown: [], // numbers of the images in the list
  limit: PAGE, // how many of them have a card
  framed: null, // number of the image that keys act on
  last: null, // where a Shift-click begins
  lassoed: [], // images on the map that were selected by a lasso
  selected: new Set(),
  cards: new Map(), // number -> its card, for those in the grid
};

export const LISTS = {
  uncertain: ["Most uncertain first", "Images nobody has confirmed, the least sure first.", (n) => !(model.marks[n] & (CONFIRMED | LABELED | WRONG))],
  suspected: ["Suspected label errors", "Labeled images that look like another class.", (n) => model.suggested.has(n)],
  outliers: ["Fit no class", "Images that look more like a class that is not here than like any that is.", (n) => has(n, OUTLIER) && !has(n, WRONG)],
  wrong: ["Marked as wrong", "They are in no class until you move them.", (n) => has(n, WRONG)],
  map: ["Map", "Similar images lie close together. Draw a line around some to select them; turn the wheel to zoom, double-click to see all.", null],
};


export function members(which) {
  if (which === "map") return ui.lassoed;
  return listed(LISTS[which] ? LISTS[which][2] : (n) => model.classOf[n] === which);
}
