// The grid of images: a card for each, made once and touched only when its image changed.
import { arrange, breakable, className, find, kind, make, request } from "./dom.js";
import { enlarge } from "./large.js";
import { CONFIRMED, LABELED, OUTLIER, WRONG, changed, fetchNames, has, imageUrl, model, nameOf, percent } from "./model.js";
import { enqueue } from "./queue.js";
import { choose, frame } from "./selection.js";
import { PAGE, ui } from "./ui.js";

export function drawGrid() {
  const wanted = ui.shown.slice(0, ui.limit);
  arrange(find("#grid"), wanted.map(card));
  const there = new Set(wanted);
  for (const number of ui.cards.keys()) if (!there.has(number)) ui.cards.delete(number);
  find("#more").hidden = ui.shown.length <= ui.limit;
  find("#more").textContent = `Show more (${ui.shown.length - ui.limit} left)`;
  fetchNames(wanted, request).then((numbers) => numbers.forEach((number) => ui.cards.has(number) && nameCard(number)));
}

export function more() {
  if (ui.shown.length <= ui.limit) return;
  ui.limit += PAGE;
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
  const found = ui.cards.get(number);
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
  mark.replaceChildren(...breakable(text));
  caption.children[0].replaceChildren(...breakable(own.name));
  caption.children[1].textContent = percent(number);
  image.alt = `${nameOf(number)}, ${own.name}`;
  found.tabIndex = number === ui.framed ? 0 : -1;
  found.setAttribute("aria-pressed", String(ui.selected.has(number)));
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
  ui.cards.set(number, button);
  return button;
}

function nameCard(number) {
  const found = ui.cards.get(number);
  found.title = nameOf(number);
  found.firstElementChild.alt = `${nameOf(number)}, ${className(model.classOf[number])}`;
}
