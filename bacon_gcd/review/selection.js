// Which images are selected or framed, and so what a key or a button acts on.
import { find } from "./dom.js";
import { enlargedImage, isLarge } from "./large.js";
import { drawMap } from "./map.js";
import { ui } from "./ui.js";

export const onCard = () => Boolean(document.activeElement?.classList.contains("card"));

export function targets() {
  if (isLarge()) return [enlargedImage()];
  if (ui.selected.size) return [...ui.selected].sort((a, b) => a - b);
  return onCard() && ui.framed !== null ? [ui.framed] : [];
}

export function drawBar() {
  find("#chosen").textContent = ui.selected.size ? `${ui.selected.size} selected` : onCard() ? "framed image" : "none selected";
  for (const name of ["confirm", "move", "wrong"]) find(`#${name}`).disabled = targets().length === 0;
  find("#clear").disabled = ui.selected.size === 0;
  find("#all").disabled = ui.shown.length === 0;
}

export function frame(number) {
  const before = ui.cards.get(ui.framed);
  if (before) before.tabIndex = -1;
  ui.framed = number;
  ui.cards.get(number).tabIndex = 0;
  drawBar();
}

export function choose(number, range) {
  if (range && ui.last !== null && ui.shown.includes(ui.last)) {
    const [from, to] = [ui.shown.indexOf(ui.last), ui.shown.indexOf(number)].sort((a, b) => a - b);
    ui.shown.slice(from, to + 1).forEach((each) => ui.selected.add(each));
  } else if (!ui.selected.delete(number)) ui.selected.add(number);
  ui.last = number;
  mark();
}

export function mark() {
  for (const [number, element] of ui.cards) {
    const pressed = String(ui.selected.has(number));
    if (element.getAttribute("aria-pressed") !== pressed) element.setAttribute("aria-pressed", pressed);
  }
  drawMap();
  drawBar();
}
