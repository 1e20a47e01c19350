"use strict";
// The map: every image a point. Wheel and drag move it, the legend filters it, keys go from image to image.
function makeMap(plot, images, detail) {
  const { data, classOf } = images;
  let waiting = 0;
  const points = data.x.map((_, n) => n).filter((n) => data.x[n] !== null && data.y[n] !== null);
  const view = makeView(plot, redraw), legend = makeLegend(images, points, redraw);
  const drawing = makeDrawing(plot, images, points, view, legend, redraw);
  const card = document.querySelector("#card");
  let current = -1; // the image the keyboard is at
  const pixelsOf = (n) => [view.toX(data.x[n]), view.toY(data.y[n])];

  // Any number of changes is drawn once, before the next frame.
  function redraw() {
    waiting ||= requestAnimationFrame(() => { waiting = 0; draw(); });
  }
  function draw() {
    if (current >= 0 && !legend.isOn(current)) current = -1;
    drawing.draw(current);
  }

  // The card beside the pointer, or beside the keyboard's image.
  function showCard(n, x, y) {
    images.paint(card.querySelector(".thumb"), n);
    const sure = images.confidence(n) === null ? "" : `, ${images.percent(images.confidence(n))} sure`;
    card.querySelector("b").textContent = classOf(n).name;
    card.querySelector("span.facts").textContent = data.labeled[n] ? "labeled" : `${classOf(n).known ? "known class" : "newly found"}${sure}`;
    card.querySelector("span.file").textContent = images.fileName(n);
    card.classList.remove("hidden-card");
    const box = card.getBoundingClientRect();
    card.style.left = `${Math.max(8, Math.min(x + 16, innerWidth - box.width - 8))}px`;
    card.style.top = `${Math.max(8, y + 16 + box.height > innerHeight ? y - box.height - 16 : y + 16)}px`;
  }
  const hideCard = () => card.classList.add("hidden-card");

  function zoomButton(by) {
    const middle = current >= 0 && by < 1 ? pixelsOf(current) : [plot.clientWidth / 2, plot.clientHeight / 2];
    view.zoomAt(by === 0 ? Infinity : by, ...middle);
  }
  const local = (event) => {
    const box = plot.getBoundingClientRect();
    return [event.clientX - box.left - plot.clientLeft, event.clientY - box.top - plot.clientTop];
  };

  // On the whole map, turning the wheel towards you scrolls the page as everywhere else.
  plot.addEventListener("wheel", (event) => {
    if (event.deltaY > 0 && view.isWhole()) return;
    event.preventDefault();
    hideCard();
    view.zoomAt(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.003), ...local(event));
  }, { passive: false });

  const pointers = new Map();
  let moved = 0;
  plot.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, local(event));
    moved = pointers.size > 1 ? Infinity : 0;
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const [x, y] = local(event), before = pointers.get(event.pointerId);
    if (!before) {
      const n = drawing.hit(x, y);
      plot.classList.toggle("over", n >= 0);
      return n >= 0 ? showCard(n, event.clientX, event.clientY) : hideCard();
    }
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    pointers.set(event.pointerId, [x, y]);
    if (other) {
      const apart = ([a, b]) => Math.hypot(a - other[0], b - other[1]) || 1;
      return view.zoomAt(apart(before) / apart([x, y]), (x + other[0]) / 2, (y + other[1]) / 2);
    }
    if (!view.isWhole() && moved > 4) { hideCard(); view.pan(x - before[0], y - before[1]); }
  });
  plot.addEventListener("pointerup", (event) => {
    const n = moved <= 4 ? drawing.hit(...local(event)) : -1;
    if (n >= 0) { hideCard(); detail.open(n, [n]); }
  });
  for (const name of ["pointerup", "pointercancel"]) plot.addEventListener(name, (event) => pointers.delete(event.pointerId));
  plot.addEventListener("pointerleave", hideCard);

  // The keyboard: the nearest image in the direction of the arrow, within 45 degrees of it.
  function moveTo(n) {
    current = n;
    drawing.draw(current);
    const box = plot.getBoundingClientRect(), [x, y] = pixelsOf(n);
    showCard(n, box.left + x, box.top + y);
    document.querySelector("#spoken").textContent = [data.ids[n], ...images.facts(n).map((fact) => fact[1])].join(", ");
  }
  function walk(dx, dy) {
    const on = points.filter(legend.isOn);
    if (on.length === 0) return;
    if (current < 0) return moveTo(on[0]);
    let best = -1, near = Infinity;
    for (const n of on) {
      const x = data.x[n] - data.x[current], y = data.y[n] - data.y[current];
      const along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx), far = along * along + aside * aside;
      if (along > 0 && aside <= along && far < near) { best = n; near = far; }
    }
    if (best >= 0) moveTo(best);
  }
  plot.addEventListener("keydown", (event) => {
    const arrows = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (arrows[event.key]) walk(...arrows[event.key]);
    else if (event.key === "Enter" && current >= 0) detail.open(current, [current]);
    else if (event.key === "+" || event.key === "=") zoomButton(0.6);
    else if (event.key === "-") zoomButton(1.7);
    else if (event.key === "Escape") hideCard();
    else return;
    event.preventDefault();
  });
  plot.addEventListener("blur", hideCard);
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => zoomButton(Number(button.dataset.zoom)));
  }

  document.querySelector("#names").addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(plot);
  return { restyle: legend.restyle };
}
