"use strict";
// The map: every image a point on a canvas. Wheel and drag move it, the legend filters it, close up the
// points become thumbnails, and every class has its name where most of its points are.
function makeMap(plot, images, detail) {
  const { data, classOf } = images;
  const HOME = { x: [-40, 1040], y: [-40, 1040] };
  const CLOSEST = 400; // how many times the whole map
  const THUMBNAIL = { many: 46, few: 60 }; // pixels
  const FEW = 160; // so many points in view are shown as thumbnails, whatever the zoom
  const CLOSE = 5; // and from this zoom on, as many as have room
  const PATCH = 90; // pixels: a class is named where its fullest square of this size is
  const KINDS = [
    { name: "known, labeled", color: "#0072b2", symbol: "circle", mark: "●" },
    { name: "known, sorted in", color: "#56b4e9", symbol: "square", mark: "■" },
    { name: "newly found", color: "#e69f00", symbol: "triangle-up", mark: "▲" },
  ];
  // Cividis: even steps for every kind of color vision; its dark end is lifted on a dark page.
  const RAMP = { light: ["#00224e", "#434e6c", "#7d7c78", "#bcaf6f", "#fee838"], dark: ["#5b7fd0", "#8090b0", "#a5a293", "#d2c465", "#fee838"] };

  const canvas = plot.querySelector("canvas"), context = canvas.getContext("2d");
  const legend = document.querySelector("#legend"), card = document.querySelector("#card");
  const points = data.x.map((_, n) => n).filter((n) => data.x[n] !== null && data.y[n] !== null);
  let view = { x: HOME.x.slice(), y: HOME.y.slice() };
  let coloring = "class", current = -1, preview = null, thumbnails = [], tile = THUMBNAIL.many;
  const selected = new Set(); // groups of the legend; empty: all

  // Groups: classes, or kinds, or all in one.
  const kindOf = (n) => (classOf(n).known ? (data.labeled[n] ? 0 : 1) : 2);
  const groupOf = (n) => (coloring === "class" ? data.class_id[n] : coloring === "kind" ? kindOf(n) : 0);
  function isOn(n) {
    const group = groupOf(n);
    return preview === null ? selected.size === 0 || selected.has(group) : group === preview;
  }

  // From the map's own coordinates (0 to 1000, y upwards) to pixels of the canvas and back.
  const width = () => plot.clientWidth, height = () => plot.clientHeight;
  const zoomed = () => (HOME.x[1] - HOME.x[0]) / (view.x[1] - view.x[0]);
  const toX = (x) => ((x - view.x[0]) / (view.x[1] - view.x[0])) * width();
  const toY = (y) => (1 - (y - view.y[0]) / (view.y[1] - view.y[0])) * height();
  const fromX = (px) => view.x[0] + (px / width()) * (view.x[1] - view.x[0]);
  const fromY = (py) => view.y[0] + (1 - py / height()) * (view.y[1] - view.y[0]);

  // Symbols as paths around a point; with the eight colors they tell 48 classes apart.
  const polygon = (corners) => (x, y, r) => {
    corners.forEach(([dx, dy], i) => (i ? context.lineTo(x + r * dx, y + r * dy) : context.moveTo(x + r * dx, y + r * dy)));
    context.closePath();
  };
  const plus = [[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]];
  const turned = plus.map(([x, y]) => [0.71 * (x - y), 0.71 * (x + y)]);
  const starry = Array.from({ length: 10 }, (_, i) => [(i % 2 ? 0.55 : 1.3) * Math.sin(i * Math.PI / 5), (i % 2 ? -0.55 : -1.3) * Math.cos(i * Math.PI / 5)]);
  const SYMBOLS = {
    circle: (x, y, r) => { context.moveTo(x + r, y); context.arc(x, y, r, 0, 2 * Math.PI); },
    square: (x, y, r) => context.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
    "triangle-up": polygon([[0, -1.25], [1.15, 0.8], [-1.15, 0.8]]),
    cross: polygon(plus), x: polygon(turned), star: polygon(starry),
  };

  const theme = () => (document.documentElement.dataset.theme === "dark" ? "dark" : "light");
  const tint = (name) => getComputedStyle(plot).getPropertyValue(name).trim();
  function styleOf(n) {
    if (coloring === "class") return classOf(n);
    if (coloring === "kind") return KINDS[kindOf(n)];
    const ramp = RAMP[theme()];
    return { color: ramp[Math.min(ramp.length - 1, Math.floor((images.confidence(n) ?? 0) * ramp.length))], symbol: "circle" };
  }
  function radius() {
    const base = points.length < 300 ? 5 : points.length > 3000 || width() < 600 ? 2.6 : 3.6;
    return base * Math.min(2.2, zoomed() ** 0.3);
  }

  function pointsInView() {
    const inside = (value, [low, high]) => value >= low && value <= high;
    return points.filter((n) => inside(data.x[n], view.x) && inside(data.y[n], view.y));
  }
  function drawPoints(numbers, faint) {
    const batches = new Map();
    for (const n of numbers) {
      const { color, symbol } = faint ? { color: tint("--quiet"), symbol: "circle" } : styleOf(n);
      const key = `${color} ${symbol}`;
      if (!batches.has(key)) batches.set(key, { color, symbol, members: [] });
      batches.get(key).members.push(n);
    }
    context.globalAlpha = faint ? 0.13 : theme() === "dark" ? 1 : 0.85;
    const r = radius() * (faint ? 0.8 : 1);
    for (const { color, symbol, members } of batches.values()) {
      context.beginPath();
      for (const n of members) SYMBOLS[symbol](toX(data.x[n]), toY(data.y[n]), r);
      context.fillStyle = color;
      context.fill();
    }
    context.globalAlpha = 1;
  }

  // Thumbnails, the first come first; where two would overlap the second stays a point.
  function drawThumbnails(numbers) {
    thumbnails = [];
    tile = numbers.length < 60 ? THUMBNAIL.few : THUMBNAIL.many;
    if (zoomed() < CLOSE && (numbers.length > FEW || zoomed() < 1.5)) return;
    const taken = new Map(), cell = (px) => Math.floor(px / tile);
    const overlaps = (x, y) => {
      for (let i = -1; i <= 1; i++) for (let j = -1; j <= 1; j++) {
        const other = taken.get(`${cell(x) + i},${cell(y) + j}`);
        if (other && Math.abs(other[0] - x) < tile && Math.abs(other[1] - y) < tile) return true;
      }
      return false;
    };
    for (const n of numbers) {
      const x = toX(data.x[n]), y = toY(data.y[n]);
      if (overlaps(x, y)) continue;
      taken.set(`${cell(x)},${cell(y)}`, [x, y]);
      drawFramed(n, x - tile / 2, y - tile / 2);
    }
  }
  function drawFramed(n, x, y) {
    const size = tile - 6;
    context.fillStyle = tint("--panel");
    context.strokeStyle = styleOf(n).color;
    context.lineWidth = 2.5;
    context.beginPath();
    context.roundRect(x + 1, y + 1, tile - 4, tile - 4, 5);
    context.fill();
    if (images.drawThumbnail(context, n, x + 2, y + 2, size, redraw)) thumbnails.push({ n, x, y });
    context.stroke();
  }

  // Names of classes, the largest first; one that would cover another is left out until there is room.
  function drawNames(numbers) {
    let drawn = 0;
    const covered = [];
    const free = (box) => covered.every((o) => box.right < o.left || box.left > o.right || box.bottom < o.top || box.top > o.bottom);
    context.font = `600 ${width() < 600 ? 11 : 12.5}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const { name, known, x, y } of anchors(numbers)) {
      const half = context.measureText(name).width / 2;
      const cx = Math.min(width() - half - 6, Math.max(half + 6, x));
      const spots = (thumbnails.length ? [-tile / 2 - 9, tile / 2 + 6, 0] : [0, -16, 16, -30, 30]).map((dy) => ({ left: cx - half - 3, right: cx + half + 3, top: y + dy - 8, bottom: y + dy + 8 }));
      const spot = spots.find((box) => box.top > 0 && box.bottom < height() && free(box));
      if (!spot) continue;
      covered.push(spot);
      drawName(name, cx, (spot.top + spot.bottom) / 2, known ? "--known" : "--novel");
      drawn++;
    }
    plot.dataset.names = drawn;
  }
  function drawName(name, x, y, color) {
    context.lineJoin = "round";
    context.lineWidth = 4.5;
    context.strokeStyle = tint("--panel");
    context.strokeText(name, x, y);
    context.fillStyle = tint(color);
    context.fillText(name, x, y);
  }
  // Classes that only stray into view are not named, nor tiny ones among many before one looks closer.
  function isNamed(c, count) {
    if (zoomed() >= CLOSE) return true;
    return count >= 0.1 * perClass[c] && (count >= 3 || zoomed() >= 2 || data.classes.length <= 20);
  }
  // The middle of the fullest square of each class in view.
  function anchors(numbers) {
    const byClass = new Map();
    for (const n of numbers) {
      if (!byClass.has(data.class_id[n])) byClass.set(data.class_id[n], { count: 0, patches: new Map() });
      const mine = byClass.get(data.class_id[n]), x = toX(data.x[n]), y = toY(data.y[n]);
      const key = `${Math.floor(x / PATCH)},${Math.floor(y / PATCH)}`;
      const patch = mine.patches.get(key) ?? { count: 0, x: 0, y: 0 };
      mine.count++;
      mine.patches.set(key, { count: patch.count + 1, x: patch.x + x, y: patch.y + y });
    }
    const found = [];
    for (const [c, { count, patches }] of byClass) {
      if (!isNamed(c, count)) continue;
      const best = [...patches.values()].reduce((a, b) => (b.count > a.count ? b : a));
      const { name, known } = data.classes[c];
      found.push({ count, known, name: name.length > 24 ? `${name.slice(0, 23)}…` : name, x: best.x / best.count, y: best.y / best.count });
    }
    return found.sort((a, b) => b.count - a.count);
  }
  const perClass = data.classes.map(() => 0);
  for (const n of points) perClass[data.class_id[n]]++;

  function drawRing() {
    if (current < 0) return;
    context.beginPath();
    context.arc(toX(data.x[current]), toY(data.y[current]), 11, 0, 2 * Math.PI);
    context.lineWidth = 3;
    context.strokeStyle = tint("--text");
    context.stroke();
  }

  function draw() {
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width() * scale) || canvas.height !== Math.round(height() * scale)) {
      canvas.width = Math.round(width() * scale);
      canvas.height = Math.round(height() * scale);
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width(), height());
    const inView = pointsInView(), on = inView.filter(isOn);
    drawPoints(inView.filter((n) => !isOn(n)), true);
    drawPoints(on, false);
    drawThumbnails(on);
    if (document.querySelector("#names").checked) drawNames(on);
    else plot.dataset.names = 0;
    drawRing();
    plot.classList.toggle("zoomed", zoomed() > 1.01);
    Object.assign(plot.dataset, { points: on.length, thumbnails: thumbnails.length, zoom: zoomed().toFixed(2) });
  }
  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }

  // Legend: every entry is a switch.
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
      current = -1;
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
    const item = makeElement("li", "ramp-entry"), ramp = makeElement("span", "ramp");
    ramp.style.background = `linear-gradient(90deg, ${RAMP[theme()].join(",")})`;
    item.append("unsure", ramp, "sure");
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
  document.querySelector("#names").addEventListener("change", redraw);

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

  // The image under a pixel: a thumbnail, or the nearest point within reach.
  function hit(px, py) {
    const over = thumbnails.findLast(({ x, y }) => px >= x && px < x + tile && py >= y && py < y + tile);
    if (over) return over.n;
    let best = -1, near = Math.max(10, radius() + 4) ** 2;
    for (const n of points) {
      const away = (toX(data.x[n]) - px) ** 2 + (toY(data.y[n]) - py) ** 2;
      if (away < near && isOn(n)) { best = n; near = away; }
    }
    return best;
  }

  // Moving the view.
  function zoomAt(by, px, py) {
    const next = Math.min(CLOSEST, zoomed() / by);
    if (next <= 1) { view = { x: HOME.x.slice(), y: HOME.y.slice() }; return redraw(); }
    const around = (middle, [low, high], home) => {
      const span = (home[1] - home[0]) / next, share = (middle - low) / (high - low);
      return [middle - share * span, middle + (1 - share) * span];
    };
    view = { x: around(fromX(px), view.x, HOME.x), y: around(fromY(py), view.y, HOME.y) };
    redraw();
  }
  function pan(dx, dy) {
    const shift = ([low, high], by) => [low + by, high + by];
    view = { x: shift(view.x, fromX(0) - fromX(dx)), y: shift(view.y, fromY(0) - fromY(dy)) };
    redraw();
  }
  function zoomButton(by) {
    const middle = current >= 0 && by < 1 ? [toX(data.x[current]), toY(data.y[current])] : [width() / 2, height() / 2];
    zoomAt(by === 0 ? Infinity : by, ...middle);
  }
  const local = (event) => {
    const box = plot.getBoundingClientRect();
    return [event.clientX - box.left - plot.clientLeft, event.clientY - box.top - plot.clientTop];
  };

  // On the whole map, turning the wheel towards you scrolls the page as everywhere else.
  plot.addEventListener("wheel", (event) => {
    if (event.deltaY > 0 && zoomed() <= 1.01) return;
    event.preventDefault();
    hideCard();
    zoomAt(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.003), ...local(event));
  }, { passive: false });

  const fingers = new Map();
  let moved = 0;
  plot.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, local(event));
    moved = fingers.size > 1 ? Infinity : 0;
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const [x, y] = local(event), before = fingers.get(event.pointerId);
    if (!before) {
      const n = hit(x, y);
      plot.classList.toggle("over", n >= 0);
      return n >= 0 ? showCard(n, event.clientX, event.clientY) : hideCard();
    }
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    fingers.set(event.pointerId, [x, y]);
    if (other) {
      const apart = ([a, b]) => Math.hypot(a - other[0], b - other[1]) || 1;
      return zoomAt(apart(before) / apart([x, y]), (x + other[0]) / 2, (y + other[1]) / 2);
    }
    if (zoomed() > 1.01 && moved > 4) { hideCard(); pan(x - before[0], y - before[1]); }
  });
  plot.addEventListener("pointerup", (event) => {
    const n = moved <= 4 ? hit(...local(event)) : -1;
    if (n >= 0) { hideCard(); detail.open(n, [n]); }
  });
  for (const name of ["pointerup", "pointercancel"]) plot.addEventListener(name, (event) => fingers.delete(event.pointerId));
  plot.addEventListener("pointerleave", hideCard);

  // The keyboard: the nearest image in the direction of the arrow, within 45 degrees of it.
  function stand(n) {
    current = n;
    draw();
    const box = plot.getBoundingClientRect();
    showCard(n, box.left + toX(data.x[n]), box.top + toY(data.y[n]));
    document.querySelector("#spoken").textContent = [data.ids[n], ...images.facts(n).map((fact) => fact[1])].join(", ");
  }
  function walk(dx, dy) {
    const on = points.filter(isOn);
    if (on.length === 0) return;
    if (current < 0) return stand(on[0]);
    let best = -1, near = Infinity;
    for (const n of on) {
      const x = data.x[n] - data.x[current], y = data.y[n] - data.y[current];
      const along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx), far = along * along + aside * aside;
      if (along > 0 && aside <= along && far < near) { best = n; near = far; }
    }
    if (best >= 0) stand(best);
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

  new ResizeObserver(redraw).observe(plot);
  drawLegend();
  return { restyle: drawLegend };
}
