// The map of all images: draw a line around some to select them, turn the wheel to zoom.
import { find, request } from "./dom.js";
import { imageUrl, model } from "./model.js";

let places = null; // { x, y } of every image, from 0 to 1
let loadedFor = "";
let zoom = 1, left = 0, top = 0; // what part of the map is seen
let line = []; // corners of the lasso, in pixels of the canvas
let onLasso = () => {};
let isSelected = () => false;

const scaled = (values) => {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  return Float32Array.from(values, (value) => (value - low) / (high - low || 1));
};

export async function showMap() {
  if (loadedFor !== model.key) {
    const found = await request("/map");
    if (found === null) return;
    places = { x: scaled(found.x), y: scaled(found.y) };
    loadedFor = model.key;
    zoom = 1; left = top = 0;
  }
  drawMap();
}

const canvas = () => find("#map-canvas");
const MARGIN = 12;
const toX = (number) => MARGIN + (places.x[number] - left) * zoom * (canvas().clientWidth - 2 * MARGIN);
const toY = (number) => MARGIN + (1 - places.y[number] - top) * zoom * (canvas().clientHeight - 2 * MARGIN);

// Neighboring ids get hues far apart, so that neighboring classes differ.
const hue = (id) => (id * 137.508) % 360;

export function drawMap() {
  if (!places || find("#map").hidden) return;
  const area = canvas(), pen = area.getContext("2d"), scale = devicePixelRatio || 1;
  area.width = area.clientWidth * scale;
  area.height = area.clientHeight * scale;
  pen.scale(scale, scale);
  const dark = document.documentElement.dataset.theme === "dark";
  const size = Math.max(2, Math.min(7, 90 / Math.sqrt(model.size))) * Math.min(2, Math.sqrt(zoom));
  const chosen = [];
  let last = null;
  for (const [number, id] of model.classOf.entries()) {
    if (isSelected(number)) { chosen.push(number); continue; }
    if (id !== last) { last = id; pen.fillStyle = `hsl(${hue(id)} 65% ${dark ? 62 : 42}%)`; }
    pen.fillRect(toX(number) - size / 2, toY(number) - size / 2, size, size);
  }
  pen.fillStyle = dark ? "#fff" : "#000";
  for (const number of chosen) pen.fillRect(toX(number) - size, toY(number) - size, 2 * size, 2 * size);
  drawNames(pen, dark);
  drawLine(pen, dark);
}

// The name of each class at the middle of its images; a name that would lie on another one is left out.
function drawNames(pen, dark) {
  const sums = new Map();
  for (const [number, id] of model.classOf.entries()) {
    const sum = sums.get(id) ?? { x: 0, y: 0, n: 0 };
    sum.x += toX(number); sum.y += toY(number); sum.n++;
    sums.set(id, sum);
  }
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.lineWidth = 3;
  pen.strokeStyle = dark ? "#14181a" : "#fff";
  const drawn = [];
  for (const [id, sum] of [...sums].sort((a, b) => b[1].n - a[1].n)) {
    const name = model.classes.get(id).name, wide = pen.measureText(name).width / 2 + 3;
    const x = Math.min(Math.max(sum.x / sum.n, wide), canvas().clientWidth - wide), y = sum.y / sum.n; // whole names
    if (drawn.some((each) => Math.abs(each.x - x) < each.wide + wide && Math.abs(each.y - y) < 14)) continue;
    drawn.push({ x, y, wide });
    pen.fillStyle = `hsl(${hue(id)} 70% ${dark ? 75 : 28}%)`;
    pen.strokeText(name, x, y);
    pen.fillText(name, x, y);
  }
}

function drawLine(pen, dark) {
  if (line.length < 2) return;
  pen.beginPath();
  for (const [x, y] of line) pen.lineTo(x, y);
  pen.closePath();
  pen.fillStyle = dark ? "rgb(255 255 255 / 12%)" : "rgb(0 0 0 / 8%)";
  pen.fill();
  pen.strokeStyle = dark ? "#fff" : "#000";
  pen.lineWidth = 1.5;
  pen.stroke();
}

function inside(x, y) {
  let within = false;
  for (let at = 0, before = line.length - 1; at < line.length; before = at++) {
    const [ax, ay] = line[at], [bx, by] = line[before];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) within = !within;
  }
  return within;
}

function caught() {
  const xs = line.map(([x]) => x), ys = line.map(([, y]) => y);
  const box = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const found = [];
  for (let number = 0; number < model.size; number++) {
    const x = toX(number), y = toY(number);
    if (x >= box[0] && x <= box[1] && y >= box[2] && y <= box[3] && inside(x, y)) found.push(number);
  }
  return found;
}

function nearest(x, y) {
  let best = null, closest = 100; // 10 pixels
  for (let number = 0; number < model.size; number++) {
    const away = (toX(number) - x) ** 2 + (toY(number) - y) ** 2;
    if (away < closest) { closest = away; best = number; }
  }
  return best;
}

function zoomAt(x, y, factor) {
  const wide = canvas().clientWidth - 2 * MARGIN, high = canvas().clientHeight - 2 * MARGIN;
  const mapX = left + (x - MARGIN) / zoom / wide, mapY = top + (y - MARGIN) / zoom / high;
  zoom = Math.min(60, Math.max(1, zoom * factor));
  left = zoom === 1 ? 0 : mapX - (x - MARGIN) / zoom / wide;
  top = zoom === 1 ? 0 : mapY - (y - MARGIN) / zoom / high;
  drawMap();
}

const at = (event) => {
  const box = canvas().getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

function preview(event) {
  const shown = find("#map-preview"), [x, y] = at(event);
  const number = places && !line.length ? nearest(x, y) : null;
  shown.hidden = number === null;
  if (number === null) return;
  shown.src = imageUrl(number);
  shown.style.left = `${Math.min(x + 14, canvas().clientWidth - 120)}px`;
  shown.style.top = `${Math.min(y + 14, canvas().clientHeight - 120)}px`;
}

// lassoed(numbers, more): what a lasso caught; more: it was drawn with Shift held.
export function prepareMap(lassoed, selected) {
  onLasso = lassoed;
  isSelected = selected;
  const area = canvas();
  area.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomAt(...at(event), event.deltaY < 0 ? 1.25 : 0.8);
  }, { passive: false });
  area.addEventListener("dblclick", () => { zoom = 1; left = top = 0; drawMap(); });
  area.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    area.setPointerCapture(event.pointerId);
    line = [at(event)];
  });
  area.addEventListener("pointermove", (event) => {
    if (!line.length) { preview(event); return; }
    find("#map-preview").hidden = true;
    line.push(at(event));
    drawMap();
  });
  area.addEventListener("pointerleave", () => { find("#map-preview").hidden = true; });
  area.addEventListener("pointerup", (event) => {
    const found = line.length > 3 ? caught() : [];
    const drawn = line.length > 3;
    line = [];
    if (drawn) onLasso(found, event.shiftKey);
    drawMap();
  });
  addEventListener("resize", drawMap);
}
