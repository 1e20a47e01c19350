"use strict";
// Starts everything. Without scripts the page can be read but for the map, the sliders and the detail view.
(async () => {
  const root = document.documentElement;
  const images = makeImages(await readPayload());
  const detail = makeDetail(images);
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
