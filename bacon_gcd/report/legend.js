"use strict";
// The legend of the map: how points are colored, and which of them are shown. Every entry is a switch.
function makeLegend(images, points, redraw) {
  const { data, classOf } = images;
  const KINDS = [
    { name: "known, labeled", color: "#0072b2", symbol: "circle", mark: "●" },
    { name: "known, sorted in", color: "#56b4e9", symbol: "square", mark: "■" },
    { name: "newly found", color: "#e69f00", symbol: "triangle-up", mark: "▲" },
  ];
  // Cividis: even steps for every kind of color vision; its dark end is lifted on a dark page.
  const RAMP = {
    light: ["#00224e", "#434e6c", "#7d7c78", "#bcaf6f", "#fee838"],
    dark: ["#5b7fd0", "#8090b0", "#a5a293", "#d2c465", "#fee838"],
  };
  const legend = document.querySelector("#legend");
  const selected = new Set(); // groups that are shown; empty: all
  let coloring = "class", preview = null;

  // Groups: classes, or kinds, or all in one.
  const kindOf = (n) => (classOf(n).known ? (data.labeled[n] ? 0 : 1) : 2);
  const groupOf = (n) => (coloring === "class" ? data.class_id[n] : coloring === "kind" ? kindOf(n) : 0);
  function isOn(n) {
    const group = groupOf(n);
    return preview === null ? selected.size === 0 || selected.has(group) : group === preview;
  }
  const ramp = () => RAMP[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
  function styleOf(n) {
    if (coloring === "class") return classOf(n);
    if (coloring === "kind") return KINDS[kindOf(n)];
    const step = Math.floor((images.confidence(n) ?? 0) * ramp().length);
    return { color: ramp()[Math.min(ramp().length - 1, step)], symbol: "circle" };
  }

  function entry({ mark, color, name }, group, count) {
    const item = makeElement("li"), button = item.appendChild(makeElement("button"));
    const sign = button.appendChild(makeElement("span", "mark", mark));
    sign.style.color = color;
    button.append(makeElement("span", "name", name), makeElement("span", "quiet", count.toLocaleString("en")));
    button.type = "button";
    button.title = name;
    button.dataset.group = group;
    button.addEventListener("click", () => {
      selected.has(group) ? selected.delete(group) : selected.add(group);
      showSelected();
    });
    button.addEventListener("mouseenter", () => { preview = selected.size ? null : group; redraw(); });
    button.addEventListener("mouseleave", () => { preview = null; redraw(); });
    return item;
  }
  function showSelected() {
    preview = null;
    for (const button of legend.querySelectorAll("[data-group]")) {
      button.setAttribute("aria-pressed", String(selected.has(Number(button.dataset.group))));
    }
    legend.querySelector("#legend-all").disabled = selected.size === 0;
    redraw();
  }
  function rampEntry() {
    const item = makeElement("li", "ramp-entry"), strip = makeElement("span", "ramp");
    strip.style.background = `linear-gradient(90deg, ${ramp().join(",")})`;
    item.append("unsure", strip, "sure");
    return [item];
  }
  function kindEntries() {
    return KINDS.map((kind, group) => entry(kind, group, points.filter((n) => kindOf(n) === group).length));
  }
  function classEntries() {
    const order = data.classes.map((_, c) => c).sort((a, b) => data.classes[b].size - data.classes[a].size);
    return order.map((c) => entry(data.classes[c], c, data.classes[c].size));
  }
  function drawLegend() {
    const entries = { class: classEntries, kind: kindEntries, confidence: rampEntry }[coloring]();
    legend.querySelector("ul").replaceChildren(...entries);
    legend.classList.toggle("plain", coloring === "confidence");
    legend.querySelector("#legend-find").hidden = coloring !== "class" || data.classes.length <= 12;
    legend.querySelector("#legend-find").value = "";
    showSelected();
  }
  legend.querySelector("#legend-all").addEventListener("click", () => { selected.clear(); showSelected(); });
  legend.querySelector("#legend-find").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const item of legend.querySelectorAll("li")) item.hidden = !item.textContent.toLowerCase().includes(wanted);
  });
  document.querySelector("#coloring").addEventListener("change", (event) => {
    coloring = event.target.value;
    selected.clear();
    drawLegend();
  });

  return { isOn, styleOf, restyle: drawLegend };
}
