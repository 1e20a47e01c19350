"use strict";
// Two sliders that change nothing but the page, and the commands that make it real.
function makeChoices(data, paint) {
  const find = (selector) => document.querySelector(selector);
  const images = (n) => `${n.toLocaleString("en")} ${n === 1 ? "image" : "images"}`;

  // The run is the folder this page lies in. Elsewhere (a server, a mail) nobody knows: RUN.
  function runFolder() {
    if (location.protocol !== "file:") return "RUN";
    const folder = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "");
    return /^\/[A-Za-z]:/.test(folder) ? folder.slice(1) : folder;
  }
  function quoted(word) {
    if (/^[\w./:@%+,-]+$/.test(word)) return word;
    return /^[A-Za-z]:/.test(word) ? `"${word}"` : `'${word.replaceAll("'", "'\\''")}'`;
  }
  const command = (option, value, suffix) =>
    `bacon discover --recut ${quoted(runFolder())} ${option} ${value} -o ${quoted(`${runFolder()}-${suffix}`)}`;

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = find(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(find(button.dataset.copy));
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    });
  }

  function element(tag, name, text) {
    const made = document.createElement(tag);
    made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function picture(n) {
    const button = document.createElement("button");
    button.type = "button";
    paint(button, n);
    button.dataset.image = n;
    return button;
  }

  if (find("#cut-number")) cut(find("#cut-number"), data.tree);
  if (find("#side-line")) side(find("#side-line"), data.sides);

  function cut(slider, tree) {
    const now = data.classes.length, nParts = tree.sizes.length;
    function hearts(number) {
      const heart = tree.sizes.map((_, part) => part);
      for (const [kept, gone] of tree.joins.slice(0, nParts - number)) {
        heart.forEach((h, part) => { if (h === gone) heart[part] = kept; });
      }
      return heart;
    }
    const before = hearts(now);
    const name = (heart) => (heart < now ? data.classes[heart].name : "a new class");
    const total = (heart, whose) => tree.sizes.reduce((sum, size, part) => sum + (heart[part] === whose ? size : 0), 0);

    function change(from, to, heart) {
      const item = element("li", from.length > 1 ? "joined" : "split");
      const faces = element("span", "faces");
      for (const whose of from.length > 1 ? from : to) {
        if (tree.faces[whose] >= 0) faces.append(picture(tree.faces[whose]));
      }
      const list = (all, at) => all.map((whose) => `${name(whose)} (${total(at, whose).toLocaleString("en")})`).join(" + ");
      item.append(faces, element("span", "", `${list(from, before)} → ${list(to, heart)}`));
      return item;
    }
    function changes(heart, number) {
      const [coarse, fine] = number < now ? [heart, before] : [before, heart];
      const groups = Map.groupBy ? Map.groupBy([...new Set(fine)], (f) => coarse[f]) : new Map();
      if (!Map.groupBy) for (const f of new Set(fine)) groups.set(coarse[f], [...(groups.get(coarse[f]) ?? []), f]);
      const several = [...groups].filter(([, parts]) => parts.length > 1);
      return several.map(([whole, parts]) => (number < now ? change(parts, [whole], heart) : change([whole], parts, heart)));
    }
    function sizes(heart) {
      const all = [...new Set(heart)].map((whose) => [whose, total(heart, whose)]).sort((a, b) => b[1] - a[1]);
      return all.map(([whose, size]) => {
        const same = whose < now && size === total(before, whose);
        const item = element("li", same ? "" : "changed");
        item.append(element("b", "", name(whose)), ` ${size.toLocaleString("en")}`);
        return item;
      });
    }
    function show() {
      const number = Number(slider.value), heart = hearts(number), done = nParts - number;
      const word = number === now ? "as it is" : number < now ? `${now - number} fewer` : `${number - now} more`;
      find("#cut-now").textContent = `${number} classes, ${word}`;
      slider.setAttribute("aria-valuetext", find("#cut-now").textContent);
      for (const stroke of document.querySelectorAll("#tree [data-join]")) {
        stroke.classList.toggle("done", Number(stroke.dataset.join) <= done);
      }
      for (const leaf of document.querySelectorAll("#tree [data-part]")) {
        leaf.classList.toggle("inside", heart[leaf.dataset.part] !== Number(leaf.dataset.part));
      }
      const line = find("#tree .line"), drawn = Number(line.dataset.width), first = Number(line.dataset.first);
      const at = Math.min(drawn - 0.5, drawn - (done - first) - 0.5);
      line.setAttribute("x1", at);
      line.setAttribute("x2", at);
      find("#cut-changes").replaceChildren(...changes(heart, number));
      find("#cut-none").hidden = number !== now;
      find("#cut-sizes").replaceChildren(...sizes(heart));
      find("#cut-command").textContent = command("--classes", number, number);
    }
    slider.addEventListener("input", show);
    show();
  }

  function side(slider, counted) {
    const kinds = (n) => data.classes[data.class_id[n]].known;
    const free = data.ids.map((_, n) => n).filter((n) => !data.labeled[n] && data.known_probability[n] !== null);
    function nearest(line) {
      const away = (n) => Math.abs(data.known_probability[n] - line);
      return free.slice().sort((a, b) => away(a) - away(b)).slice(0, 12).sort((a, b) => data.known_probability[a] - data.known_probability[b]);
    }
    function shot(n, line) {
      const figure = element("figure", "shot"), known = data.known_probability[n] >= line;
      const moves = known !== kinds(n);
      figure.classList.toggle("moves", moves);
      const share = `${Math.round(100 * data.known_probability[n])}%`;
      figure.append(picture(n), element("figcaption", "", `${share} ${moves ? `becomes ${known ? "known" : "new"}` : known ? "known" : "new"}`));
      return figure;
    }
    function show() {
      const line = Number(slider.value), step = Math.round(100 * line);
      const nKnown = counted.known_at[step], nNew = counted.known_at[0] - nKnown;
      find("#side-now").textContent = line.toFixed(2);
      const moved = `${images(counted.to_new[step])} would become new, ${counted.to_known[step].toLocaleString("en")} known`;
      find("#side-say").textContent = `${nKnown.toLocaleString("en")} known, ${nNew.toLocaleString("en")} new: ${moved}.`;
      slider.setAttribute("aria-valuetext", `${line.toFixed(2)}: ${nKnown} known, ${nNew} new`);
      find("#sides").style.setProperty("--line-at", `${100 * line}%`);
      find("#side-near").replaceChildren(...nearest(line).map((n) => shot(n, line)));
      find("#side-command").textContent = command("--threshold", line.toFixed(2), `known-${line.toFixed(2)}`);
    }
    slider.addEventListener("input", show);
    show();
  }
}
