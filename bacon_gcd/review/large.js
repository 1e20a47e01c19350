// One image large, beside those it looks like and examples of the class it is in.
import { badge, breakable, className, find, make, request } from "./dom.js";
import { CONFIRMED, WRONG, has, imageUrl, model, percent } from "./model.js";

let enlarged = null;

export const isLarge = () => find("#large").open;
export const enlargedImage = () => enlarged;

export function closeLarge() { find("#large").close(); }

export async function enlarge(number) {
  enlarged = number;
  const image = find("#large-image");
  image.src = imageUrl(number, "large");
  image.alt = "";
  find("#large-pane").classList.remove("full");
  find("#large-original").href = imageUrl(number, "original");
  find("#large-name").textContent = "";
  drawFacts(number);
  for (const name of ["neighbors", "examples"]) find(`#large-${name}`).replaceChildren();
  if (!find("#large").open) find("#large").showModal();
  const found = await request(`/about/${number}`);
  if (found === null || enlarged !== number) return;
  find("#large-name").textContent = image.alt = found.name;
  if (found.second) find("#large-facts").append(...secondChoice(...found.second));
  if (found.label && found.label !== className(model.classOf[number])) find("#large-facts").append(`, labeled ${found.label}`);
  find("#large-neighbors").replaceChildren(...strip("Looks most like", found.neighbors, true));
  find("#large-examples").replaceChildren(...found.examples.flatMap((each) => strip(
    `${each.labeled ? "Labeled or confirmed" : "The surest"} images of ${className(each.class)}`, each.images, false)));
}

function drawFacts(number) {
  const each = model.classes.get(model.classOf[number]);
  const said = has(number, WRONG) ? "marked as wrong here" : has(number, CONFIRMED) ? "confirmed" : `${percent(number)} sure`;
  find("#large-class").replaceChildren(...breakable(each.name), badge(each));
  find("#large-facts").replaceChildren(said);
  const other = model.suggested.get(number);
  if (other !== undefined) find("#large-facts").append(", looks like ", ...breakable(className(other)));
}

const secondChoice = (id, permille) => [", second choice ", ...breakable(className(id)), ` (${Math.round(permille / 10)}%)`];

function strip(title, numbers, named) {
  if (!numbers.length) return [];
  const images = numbers.map((number) => {
    const name = className(model.classOf[number]);
    const button = make("button", { type: "button", title: named ? name : "" }, make("img", { src: imageUrl(number), alt: name }));
    if (named) button.append(make("span", {}, ...breakable(name)));
    button.addEventListener("click", () => enlarge(number));
    return button;
  });
  return [make("h4", { textContent: title }), make("div", { className: "strip" }, ...images)];
}

export function toggleFull() {
  const full = find("#large-pane").classList.toggle("full");
  find("#large-image").src = imageUrl(enlarged, full ? "original" : "large");
}
