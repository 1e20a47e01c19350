"use strict";
// The page works without this script except for the map, the sliders, the detail view and the theme button.
(() => {
  const data = JSON.parse(document.getElementById("payload").textContent);
  const find = (selector) => document.querySelector(selector);
  const root = document.documentElement;
  const grid = Number(getComputedStyle(root).getPropertyValue("--grid"));

  // Theme: the system's until the button is pressed.
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  function setTheme() {
    root.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    if (map) map.restyle();
  }
  system.addEventListener("change", setTheme);
  find("#theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    setTheme();
  });

  // One image in words, and its tile of a sprite sheet.
  const percent = (value) => `${Math.round(100 * value)}%`;
  const classOf = (n) => data.classes[data.class_id[n]];
  function facts(n) {
    const found = [["class", classOf(n).name], ["kind", classOf(n).known ? "known class" : "newly found class"]];
    found.push(["label", data.labeled[n] ? "came with it" : "none"]);
    if (data.confidence && data.confidence[n] !== null) found.push(["confidence", percent(data.confidence[n])]);
    if (data.outlier && data.outlier[n]) found.push(["outlier", "looks like none of the classes"]);
    return found;
  }
  function paint(element, n) {
    element.className = `thumb sheet-${Math.floor(n / (grid * grid))}`;
    element.style.setProperty("--c", n % grid);
    element.style.setProperty("--r", Math.floor(n / grid) % grid);
    element.setAttribute("aria-label", `${data.ids[n]}, ${classOf(n).name}`);
  }

  // Detail view, opened from any thumbnail; the arrow keys walk along the list it came from.
  const detail = find("#detail");
  let list = [], at = 0;
  function open(n, along) {
    list = along;
    at = Math.max(0, along.indexOf(n));
    fill();
    if (!detail.open) detail.showModal();
  }
  function fill() {
    const n = list[at];
    paint(detail.querySelector(".detail .thumb"), n);
    detail.querySelector("h3").textContent = data.ids[n];
    detail.querySelector("dl").replaceChildren(...facts(n).map(([name, value]) => {
      const row = document.createElement("div");
      for (const [tag, text] of [["dt", name], ["dd", value]]) {
        row.appendChild(document.createElement(tag)).textContent = text;
      }
      return row;
    }));
    const near = data.neighbors ? data.neighbors[n] : [];
    detail.querySelector(".near").hidden = near.length === 0;
    detail.querySelector(".near .shots").replaceChildren(...near.map((other) => {
      const button = document.createElement("button");
      button.type = "button";
      paint(button, other);
      button.dataset.image = other;
      return button;
    }));
    detail.querySelector(".walk").hidden = list.length < 2;
  }
  function step(by) {
    at = (at + by + list.length) % list.length;
    fill();
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-image]");
    if (!button) return;
    const n = Number(button.dataset.image);
    const around = button.closest(".near") ? [n] : [...button.closest("article, section").querySelectorAll("[data-image]")].map((b) => Number(b.dataset.image));
    open(n, around);
  });
  detail.addEventListener("click", (event) => {
    if (event.target === detail) detail.close();
    if (event.target.dataset.step) step(Number(event.target.dataset.step));
  });
  detail.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });

  // Find a class by a part of its name.
  find("#find")?.addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const article of document.querySelectorAll("#classes article")) {
      article.hidden = !article.dataset.name.includes(wanted);
    }
  });

  makeChoices(data, paint);

  // The map.
  const map = find("#plot") && window.Plotly ? makeMap(find("#plot")) : null;
  setTheme();

  function makeMap(plot) {
    const placed = data.ids.map((_, n) => n).filter((n) => data.x[n] !== null && data.y[n] !== null);
    const card = find("#card"), legend = find("#legend"), only = find("#only");
    const cividis = [[0, "#00224e"], [0.25, "#434e6c"], [0.5, "#7d7c78"], [0.75, "#bcaf6f"], [1, "#fee838"]];
    const cividisOnDark = [[0, "#5b7fd0"], [0.5, "#a5a293"], [1, "#fee838"]];
    const kinds = [
      { name: "known, labeled", color: "#0072b2", symbol: "circle", mark: "●" },
      { name: "known, sorted in", color: "#56b4e9", symbol: "circle-open", mark: "○" },
      { name: "newly found", color: "#e69f00", symbol: "diamond", mark: "◆" },
    ];
    const kindOf = (n) => (classOf(n).known ? (data.labeled[n] ? 0 : 1) : 2);
    // Thousands of SVG points are slow to drag; the graphics card draws them where there is one.
    let type = placed.length > 2000 && document.createElement("canvas").getContext("webgl") ? "scattergl" : "scatter";
    const coarse = matchMedia("(pointer: coarse)").matches;
    const home = { x: [-30, 1030], y: [-30, 1030] };
    let coloring = "class", shown = placed, current = -1, view = home;

    function marker() {
      const size = shown.length < 300 ? 10 : shown.length > 3000 || plot.clientWidth < 600 ? 5 : 7;
      const base = { size, opacity: 0.85, line: { width: 0 } };
      if (coloring === "confidence") {
        const scale = root.dataset.theme === "dark" ? cividisOnDark : cividis;
        return { ...base, color: shown.map((n) => data.confidence[n] ?? 0), cmin: 0, cmax: 1, colorscale: scale };
      }
      const style = coloring === "kind" ? (n) => kinds[kindOf(n)] : classOf;
      return { ...base, color: shown.map((n) => style(n).color), symbol: shown.map((n) => style(n).symbol) };
    }
    function trace() {
      return { type, mode: "markers", x: shown.map((n) => data.x[n]), y: shown.map((n) => data.y[n]), marker: marker(), hoverinfo: "none" };
    }
    // A ring around the image the keyboard stands on.
    function ring() {
      const here = current >= 0 ? [current] : [];
      return { type: "scatter", mode: "markers", x: here.map((n) => data.x[n]), y: here.map((n) => data.y[n]), hoverinfo: "skip", marker: { size: 20, symbol: "circle-open", color: getComputedStyle(plot).color, line: { width: 3 } } };
    }
    function layout() {
      const axis = (range) => ({ visible: false, showgrid: false, zeroline: false, range: range.slice() });
      return {
        margin: { l: 12, r: 12, t: 12, b: 12 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        showlegend: false, hovermode: "closest", dragmode: coarse ? false : "pan",
        xaxis: axis(view.x), yaxis: axis(view.y),
      };
    }
    function draw() {
      return Plotly.react(plot, [trace(), ring()], layout(), { displayModeBar: false, responsive: true, scrollZoom: false });
    }
    function drawLegend() {
      const entry = (mark, tint, text) => {
        const item = document.createElement("li");
        const sign = item.appendChild(document.createElement("span"));
        sign.className = "mark";
        sign.textContent = mark;
        sign.style.color = tint;
        item.append(text);
        return item;
      };
      if (coloring === "confidence") {
        const item = document.createElement("li");
        const ramp = document.createElement("span");
        ramp.className = "ramp";
        const scale = root.dataset.theme === "dark" ? cividisOnDark : cividis;
        ramp.style.background = `linear-gradient(90deg, ${scale.map(([, c]) => c).join(",")})`;
        item.append("unsure", ramp, "sure");
        return legend.replaceChildren(item);
      }
      const styles = coloring === "kind" ? kinds : data.classes;
      return legend.replaceChildren(...styles.map((s) => entry(s.mark, s.color, s.name)));
    }
    function restyle() { drawLegend(); return draw(); }

    // The card beside the pointer, or beside the keyboard's image.
    function showCard(n, x, y) {
      paint(card.querySelector(".thumb"), n);
      const sure = data.confidence && data.confidence[n] !== null ? `, ${percent(data.confidence[n])} sure` : "";
      card.querySelector("b").textContent = classOf(n).name;
      card.querySelector("span.facts").textContent = data.labeled[n] ? "labeled" : `${classOf(n).known ? "known class" : "newly found"}${sure}`;
      card.querySelector("span.file").textContent = data.ids[n].split("/").pop();
      card.classList.remove("hidden-card");
      const box = card.getBoundingClientRect();
      card.style.left = `${Math.max(8, Math.min(x + 16, innerWidth - box.width - 8))}px`;
      card.style.top = `${Math.max(8, y + 16 + box.height > innerHeight ? y - box.height - 16 : y + 16)}px`;
    }
    const hideCard = () => card.classList.add("hidden-card");
    function stand(n) {
      current = n;
      Plotly.restyle(plot, { x: [[data.x[n]]], y: [[data.y[n]]] }, [1]);
      const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
      showCard(n, box.left + xaxis._offset + xaxis.l2p(data.x[n]), box.top + yaxis._offset + yaxis.l2p(data.y[n]));
      find("#spoken").textContent = [data.ids[n], ...facts(n).map((fact) => fact[1])].join(", ");
    }
    // The nearest image in the direction of the arrow, within 45 degrees of it.
    function walk(dx, dy) {
      if (shown.length === 0) return;
      if (current < 0) return stand(shown[0]);
      let best = -1, near = Infinity;
      for (const n of shown) {
        const x = data.x[n] - data.x[current], y = data.y[n] - data.y[current];
        const along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx), far = along * along + aside * aside;
        if (along > 0 && aside <= along && far < near) { best = n; near = far; }
      }
      if (best >= 0) stand(best);
    }
    function zoom(by) {
      const around = (axis) => {
        const [low, high] = view[axis], half = (high - low) * by / 2;
        const middle = current >= 0 && by < 1 ? data[axis][current] : (low + high) / 2;
        return [middle - half, middle + half];
      };
      const to = by === 0 ? home : { x: around("x"), y: around("y") };
      return Plotly.relayout(plot, { "xaxis.range": to.x, "yaxis.range": to.y });
    }

    plot.addEventListener("keydown", (event) => {
      const arrows = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (arrows[event.key]) walk(...arrows[event.key]);
      else if (event.key === "Enter" && current >= 0) open(current, [current]);
      else if (event.key === "+" || event.key === "=") zoom(0.6);
      else if (event.key === "-") zoom(1.7);
      else if (event.key === "Escape") hideCard();
      else return;
      event.preventDefault();
    });
    plot.addEventListener("blur", hideCard);
    for (const button of document.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => zoom(Number(button.dataset.zoom)));
    }
    find("#coloring").addEventListener("change", (event) => { coloring = event.target.value; restyle(); });
    only.addEventListener("change", () => {
      shown = only.value === "" ? placed : placed.filter((n) => data.class_id[n] === Number(only.value));
      current = -1;
      draw();
    });
    draw().then(() => {
      if (plot.querySelector(".no-webgl")) {
        type = "scatter";
        Plotly.purge(plot);
        return draw();
      }
    }).then(() => {
      plot.on("plotly_relayout", () => { view = { x: plot.layout.xaxis.range.slice(), y: plot.layout.yaxis.range.slice() }; });
      const hit = (event) => event.points.find((point) => point.curveNumber === 0);
      plot.on("plotly_hover", (event) => hit(event) && showCard(shown[hit(event).pointIndex], event.event.clientX, event.event.clientY));
      plot.on("plotly_unhover", hideCard);
      plot.on("plotly_click", (event) => { if (hit(event)) { hideCard(); open(shown[hit(event).pointIndex], [shown[hit(event).pointIndex]]); } });
    });
    return { restyle };
  }
})();
