"use strict";
// What the page knows of its images: facts in words, thumbnails, links to the original files.

// The payload is JSON; large ones are gzipped.
async function readPayload() {
  const element = document.getElementById("payload");
  if (element.type === "application/json") return JSON.parse(element.textContent);
  const bytes = Uint8Array.from(atob(element.textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function makeElement(tag, name = "", text = undefined) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

// A name that may be broken after its underscores, as nodes; its text stays what it is.
function breakable(name) {
  return name.split(/(?<=_)(?!_|$)/).flatMap((part, at) => (at ? [makeElement("wbr"), part] : [part]));
}

// Images are numbered; number n < data.n_shown has a thumbnail, tile n of the sprite sheets.
function makeImages(data) {
  const grid = Number(getComputedStyle(document.documentElement).getPropertyValue("--grid"));
  const percent = (value) => `${Math.round(100 * value)}%`;
  const classOf = (n) => data.classes[data.class_id[n]];
  const hasThumbnail = (n) => n < data.n_shown;
  const confidence = (n) => data.confidence?.[n] ?? null;
  const sheetOf = (n) => Math.floor(n / (grid * grid));
  const fileName = (n) => data.ids[n].split("/").pop();

  // The class named in a column of class numbers, or null.
  function named(column, n) {
    const number = data[column]?.[n] ?? -1;
    return number < 0 ? null : data.classes[number].name;
  }

  function facts(n) {
    const found = [["class", classOf(n).name], ["kind", classOf(n).known ? "known class" : "newly found class"]];
    found.push(["label", data.labeled[n] ? "came with it" : "none"]);
    if (confidence(n) !== null) found.push(["confidence", percent(confidence(n))]);
    if (named("second_choice", n)) found.push(["second choice", named("second_choice", n)]);
    if (!classOf(n).known && named("nearest_known", n)) found.push(["nearest known class", named("nearest_known", n)]);
    if (data.outlier && data.outlier[n]) found.push(["outlier", "looks like none of the classes"]);
    return found;
  }

  // Address of the original file, or null: relative (see links.py), or in the folder the reader named.
  let folder = "";
  const pathOf = (n, skip) => data.ids[n].replace(/#\d+,\d+,\d+,\d+$/, "").split("/").slice(skip).map(encodeURIComponent).join("/");
  function link(n) {
    const number = data.base?.[n] ?? -1;
    if (number < 0) return folder && `${folder}/${pathOf(n, 0)}`;
    const [prefix, skip] = data.bases[number];
    return skip < 0 ? prefix : prefix + pathOf(n, skip);
  }
  function setFolder(path) {
    const parts = path.trim().replaceAll("\\", "/").replace(/\/+$/, "").split("/").filter((part) => part);
    folder = parts.length ? `file:///${parts.map((part) => encodeURIComponent(part).replace("%3A", ":")).join("/")}` : "";
  }

  function paint(element, n) {
    element.className = `thumb sheet-${sheetOf(n)}`;
    element.style.setProperty("--c", n % grid);
    element.style.setProperty("--r", Math.floor(n / grid) % grid);
    element.setAttribute("aria-label", `${data.ids[n]}, ${classOf(n).name}`);
  }

  // A picture that opens the detail view. Without a thumbnail the original is loaded when it scrolls into view.
  function button(n) {
    const made = makeElement("button");
    made.type = "button";
    made.dataset.image = n;
    if (hasThumbnail(n)) {
      paint(made, n);
      return made;
    }
    made.className = "thumb unsampled";
    made.setAttribute("aria-label", `${data.ids[n]}, ${classOf(n).name}`);
    if (link(n)) {
      const picture = made.appendChild(makeElement("img"));
      Object.assign(picture, { loading: "lazy", decoding: "async", alt: "", src: link(n) });
      picture.addEventListener("error", () => picture.remove());
    }
    return made;
  }

  // Sheets as images that a canvas can draw, decoded when first asked for; null until then.
  const sheets = new Map();
  function sheetImage(number, whenReady) {
    if (!sheets.has(number)) {
      const probe = document.body.appendChild(makeElement("span", `thumb sheet-${number} hidden`));
      const image = new Image();
      image.src = getComputedStyle(probe).backgroundImage.slice(5, -2);
      probe.remove();
      sheets.set(number, image);
      image.decode().then(whenReady);
    }
    const image = sheets.get(number);
    return image.complete && image.naturalWidth ? image : null;
  }
  // Draws thumbnail n into a square of a canvas; false while its sheet is being decoded.
  function drawThumbnail(context, n, x, y, size, whenReady) {
    const sheet = sheetImage(sheetOf(n), whenReady);
    if (!sheet) return false;
    const tile = sheet.naturalWidth / grid;
    context.drawImage(sheet, (n % grid) * tile, (Math.floor(n / grid) % grid) * tile, tile, tile, x, y, size, size);
    return true;
  }

  return { data, percent, classOf, hasThumbnail, confidence, fileName, facts, link, setFolder, paint, button, drawThumbnail };
}
