// The review page: lists of images, and what keys and buttons do. Images and classes go by number.
import { ask } from "./ask.js";
import { drawGrid, more } from "./cards.js";
import { badge, breakable, find, make, request, tell } from "./dom.js";
import { prepareDrag } from "./drag.js";
import { closeLarge, enlarge, enlargedImage, isLarge, toggleFull } from "./large.js";
import { learn, watchLearning } from "./learning.js";
import { drawMap, prepareMap, showMap } from "./map.js";
import { CONFIRMED, LABELED, count, drawn, model, ordered, take } from "./model.js";
import { enqueue } from "./queue.js";
import { choose, drawBar, mark, onCard, targets } from "./selection.js";
import { drawClasses } from "./side.js";
import { LISTS, PAGE, members, ui } from "./ui.js";

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
let theme = null;
const paint = () => { root.dataset.theme = theme ?? (system.matches ? "dark" : "light"); drawMap(); };

// Showing

function draw() {
  if (!LISTS[ui.view] && !model.classes.has(ui.view)) ui.view = "uncertain";
  ui.shown = members(ui.view);
  if (ui.selected.size) {
    const there = new Set(ui.shown);
    ui.selected = new Set([...ui.selected].filter((number) => there.has(number)));
  }
  document.title = `Review: ${model.title}`;
  find("#title").textContent = model.title;
  drawProgress();
  drawClasses(show);
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

async function show(which) {
  ui.view = which;
  ui.limit = PAGE;
  ui.framed = ui.last = null;
  ui.lassoed = [];
  ui.selected.clear();
  draw();
  scrollTo({ top: 0, behavior: "instant" });
  find("#classes [aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  focusFramed();
  if (ui.view === "map") await showMap();
}

// Keys act on the framed image; what has the focus for another reason keeps it.
function focusFramed() {
  if (document.activeElement === document.body) ui.cards.get(ui.framed)?.focus({ preventScroll: true });
}

function drawView() {
  const each = model.classes.get(ui.view);
  find("#view-name").replaceChildren(...(each ? breakable(each.name) : [LISTS[ui.view][0]]));
  if (each) find("#view-name").append(badge(each));
  find("#class-actions").hidden = !each;
  find("#map").hidden = ui.view !== "map";
  find("#view-why").textContent = each
    ? `${ui.shown.length} ${ui.shown.length === 1 ? "image" : "images"}, the least sure first.`
    : ui.shown.length || ui.view === "map" ? LISTS[ui.view][1] : "Nothing is left to check here.";
  if (ui.framed === null || !ui.shown.includes(ui.framed)) ui.framed = ui.shown[0] ?? null;
  drawGrid();
  const reachable = ui.cards.get(ui.framed);
  if (reachable) reachable.tabIndex = 0;
  mark();
}

// Editing

async function load(path, asked) {
  const found = await request(path, asked);
  if (found !== null) take(found);
  return found !== null;
}

async function edit(asked) {
  const before = ui.framed, at = ui.shown.indexOf(ui.framed), cardHadFocus = onCard(), large = isLarge();
  if (!await load("/edit", { ...asked, since: model.version })) {
    if (await load(`/changes?since=${encodeURIComponent(model.version)}`)) draw(); // another page may have been faster
    return false;
  }
  find("#note").textContent = "";
  if (asked.images && !large) ui.selected.clear();
  draw();
  if ((cardHadFocus || large) && ui.shown.length && at >= 0) {
    const stays = asked.images && ui.shown[at] === before;
    const next = ui.shown[Math.min(at + (stays ? 1 : 0), ui.shown.length - 1)];
    if (large) ui.framed = next;
    else ui.cards.get(next)?.focus();
  }
  if (large && !asked.images) await enlarge(enlargedImage());
  else if (large && ui.shown.length) await enlarge(ui.framed);
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
    const others = ordered().filter((each) => images.length > 1 ? each.id !== ui.view : each.id !== model.classOf[images[0]]);
    const to = await ask({ title: `Move ${what} to`, classes: others, anyName: true });
    if (to !== null) await edit({ kind: "move", images, to });
  },
  async rename() {
    const each = model.classes.get(ui.view);
    if (!each) return;
    const to = await ask({ title: `Rename ${each.name}`, value: each.raw, proposed: each.proposed });
    if (to !== null) await edit({ kind: "rename", class: each.id, to });
  },
  async merge() {
    const each = model.classes.get(ui.view);
    if (!each) return;
    const to = await ask({ title: `Merge ${each.name} into`, classes: ordered().filter((other) => other.id !== each.id) });
    if (to === null) return;
    ui.view = to;
    if (!await edit({ kind: "merge", classes: [each.id, to], to })) show(each.id);
  },
  async split() {
    const each = model.classes.get(ui.view);
    if (!each) return;
    const parts = await ask({ title: `Split ${each.name} into how many parts?`, value: "2", number: true });
    if (parts !== null) await edit({ kind: "split", class: each.id, parts: Number(parts) });
  },
  all() { ui.selected = new Set(ui.shown); mark(); },
  clear() { ui.selected.clear(); mark(); },
  learn: () => !find("#learn").disabled && learn("start"),
  help: () => { find("#keys").showModal(); },
  more,
};

// Keys

function step(key) {
  if (!ui.shown.length) return;
  const at = ui.shown.indexOf(ui.framed);
  if (!onCard()) { ui.cards.get(ui.shown[Math.max(at, 0)])?.focus(); return; }
  const all = [...cards.values()];
  const columns = Math.max(1, all.filter((each) => each.offsetTop === find("#grid").firstElementChild.offsetTop).length);
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
  const next = Math.min(Math.max(at + by, 0), ui.shown.length - 1);
  if (next >= ui.limit) more();
  ui.cards.get(ui.shown[next])?.focus();
}

function stepLarge(by) {
  const at = ui.shown.indexOf(ui.framed);
  if (at < 0) return;
  ui.framed = ui.shown[Math.min(Math.max(at + by, 0), ui.shown.length - 1)];
  enlarge(ui.framed);
}

function walk(by) {
  const places = [...find("#classes").querySelectorAll("button:not(.list)")].map((button) => Number(button.dataset.view));
  if (!places.length) return;
  const at = places.indexOf(ui.view);
  show(at < 0 ? places[by > 0 ? 0 : places.length - 1] : places[(at + by + places.length) % places.length]);
}

const KEYS = {
  c: actions.confirm, w: actions.wrong, m: actions.move, r: actions.rename, g: actions.merge, s: actions.split,
  u: actions.undo, l: actions.learn, a: actions.all, Escape: actions.clear, "?": actions.help, n: () => show("uncertain"), p: () => show("map"),
  j: () => walk(1), k: () => walk(-1), x: () => ui.framed !== null && choose(ui.framed, false), " ": () => ui.framed !== null && choose(ui.framed, false),
  Enter: () => ui.framed !== null && enlarge(ui.framed),
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
  ui.lassoed = more ? [...new Set([...ui.lassoed, ...numbers])] : numbers;
  ui.lassoed.sort((a, b) => model.permille[a] - model.permille[b] || a - b);
  ui.selected = new Set(ui.lassoed);
  ui.limit = PAGE;
  ui.shown = ui.lassoed;
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
  find("#large").addEventListener("close", () => ui.cards.get(ui.framed)?.focus());
  find("#find-class").addEventListener("input", () => drawClasses(show));
  document.addEventListener("keydown", pressed);
  find("#grid").addEventListener("keyup", (event) => { if (event.key === " ") event.preventDefault(); }); // it would click the card
  document.addEventListener("focusout", () => setTimeout(drawBar));
  let before = null; // what was selected when the drag began
  document.addEventListener("pointerdown", () => { before = new Set(ui.selected); }, true);
  prepareDrag((numbers, more) => { ui.selected = new Set(more ? [...before, ...numbers] : numbers); mark(); });
  prepareMap(lasso, (number) => ui.selected.has(number));
  new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && more(), { rootMargin: "600px" }).observe(find("#more"));
  find("#learning-stop").addEventListener("click", () => learn("stop"));
  find("#learning-open").addEventListener("click", async () => {
    if (await learn("open") && await load("/state")) await show("uncertain");
  });
}

paint();
prepare();
if (await load("/state")) { draw(); focusFramed(); await watchLearning(); }
root.dataset.ready = "yes";
