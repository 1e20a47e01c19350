// The review page: lists of images, what is selected, and what keys and buttons do. Images and classes go by number.
import { ask } from "./ask.js";
import { badge, className, find, kind, make, request, tell } from "./dom.js";
import { prepareDrag } from "./drag.js";
import { closeLarge, enlarge, enlargedImage, isLarge, toggleFull } from "./large.js";
import { learn, watchLearning } from "./learning.js";
import { drawMap, prepareMap, showMap } from "./map.js";
import { CONFIRMED, LABELED, OUTLIER, WRONG, changed, count, drawn, fetchNames, has, imageUrl, listed, model, nameOf, ordered, percent, take } from "./model.js";
import { enqueue } from "./queue.js";

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
let theme = null;
const paint = () => { root.dataset.theme = theme ?? (system.matches ? "dark" : "light"); drawMap(); };

const PAGE = 200; // cards shown at first, and added at the end of the page
const MANY_CLASSES = 12; // from here on there is a field to find one
let view = "uncertain"; // or "suspected", "wrong", "map", or the id of a class
let shown = [];
let limit = PAGE;
let framed = null; // number of the image that keys act on
let last = null; // where a Shift-click begins
let lassoed = []; // images on the map that were selected by a lasso
let selected = new Set();

const LISTS = {
  uncertain: ["Most uncertain first", "Images nobody has confirmed, the least sure first.", (n) => !(model.marks[n] & (CONFIRMED | LABELED | WRONG))],
  suspected: ["Suspected label errors", "Labeled images that look like another class.", (n) => model.suggested.has(n)],
  wrong: ["Marked as wrong", "They are in no class until you move them.", (n) => has(n, WRONG)],
  map: ["Map", "Similar images lie close together. Draw a line around some to select them; turn the wheel to zoom, double-click to see all.", null],
};

// Showing

function members(which) {
  if (which === "map") return lassoed;
  return listed(LISTS[which] ? LISTS[which][2] : (n) => model.classOf[n] === which);
}

function draw() {
  if (!LISTS[view] && !model.classes.has(view)) view = "uncertain";
  shown = members(view);
  if (selected.size) {
    const there = new Set(shown);
    selected = new Set([...selected].filter((number) => there.has(number)));
  }
  document.title = `Review: ${model.title}`;
  find("#title").textContent = model.title;
  drawProgress();
  drawClasses();
  drawView();
  drawn();
}

function drawProgress() {
  const sure = count((n) => model.marks[n] & (CONFIRMED | LABELED));
  find("#progress-bar").style.width = `${model.size ? (100 * sure) / model.size : 0}%`;
  find("#progress-text").textContent = innerWidth < 900 ? `${sure} / ${model.size}` : `${sure} of ${model.size} certain`;
  find("#undo").disabled = model.undo === null;
  find("#undo").textContent = model.undo === null ? "Undo" : `Undo: ${model.undo}`;
  find("#skipped").hidden = model.skipped.length === 0;
  find("#skipped-lines").replaceChildren(...model.skipped.map((text) => make("li", { textContent: text })));
}

const entries = new Map(); // the buttons of lists and classes, kept so that their images do not blink

function drawClasses() {
  const wanted = find("#find-class").value.trim().toLowerCase();
  const classes = ordered();
  find("#find-class").hidden = classes.length < MANY_CLASSES;
  const parts = [title("To check")];
  for (const [which, [name, , test]] of Object.entries(LISTS)) {
    const number = test ? count(test) : "";
    if (which === "uncertain" || which === "map" || number) parts.push(entry(which, "list", name, number));
  }
  for (const [text, known] of [["Known classes", true], ["New classes", false]]) {
    const some = classes.filter((each) => each.known === known && each.name.toLowerCase().includes(wanted));
    if (some.length) parts.push(title(`${text} (${some.length})`));
    for (const each of some) parts.push(entry(each.id, kind(each), each.name, each.count, model.covers.get(each.id)));
  }
  arrange(find("#classes"), parts);
  for (const [which, button] of entries) if (!button.isConnected) entries.delete(which);
}

function title(text) {
  const found = entries.get(text) ?? make("h2", { textContent: text });
  entries.set(text, found);
  return found;
}

function entry(which, className, name, number, cover) {
  let button = entries.get(which);
  if (!button) {
    button = make("button", { type: "button" }, make("span", { className: "cover" }), make("span", { className: "name" }), make("span", { className: "count" }));
    button.dataset.view = which;
    button.addEventListener("click", () => enqueue({ run: () => show(which) }));
    entries.set(which, button);
  }
  button.className = className;
  if (button.dataset.cover !== String(cover)) {
    button.dataset.cover = String(cover);
    button.children[0].replaceChildren(...(cover === undefined ? [] : [make("img", { src: imageUrl(cover), alt: "", loading: "lazy" })]));
  }
  button.children[1].textContent = name;
  button.children[2].textContent = number;
  button.setAttribute("aria-current", String(which === view));
  return button;
}

// Make these the children, touching only what differs.
function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const child of wanted) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}

async function show(which) {
  view = which;
  limit = PAGE;
  framed = last = null;
  lassoed = [];
  selected.clear();
  draw();
  scrollTo({ top: 0, behavior: "instant" });
  find("#classes [aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (view === "map") await showMap();
}

function drawView() {
  const each = model.classes.get(view);
  find("#view-name").replaceChildren(each ? each.name : LISTS[view][0]);
  if (each) find("#view-name").append(badge(each));
  find("#class-actions").hidden = !each;
  find("#map").hidden = view !== "map";
  find("#view-why").textContent = each
    ? `${shown.length} ${shown.length === 1 ? "image" : "images"}, the least sure first.`
    : shown.length || view === "map" ? LISTS[view][1] : "Nothing is left to check here.";
  if (framed === null || !shown.includes(framed)) framed = shown[0] ?? null;
  drawGrid();
  const reachable = cards.get(framed);
  if (reachable) reachable.tabIndex = 0;
  mark();
}

const cards = new Map(); // number -> its card, for those in the grid

function drawGrid() {
  const wanted = shown.slice(0, limit);
  arrange(find("#grid"), wanted.map(card));
  const there = new Set(wanted);
  for (const number of cards.keys()) if (!there.has(number)) cards.delete(number);
  find("#more").hidden = shown.length <= limit;
  find("#more").textContent = `Show more (${shown.length - limit} left)`;
  fetchNames(wanted, request).then((numbers) => numbers.forEach((number) => cards.has(number) && nameCard(number)));
}

function more() {
  if (shown.length <= limit) return;
  limit += PAGE;
  drawGrid();
}

function markOf(number) {
  if (has(number, WRONG)) return ["wrong", "✗ wrong"];
  if (has(number, CONFIRMED)) return ["confirmed", "✓ right"];
  if (model.suggested.has(number)) return ["", `${className(model.suggested.get(number))}?`];
  if (has(number, LABELED)) return ["", "labeled"];
  return has(number, OUTLIER) ? ["", "outlier"] : ["none", ""];
}

function card(number) {
  const found = cards.get(number);
  if (!found) return fillCard(newCard(number), number);
  const stale = changed.everything || changed.images.has(number) || changed.classes.has(model.classOf[number]);
  return stale ? fillCard(found, number) : found;
}

function fillCard(found, number) {
  const own = model.classes.get(model.classOf[number]);
  const [image, mark, caption] = found.children;
  found.className = `card ${kind(own)}${has(number, WRONG) ? " is-wrong" : ""}`;
  const [markClass, text] = markOf(number);
  mark.className = `mark ${markClass}`;
  mark.textContent = text;
  caption.children[0].textContent = own.name;
  caption.children[1].textContent = percent(number);
  image.alt = `${nameOf(number)}, ${own.name}`;
  found.tabIndex = number === framed ? 0 : -1;
  found.setAttribute("aria-pressed", String(selected.has(number)));
  return found;
}

function newCard(number) {
  const button = make("button", { type: "button", title: nameOf(number) },
    make("img", { src: imageUrl(number), loading: "lazy", draggable: false }),
    make("span"),
    make("span", { className: "caption" }, make("span", { className: "name" }), make("span", { className: "sure" })));
  button.dataset.image = number;
  button.addEventListener("click", (event) => { const { shiftKey } = event; enqueue({ run: () => choose(number, shiftKey) }); });
  button.addEventListener("dblclick", () => enqueue({ run: () => enlarge(number) }));
  button.addEventListener("focus", () => frame(number));
  cards.set(number, button);
  return button;
}

function nameCard(number) {
  const found = cards.get(number);
  found.title = nameOf(number);
  found.firstElementChild.alt = `${nameOf(number)}, ${className(model.classOf[number])}`;
}

function frame(number) {
  const before = cards.get(framed);
  if (before) before.tabIndex = -1;
  framed = number;
  cards.get(number).tabIndex = 0;
  drawBar();
}

function choose(number, range) {
  if (range && last !== null && shown.includes(last)) {
    const [from, to] = [shown.indexOf(last), shown.indexOf(number)].sort((a, b) => a - b);
    shown.slice(from, to + 1).forEach((each) => selected.add(each));
  } else if (!selected.delete(number)) selected.add(number);
  last = number;
  mark();
}

function mark() {
  for (const [number, element] of cards) {
    const pressed = String(selected.has(number));
    if (element.getAttribute("aria-pressed") !== pressed) element.setAttribute("aria-pressed", pressed);
  }
  drawMap();
  drawBar();
}

const onCard = () => Boolean(document.activeElement?.classList.contains("card"));

function targets() {
  if (isLarge()) return [enlargedImage()];
  if (selected.size) return [...selected].sort((a, b) => a - b);
  return onCard() && framed !== null ? [framed] : [];
}

function drawBar() {
  find("#chosen").textContent = selected.size ? `${selected.size} selected` : onCard() ? "framed image" : "none selected";
  for (const name of ["confirm", "move", "wrong"]) find(`#${name}`).disabled = targets().length === 0;
  find("#clear").disabled = selected.size === 0;
  find("#all").disabled = shown.length === 0;
}

// Editing

async function load(path, asked) {
  const found = await request(path, asked);
  if (found !== null) take(found);
  return found !== null;
}

async function edit(asked) {
  const before = framed, at = shown.indexOf(framed), cardHadFocus = onCard(), large = isLarge();
  if (!await load("/edit", { ...asked, since: model.version })) {
    if (await load(`/changes?since=${encodeURIComponent(model.version)}`)) draw(); // another page may have been faster
    return false;
  }
  find("#note").textContent = "";
  if (asked.images && !large) selected.clear();
  draw();
  if ((cardHadFocus || large) && shown.length && at >= 0) {
    const stays = asked.images && shown[at] === before;
    const next = shown[Math.min(at + (stays ? 1 : 0), shown.length - 1)];
    if (large) framed = next;
    else cards.get(next)?.focus();
  }
  if (large && !asked.images) await enlarge(enlargedImage());
  else if (large && shown.length) await enlarge(framed);
  else if (large) closeLarge();
  return true;
}

const actions = {
  confirm: () => targets().length && edit({ kind: "confirm", images: targets() }),
  wrong: () => targets().length && edit({ kind: "wrong", images: targets() }),
  undo: () => model.undo !== null && edit({ kind: "undo" }),
  async move() {
    const images = targets();
    if (!images.length) return;
    const what = images.length === 1 ? "this image" : `${images.length} images`;
    const others = ordered().filter((each) => images.length > 1 ? each.id !== view : each.id !== model.classOf[images[0]]);
    const to = await ask({ title: `Move ${what} to`, classes: others, anyName: true });
    if (to !== null) await edit({ kind: "move", images, to });
  },
  async rename() {
    const each = model.classes.get(view);
    if (!each) return;
    const to = await ask({ title: `Rename ${each.name}`, value: each.raw });
    if (to !== null) await edit({ kind: "rename", class: each.id, to });
  },
  async merge() {
    const each = model.classes.get(view);
    if (!each) return;
    const to = await ask({ title: `Merge ${each.name} into`, classes: ordered().filter((other) => other.id !== each.id) });
    if (to === null) return;
    view = to;
    if (!await edit({ kind: "merge", classes: [each.id, to], to })) show(each.id);
  },
  async split() {
    const each = model.classes.get(view);
    if (!each) return;
    const parts = await ask({ title: `Split ${each.name} into how many parts?`, value: "2", number: true });
    if (parts !== null) await edit({ kind: "split", class: each.id, parts: Number(parts) });
  },
  all() { selected = new Set(shown); mark(); },
  clear() { selected.clear(); mark(); },
  learn: () => !find("#learn").disabled && learn("start"),
  help: () => { find("#keys").showModal(); },
  more,
};

// Keys

function step(key) {
  if (!shown.length) return;
  const at = shown.indexOf(framed);
  if (!onCard()) { cards.get(shown[Math.max(at, 0)])?.focus(); return; }
  const all = [...cards.values()];
  const columns = Math.max(1, all.filter((each) => each.offsetTop === find("#grid").firstElementChild.offsetTop).length);
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
  const next = Math.min(Math.max(at + by, 0), shown.length - 1);
  if (next >= limit) more();
  cards.get(shown[next])?.focus();
}

function stepLarge(by) {
  const at = shown.indexOf(framed);
  if (at < 0) return;
  framed = shown[Math.min(Math.max(at + by, 0), shown.length - 1)];
  enlarge(framed);
}

function walk(by) {
  const places = [...find("#classes").querySelectorAll("button:not(.list)")].map((button) => Number(button.dataset.view));
  if (!places.length) return;
  const at = places.indexOf(view);
  show(at < 0 ? places[by > 0 ? 0 : places.length - 1] : places[(at + by + places.length) % places.length]);
}

const KEYS = {
  c: actions.confirm, w: actions.wrong, m: actions.move, r: actions.rename, g: actions.merge, s: actions.split,
  u: actions.undo, l: actions.learn, a: actions.all, Escape: actions.clear, "?": actions.help, n: () => show("uncertain"), p: () => show("map"),
  j: () => walk(1), k: () => walk(-1), x: () => framed !== null && choose(framed, false), " ": () => framed !== null && choose(framed, false),
  Enter: () => framed !== null && enlarge(framed),
  ArrowLeft: () => step("ArrowLeft"), ArrowRight: () => step("ArrowRight"), ArrowUp: () => step("ArrowUp"), ArrowDown: () => step("ArrowDown"),
};
const LARGE_KEYS = {
  c: actions.confirm, w: actions.wrong, m: actions.move, u: actions.undo, f: toggleFull,
  x: () => choose(enlargedImage(), false), " ": () => choose(enlargedImage(), false),
  ArrowLeft: () => stepLarge(-1), ArrowUp: () => stepLarge(-1), ArrowRight: () => stepLarge(1), ArrowDown: () => stepLarge(1),
  Escape: closeLarge, Enter: closeLarge,
};

// What a key does is decided when its turn comes: keys before it may have opened or closed the large view.
function press(key) {
  const name = key.length === 1 ? key.toLowerCase() : key;
  if (!isLarge() && (name === "Enter" || name === " ") && !onCard()) return null;
  return (isLarge() ? LARGE_KEYS : KEYS)[name]?.();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || find("#ask").open || find("#keys").open) return;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const pressesButton = event.target.matches("button:not(.card), a") && (name === "Enter" || name === " ");
  if (event.target.matches("input") || pressesButton) return;
  const known = name in KEYS || name in LARGE_KEYS;
  if (known) event.preventDefault();
  // Any letter may be meant for a dialog that a key before it is going to open.
  if (known || event.key.length === 1 || event.key === "Backspace") enqueue({ key: event.key, run: () => press(event.key) });
}

function lasso(numbers, more) {
  lassoed = more ? [...new Set([...lassoed, ...numbers])] : numbers;
  lassoed.sort((a, b) => model.permille[a] - model.permille[b] || a - b);
  selected = new Set(lassoed);
  limit = PAGE;
  shown = lassoed;
  drawView();
  if (!numbers.length) tell("No image lies inside that line.");
}

function prepare() {
  system.addEventListener("change", paint);
  find("#theme").addEventListener("click", () => { theme = root.dataset.theme === "dark" ? "light" : "dark"; paint(); });
  for (const [name, action] of Object.entries(actions)) {
    for (const button of document.querySelectorAll(`#${name}, [data-do=${name}]`)) {
      // The framed image stays framed while its button is pressed.
      button.addEventListener("mousedown", (event) => event.preventDefault());
      button.addEventListener("click", () => enqueue({ run: () => action() }));
    }
  }
  find("#keys-close").addEventListener("click", () => find("#keys").close());
  find("#large-close").addEventListener("click", () => enqueue({ run: closeLarge }));
  find("#large-before").addEventListener("click", () => enqueue({ run: () => stepLarge(-1) }));
  find("#large-next").addEventListener("click", () => enqueue({ run: () => stepLarge(1) }));
  find("#large-image").addEventListener("click", toggleFull);
  find("#large").addEventListener("cancel", (event) => event.preventDefault()); // Escape waits for its turn, too
  find("#large").addEventListener("close", () => cards.get(framed)?.focus());
  find("#find-class").addEventListener("input", drawClasses);
  document.addEventListener("keydown", pressed);
  find("#grid").addEventListener("keyup", (event) => { if (event.key === " ") event.preventDefault(); }); // it would click the card
  document.addEventListener("focusout", () => setTimeout(drawBar));
  let before = null; // what was selected when the drag began
  document.addEventListener("pointerdown", () => { before = new Set(selected); }, true);
  prepareDrag((numbers, more) => { selected = new Set(more ? [...before, ...numbers] : numbers); mark(); });
  prepareMap(lasso, (number) => selected.has(number));
  new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && more(), { rootMargin: "600px" }).observe(find("#more"));
  find("#learning-stop").addEventListener("click", () => learn("stop"));
  find("#learning-open").addEventListener("click", async () => {
    if (await learn("open") && await load("/state")) await show("uncertain");
  });
}

paint();
prepare();
if (await load("/state")) { draw(); await watchLearning(); }
root.dataset.ready = "yes";
