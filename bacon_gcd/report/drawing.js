"use strict";
// Draws the map on a canvas: points, close up thumbnails, and the name of every class where most of its points are.
function makeDrawing(plot, images, points, view, legend, redraw) {
  const { data } = images, { width, height, zoom, toX, toY } = view;
  const THUMBNAIL = { many: 46, few: 60 }; // pixels
  const FEW = 160; // so many points in view are shown as thumbnails, whatever the zoom
  const CLOSE = 5; // and from this zoom on, as many as have room
  const PATCH = 90; // pixels: a class is named where its fullest square of this size is
  const canvas = plot.querySelector("canvas"), context = canvas.getContext("2d");
  let thumbnails = [], tile = THUMBNAIL.many;

  // Symbols as paths around a point; with the eight colors they tell 48 classes apart.
  const polygon = (corners) => (x, y, r) => {
    corners.forEach(([dx, dy], i) => (i ? context.lineTo(x + r * dx, y + r * dy) : context.moveTo(x + r * dx, y + r * dy)));
    context.closePath();
  };
  const plus = [[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]];
  const turned = plus.map(([x, y]) => [0.71 * (x - y), 0.71 * (x + y)]);
  const star = Array.from({ length: 10 }, (_, i) => [(i % 2 ? 0.55 : 1.3) * Math.sin(i * Math.PI / 5), (i % 2 ? -0.55 : -1.3) * Math.cos(i * Math.PI / 5)]);
  const SYMBOLS = {
    circle: (x, y, r) => { context.moveTo(x + r, y); context.arc(x, y, r, 0, 2 * Math.PI); },
    square: (x, y, r) => context.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
    "triangle-up": polygon([[0, -1.25], [1.15, 0.8], [-1.15, 0.8]]),
    cross: polygon(plus), x: polygon(turned), star: polygon(star),
  };

  const tint = (name) => getComputedStyle(plot).getPropertyValue(name).trim();
  function radius() {
    const base = points.length < 300 ? 5 : points.length > 3000 || width() < 600 ? 2.6 : 3.6;
    return base * Math.min(2.2, zoom() ** 0.3);
  }

  function drawPoints(numbers, faint = null) {
    const batches = new Map();
    for (const n of numbers) {
      const { color, symbol } = faint ?? legend.styleOf(n);
      const key = `${color} ${symbol}`;
      if (!batches.has(key)) batches.set(key, { color, symbol, members: [] });
      batches.get(key).members.push(n);
    }
    context.globalAlpha = faint ? 0.13 : 0.9;
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
    if (zoom() < CLOSE && (numbers.length > FEW || zoom() < 1.5)) return;
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
    context.strokeStyle = legend.styleOf(n).color;
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
    if (zoom() >= CLOSE) return true;
    return count >= 0.1 * perClass[c] && (count >= 3 || zoom() >= 2 || data.classes.length <= 20);
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

  function drawRing(current) {
    if (current < 0) return;
    context.beginPath();
    context.arc(toX(data.x[current]), toY(data.y[current]), 11, 0, 2 * Math.PI);
    context.lineWidth = 3;
    context.strokeStyle = tint("--text");
    context.stroke();
  }

  function fitCanvas() {
    const scale = devicePixelRatio || 1, size = [Math.round(width() * scale), Math.round(height() * scale)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width(), height());
  }
  // `current` is the image the keyboard is at, or -1.
  function draw(current) {
    fitCanvas();
    const inView = points.filter((n) => view.has(data.x[n], data.y[n])), on = inView.filter(legend.isOn);
    drawPoints(inView.filter((n) => !legend.isOn(n)), { color: tint("--quiet"), symbol: "circle" });
    drawPoints(on);
    drawThumbnails(on);
    drawNames(document.querySelector("#names").checked ? on : []);
    drawRing(current);
    plot.classList.toggle("zoomed", !view.isWhole());
    Object.assign(plot.dataset, { points: on.length, thumbnails: thumbnails.length, zoom: zoom().toFixed(2) });
  }

  // The image under a pixel: a thumbnail, or the nearest point within reach.
  function hit(px, py) {
    const over = thumbnails.findLast(({ x, y }) => px >= x && px < x + tile && py >= y && py < y + tile);
    if (over) return over.n;
    let best = -1, near = Math.max(10, radius() + 4) ** 2;
    for (const n of points) {
      const away = (toX(data.x[n]) - px) ** 2 + (toY(data.y[n]) - py) ** 2;
      if (away < near && legend.isOn(n)) { best = n; near = away; }
    }
    return best;
  }

  return { draw, hit };
}
