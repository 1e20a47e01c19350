// The run as the page knows it: a column per fact, an entry per image. The server sends it once, then differences.
export const CONFIRMED = 1, WRONG = 2, LABELED = 4, OUTLIER = 8; // marks, as in session.py

export const model = {
  title: "", key: "", version: "", undo: null, skipped: [], size: 0,
  classOf: new Int32Array(0), permille: new Uint16Array(0), marks: new Uint8Array(0),
  suggested: new Map(), classes: new Map(), order: new Uint32Array(0), covers: new Map(),
};

// What changed since the page was drawn: images by number, classes by id.
export const changed = { everything: true, images: new Set(), classes: new Set() };

export function drawn() {
  changed.everything = false;
  changed.images.clear();
  changed.classes.clear();
}

export function take(found) {
  if (found.images) loadAll(found);
  else applyChanges(found);
  model.version = found.version;
  model.undo = found.undo;
}

function loadAll(found) {
  const { images } = found;
  Object.assign(model, { title: found.title, key: found.key, skipped: found.skipped, size: images.class.length });
  model.classOf = Int32Array.from(images.class);
  model.permille = Uint16Array.from(images.confidence);
  model.marks = Uint8Array.from(images.marks);
  model.suggested = new Map(Object.entries(images.suggested).map(([number, id]) => [Number(number), id]));
  model.classes = new Map(found.classes.map((each) => [each.id, each]));
  model.order = Uint32Array.from(model.classOf.keys()).sort((a, b) => model.permille[a] - model.permille[b] || a - b);
  names.clear();
  changed.everything = true;
  model.covers = new Map();
  findCovers();
}

function applyChanges(found) {
  for (const [number, id, marks, suggested] of found.changed) {
    model.classOf[number] = id;
    model.marks[number] = marks;
    changed.images.add(number);
    if (suggested === null) model.suggested.delete(number);
    else model.suggested.set(number, suggested);
  }
  for (const id of found.gone) model.classes.delete(id);
  for (const each of found.classes) {
    model.classes.set(each.id, each);
    changed.classes.add(each.id);
  }
  findCovers();
}

// The surest image stands for its class; it stays as long as it is in it.
function findCovers() {
  for (const [id, number] of model.covers) if (model.classOf[number] !== id) model.covers.delete(id);
  const missing = new Set([...model.classes.keys()].filter((id) => !model.covers.has(id)));
  for (let at = model.size - 1; at >= 0 && missing.size; at--) {
    const number = model.order[at], id = model.classOf[number];
    if (missing.delete(id)) model.covers.set(id, number);
  }
}

export const has = (number, mark) => (model.marks[number] & mark) !== 0;
export const sureness = (number) => (has(number, CONFIRMED) ? 1000 : model.permille[number]);
export const percent = (number) => `${Math.round(sureness(number) / 10)}%`;
export const ordered = () => [...model.classes.values()].sort((a, b) => a.position - b.position);
export const imageUrl = (number, size = "small") => `/image/${number}?size=${size}&run=${model.key}`;

// Numbers of the images that pass the test, the least sure first; confirmed ones are sure.
export function listed(test) {
  const open = [], sure = [], { order, marks } = model;
  for (let at = 0; at < order.length; at++) {
    const number = order[at];
    if (test(number)) (marks[number] & CONFIRMED ? sure : open).push(number);
  }
  return open.concat(sure);
}

export function count(test) {
  let total = 0;
  for (let number = 0; number < model.size; number++) if (test(number)) total++;
  return total;
}

// File names are asked for when an image is shown.
const names = new Map();
export const nameOf = (number) => names.get(number) ?? "";

export async function fetchNames(numbers, request) {
  const missing = numbers.filter((number) => !names.has(number)).slice(0, 1000);
  if (!missing.length) return [];
  const found = await request("/names", { images: missing });
  if (found === null) return [];
  missing.forEach((number, at) => names.set(number, found.names[at]));
  return missing;
}
