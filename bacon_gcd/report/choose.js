"use strict";
// Two sliders that change nothing but the page, and the commands that make it real.
function makeChoices(images) {
  const { data } = images, picture = images.button;
  const find = (selector) => document.querySelector(selector);
  const count = (n) => `${n.toLocaleString("en")} ${n === 1 ? "image" : "images"}`;

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

  if (find("#cut-number")) cut(find("#cut-number"), data.tree);
  if (find("#side-line")) side(find("#side-line"), data.sides);

  function cut(slider, tree) {
    const now = data.classes.length, nParts = tree.sizes.length;
    // Which class each part belongs to when there are so many classes; a class is named by its first part.
    function classesAt(number) {
      const belongs = tree.sizes.map((_, part) => part);
      for (const [kept, gone] of tree.joins.slice(0, nParts - number)) {
        belongs.forEach((whole, part) => { if (whole === gone) belongs[part] = kept; });
      }
      return belongs;
    }
    const before = classesAt(now);
    const name = (part) => (part < now ? data.classes[part].name : "a new class");
    const total = (belongs, whole) => tree.sizes.reduce((sum, size, part) => sum + (belongs[part] === whole ? size : 0), 0);

    function change(from, to, belongs) {
      const item = makeElement("li", from.length > 1 ? "joined" : "split");
      const examples = makeElement("span", "examples");
      for (const whole of from.length > 1 ? from : to) {
        if (tree.examples[whole] >= 0) examples.append(picture(tree.examples[whole]));
      }
      const list = (all, at) => all.map((whole) => `${name(whole)} (${total(at, whole).toLocaleString("en")})`).join(" + ");
      item.append(examples, makeElement("span", "", `${list(from, before)} → ${list(to, belongs)}`));
      return item;
    }
    function changes(belongs, number) {
      const [coarse, fine] = number < now ? [belongs, before] : [before, belongs];
      const groups = new Map();
      for (const part of new Set(fine)) groups.set(coarse[part], [...(groups.get(coarse[part]) ?? []), part]);
      const several = [...groups].filter(([, parts]) => parts.length > 1);
      return several.map(([whole, parts]) => (number < now ? change(parts, [whole], belongs) : change([whole], parts, belongs)));
    }
    function sizes(belongs) {
      const all = [...new Set(belongs)].map((whole) => [whole, total(belongs, whole)]).sort((a, b) => b[1] - a[1]);
      return all.map(([whole, size]) => {
        const same = whole < now && size === total(before, whole);
        const item = makeElement("li", same ? "" : "changed");
        item.append(makeElement("b", "", name(whole)), ` ${size.toLocaleString("en")}`);
        return item;
      });
    }
    function show() {
      const number = Number(slider.value), belongs = classesAt(number), done = nParts - number;
      const word = number === now ? "as it is" : number < now ? `${now - number} fewer` : `${number - now} more`;
      find("#cut-now").textContent = `${number} classes, ${word}`;
      slider.setAttribute("aria-valuetext", find("#cut-now").textContent);
      for (const stroke of document.querySelectorAll("#tree [data-join]")) {
        stroke.classList.toggle("done", Number(stroke.dataset.join) <= done);
      }
      for (const leaf of document.querySelectorAll("#tree [data-part]")) {
        leaf.classList.toggle("inside", belongs[leaf.dataset.part] !== Number(leaf.dataset.part));
      }
      const line = find("#tree .line"), drawn = Number(line.dataset.width), first = Number(line.dataset.first);
      const at = Math.min(drawn - 0.5, drawn - (done - first) - 0.5);
      line.setAttribute("x1", at);
      line.setAttribute("x2", at);
      find("#cut-changes").replaceChildren(...changes(belongs, number));
      find("#cut-none").hidden = number !== now;
      find("#cut-sizes").replaceChildren(...sizes(belongs));
      find("#cut-command").textContent = command("--classes", number, number);
    }
    slider.addEventListener("input", show);
    show();
  }

  function side(slider, counted) {
    const kinds = (n) => data.classes[data.class_id[n]].known;
    const free = data.known_probability.map((_, n) => n).filter((n) => !data.labeled[n] && data.known_probability[n] !== null);
    function nearest(threshold) {
      const away = (n) => Math.abs(data.known_probability[n] - threshold);
      return free.slice().sort((a, b) => away(a) - away(b)).slice(0, 12).sort((a, b) => data.known_probability[a] - data.known_probability[b]);
    }
    function shot(n, threshold) {
      const figure = makeElement("figure", "shot"), known = data.known_probability[n] >= threshold;
      const moves = known !== kinds(n);
      figure.classList.toggle("moves", moves);
      const share = `${Math.round(100 * data.known_probability[n])}%`;
      figure.append(picture(n), makeElement("figcaption", "", `${share} ${moves ? `becomes ${known ? "known" : "new"}` : known ? "known" : "new"}`));
      return figure;
    }
    function show() {
      const threshold = Number(slider.value), step = Math.round(100 * threshold);
      const nKnown = counted.known_at[step], nNew = counted.known_at[0] - nKnown;
      find("#side-now").textContent = threshold.toFixed(2);
      const moved = `${count(counted.to_new[step])} would become new, ${counted.to_known[step].toLocaleString("en")} known`;
      find("#side-say").textContent = `${nKnown.toLocaleString("en")} known, ${nNew.toLocaleString("en")} new: ${moved}.`;
      slider.setAttribute("aria-valuetext", `${threshold.toFixed(2)}: ${nKnown} known, ${nNew} new`);
      find("#sides").style.setProperty("--line-at", `${100 * threshold}%`);
      find("#side-near").replaceChildren(...nearest(threshold).map((n) => shot(n, threshold)));
      find("#side-command").textContent = command("--threshold", threshold.toFixed(2), `known-${threshold.toFixed(2)}`);
    }
    slider.addEventListener("input", show);
    show();
  }
}
