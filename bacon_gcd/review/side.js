// The side of the page: lists to check, and all classes.
import { arrange, breakable, find, kind, make } from "./dom.js";
import { count, imageUrl, model, ordered } from "./model.js";
import { enqueue } from "./queue.js";
import { LISTS, ui } from "./ui.js";

const MANY_CLASSES = 12; // from here on there is a field to find one
const entries = new Map(); // the buttons of lists and classes, kept so that their images do not blink

// show(view): what a click on a list or a class does.
export function drawClasses(show) {
  const wanted = find("#find-class").value.trim().toLowerCase();
  const classes = ordered();
  find("#find-class").hidden = classes.length < MANY_CLASSES;
  const parts = [title("To check")];
  for (const [which, [name, , test]] of Object.entries(LISTS)) {
    const number = test ? count(test) : "";
    if (which === "uncertain" || which === "map" || number) parts.push(entry(show, which, "list", name, number));
  }
  for (const [text, known] of [["Known classes", true], ["New classes", false]]) {
    const some = classes.filter((each) => each.known === known && each.name.toLowerCase().includes(wanted));
    if (some.length) parts.push(title(`${text} (${some.length})`));
    for (const each of some) parts.push(entry(show, each.id, kind(each), each.name, each.count, model.covers.get(each.id)));
  }
  arrange(find("#classes"), parts);
  for (const [which, button] of entries) if (!button.isConnected) entries.delete(which);
}

function title(text) {
  const found = entries.get(text) ?? make("h2", { textContent: text });
  entries.set(text, found);
  return found;
}

function entry(show, which, className, name, number, cover) {
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
  if (button.children[1].textContent !== name) button.children[1].replaceChildren(...breakable(name));
  button.children[2].textContent = number;
  button.setAttribute("aria-current", String(which === ui.view));
  return button;
}
