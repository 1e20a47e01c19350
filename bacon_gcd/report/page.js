"use strict";
// Starts everything. Without scripts the page can be read but for the map, the sliders and the detail view.

// Where the page could not link to the original images, the reader may say where they are.
function askForFolder(images) {
  const box = document.querySelector("#originals");
  if (!box || location.protocol !== "file:") return;
  const input = box.querySelector("input"), key = `bacon-originals ${location.pathname}`;
  box.hidden = false;
  input.value = localStorage.getItem(key) ?? "";
  images.setFolder(input.value);
  input.addEventListener("change", () => {
    images.setFolder(input.value);
    localStorage.setItem(key, input.value);
  });
}

(async () => {
  const root = document.documentElement;
  const images = makeImages(await readPayload());
  const detail = makeDetail(images);
  askForFolder(images);
  makeGallery(images);
  makeChoices(images);
  const plot = document.querySelector("#plot");
  const map = plot && makeMap(plot, images, detail);

  // Theme: the system's until the button is pressed.
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  function setTheme() {
    root.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    map?.restyle();
  }
  system.addEventListener("change", setTheme);
  document.querySelector("#theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    setTheme();
  });
  setTheme();
  root.dataset.ready = "true";
})();
