"use strict";
// One image, large, with its facts and its neighbors. Opens from every thumbnail; the arrow keys go on.
function makeDetail(images) {
  const { data } = images;
  const dialog = document.querySelector("#detail");
  const part = (selector) => dialog.querySelector(selector);
  let list = [], at = 0;

  function open(n, along) {
    list = along;
    at = Math.max(0, along.indexOf(n));
    fill();
    if (!dialog.open) dialog.showModal();
  }

  // The thumbnail until the original is loaded, and where it cannot be.
  function showPicture(n) {
    const thumbnail = part(".detail .thumb"), original = part(".detail .original"), link = images.link(n);
    if (images.hasThumbnail(n)) images.paint(thumbnail, n);
    thumbnail.hidden = !images.hasThumbnail(n);
    original.hidden = true;
    original.removeAttribute("src");
    part(".to-original").hidden = !link;
    if (!link) return;
    part(".to-original a").href = link;
    original.onload = () => { original.hidden = false; thumbnail.hidden = true; };
    original.alt = data.ids[n];
    original.src = link;
  }

  function factRow([name, value]) {
    const row = makeElement("div");
    row.append(makeElement("dt", "", name), makeElement("dd", "", value));
    return row;
  }

  // A similar image and the class it is in.
  function neighbor(n) {
    const figure = makeElement("figure", "shot"), name = makeElement("figcaption"), { name: text } = images.classOf(n);
    name.append(...breakable(text));
    name.title = text;
    figure.append(images.button(n), name);
    return figure;
  }

  function fill() {
    const n = list[at], near = data.neighbors?.[n] ?? [];
    showPicture(n);
    part("h3").textContent = data.ids[n];
    part("dl").replaceChildren(...images.facts(n).map(factRow));
    part(".near").hidden = near.length === 0;
    part(".near .shots").replaceChildren(...near.map(neighbor));
    part(".walk").hidden = list.length < 2;
  }

  function step(by) {
    at = (at + by + list.length) % list.length;
    fill();
  }

  // The images the arrow keys go through: those of the same strip of thumbnails' class or section.
  function neighborsOnPage(button, n) {
    if (button.closest(".near")) return [n];
    const around = button.closest(".pages, .strips, section");
    return [...around.querySelectorAll("[data-image]")].map((each) => Number(each.dataset.image));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-image]");
    if (button) open(Number(button.dataset.image), neighborsOnPage(button, Number(button.dataset.image)));
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
    if (event.target.dataset.step) step(Number(event.target.dataset.step));
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });
  return { open };
}
