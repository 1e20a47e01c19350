"use strict";
// Names come from strangers' files: they are set as text, never as HTML. Images and classes go by number.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let theme = null;
  const paint = () => { root.dataset.theme = theme ?? (system.matches ? "dark" : "light"); };
  system.addEventListener("change", paint);
  paint();

  const PAGE = 200; // cards shown at first, and added by "Show more"
  const find = (selector) => document.querySelector(selector);
  let state = { images: [], classes: [], undo: null, title: "" };
  let view = "uncertain"; // or "suspected", "wrong", or the number of a class
  let shown = [];
  let limit = PAGE;
  let framed = null; // number of the image that keys act on
  let last = null; // where a Shift-click begins
  const selected = new Set();
  let busy = false;

  const LISTS = {
    uncertain: ["Most uncertain first", "Images nobody has confirmed, the least sure first.",
      (image) => !image.confirmed && !image.labeled && !image.wrong],
    suspected: ["Suspected label errors", "Labeled images that look like another class.", (image) => image.suggested],
    wrong: ["Marked as wrong", "They are in no class until you move them.", (image) => image.wrong],
  };

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const classOf = (id) => state.classes.find((each) => each.id === id);
  const kind = (each) => (each.known ? "known" : "novel");
  const badge = (each) => make("span", { className: `badge ${kind(each)}`, textContent: each.known ? "known" : "new" });
  const percent = (share) => `${Math.round(100 * share)}%`;

  // Showing

  function members(which) {
    const all = state.images.map((image, number) => ({ image, number }));
    const test = LISTS[which] ? LISTS[which][2] : (image) => image.class === which;
    return all.filter(({ image }) => test(image)).sort((a, b) => a.image.confidence - b.image.confidence || a.number - b.number)
      .map(({ number }) => number);
  }

  function draw() {
    if (!LISTS[view] && !classOf(view)) view = "uncertain";
    shown = members(view);
    for (const number of selected) if (!shown.includes(number)) selected.delete(number);
    document.title = `Review: ${state.title}`;
    find("#title").textContent = state.title;
    drawProgress();
    drawClasses();
    drawView();
    drawBar();
  }

  function drawProgress() {
    const sure = state.images.filter((image) => image.confirmed || image.labeled).length;
    const total = state.images.length;
    find("#progress-bar").style.width = percent(total ? sure / total : 0);
    find("#progress-text").textContent = innerWidth < 900 ? `${sure} / ${total}` : `${sure} of ${total} certain`;
    const undo = find("#undo");
    undo.disabled = state.undo === null;
    undo.textContent = state.undo === null ? "Undo" : `Undo: ${state.undo}`;
  }

  function drawClasses() {
    const lists = Object.entries(LISTS).map(([which, [name]]) => [which, name, members(which).length])
      .filter(([which, , count]) => which === "uncertain" || count);
    const parts = [make("h2", { textContent: "To check" }), ...lists.map(([which, name, count]) => entry(which, "list", name, count))];
    const faces = new Map();
    const counts = new Map();
    state.images.forEach((image, number) => {
      counts.set(image.class, (counts.get(image.class) ?? 0) + 1);
      const best = faces.get(image.class);
      if (best === undefined || image.confidence > state.images[best].confidence) faces.set(image.class, number);
    });
    for (const [title, known] of [["Known classes", true], ["New classes", false]]) {
      const some = state.classes.filter((each) => each.known === known);
      if (some.length) parts.push(make("h2", { textContent: title }));
      for (const each of some) parts.push(entry(each.id, kind(each), each.name, counts.get(each.id) ?? 0, faces.get(each.id), each));
    }
    find("#classes").replaceChildren(...parts);
    find("#classes [aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function entry(which, className, name, count, face, each) {
    const button = make("button", { type: "button", className, title: name });
    if (each) button.append(face === undefined ? make("span") : make("img", { src: `/image/${face}`, alt: "", loading: "lazy" }));
    button.append(make("span", { className: "name", textContent: name }));
    button.append(make("span", { className: "count", textContent: count }));
    button.dataset.view = which;
    button.setAttribute("aria-current", String(which === view));
    button.addEventListener("click", () => show(which));
    return button;
  }

  function show(which) {
    view = which;
    limit = PAGE;
    framed = last = null;
    selected.clear();
    draw();
    scrollTo(0, 0);
  }

  function drawView() {
    const each = classOf(view);
    find("#view-name").replaceChildren(each ? each.name : LISTS[view][0]);
    if (each) find("#view-name").append(badge(each));
    find("#class-actions").hidden = !each;
    find("#view-why").textContent = each
      ? `${shown.length} ${shown.length === 1 ? "image" : "images"}, the least sure first.`
      : shown.length ? LISTS[view][1] : "Nothing is left to check here.";
    if (framed === null || !shown.includes(framed)) framed = shown[0] ?? null;
    find("#grid").replaceChildren(...shown.slice(0, limit).map(card));
    find("#more").hidden = shown.length <= limit;
    find("#more").textContent = `Show more (${shown.length - limit} left)`;
  }

  function card(number) {
    const image = state.images[number];
    const home = classOf(image.class);
    const marks = [];
    if (image.wrong) marks.push(["wrong", "✗ wrong"]);
    else if (image.confirmed) marks.push(["confirmed", "✓ right"]);
    else if (image.suggested) marks.push(["", `${image.suggested}?`]);
    else if (image.labeled) marks.push(["", "labeled"]);
    else if (image.outlier) marks.push(["", "outlier"]);
    const button = make("button", { type: "button", className: `card ${kind(home)}${image.wrong ? " is-wrong" : ""}`, title: image.name },
      make("img", { src: `/image/${number}`, alt: `${image.name}, ${home.name}`, loading: "lazy" }),
      ...marks.map(([className, textContent]) => make("span", { className: `mark ${className}`, textContent })),
      make("span", { className: "caption" },
        make("span", { className: "name", textContent: home.name }),
        make("span", { className: "sure", textContent: percent(image.confidence) })));
    button.dataset.image = number;
    button.tabIndex = number === framed ? 0 : -1;
    button.setAttribute("aria-pressed", String(selected.has(number)));
    button.addEventListener("click", (event) => choose(number, event.shiftKey));
    button.addEventListener("dblclick", () => enlarge(number));
    button.addEventListener("focus", () => frame(number));
    return button;
  }

  const cardOf = (number) => find(`#grid [data-image="${number}"]`);

  function frame(number) {
    const before = cardOf(framed);
    if (before) before.tabIndex = -1;
    framed = number;
    cardOf(number).tabIndex = 0;
    drawBar();
  }

  function choose(number, range) {
    if (range && last !== null && shown.includes(last)) {
      const [from, to] = [shown.indexOf(last), shown.indexOf(number)].sort((a, b) => a - b);
      shown.slice(from, to + 1).forEach((each) => selected.add(each));
    } else if (!selected.delete(number)) selected.add(number);
    last = number;
    mark();
  }

  function mark() {
    for (const element of document.querySelectorAll("#grid .card"))
      element.setAttribute("aria-pressed", String(selected.has(Number(element.dataset.image))));
    drawBar();
  }

  function drawBar() {
    const focused = document.activeElement?.classList.contains("card");
    find("#chosen").textContent = selected.size ? `${selected.size} selected` : focused ? "framed image" : "none selected";
    for (const name of ["confirm", "move", "wrong"]) find(`#${name}`).disabled = targets().length === 0;
    find("#clear").disabled = selected.size === 0;
    find("#all").disabled = shown.length === 0;
  }

  const targets = () => (selected.size ? [...selected].sort((a, b) => a - b)
    : document.activeElement?.classList.contains("card") && framed !== null ? [framed] : []);

  // Editing

  function tell(text) {
    find("#note").textContent = text;
    clearTimeout(tell.timer);
    tell.timer = setTimeout(() => { find("#note").textContent = ""; }, 6000);
  }

  async function request(path, asked) {
    const options = asked && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked) };
    let answer;
    try {
      answer = await fetch(path, options);
    } catch {
      tell("The server does not answer. Start bacon review again; every edit up to here is saved.");
      return null;
    }
    const found = await answer.json().catch(() => ({ error: "Open the address that bacon review printed." }));
    if (!answer.ok) { tell(found.error); return null; }
    return found;
  }

  async function load(path, asked) {
    const found = await request(path, asked);
    if (found !== null) state = found;
    return found !== null;
  }

  async function edit(asked) {
    if (busy) return false; // one edit after the other: a second press must not act on the old state
    busy = true;
    const place = shown.indexOf(framed);
    const hadFocus = document.activeElement?.classList.contains("card");
    const done = await load("/edit", asked);
    busy = false;
    if (!done) return false;
    find("#note").textContent = "";
    if (asked.images) selected.clear();
    draw();
    if (hadFocus && shown.length) {
      const next = shown.includes(framed) && place >= 0 && shown[place] === framed ? Math.min(place + (asked.images ? 1 : 0), shown.length - 1)
        : Math.min(Math.max(place, 0), shown.length - 1);
      cardOf(shown[next])?.focus();
    }
    return true;
  }

  function ask({ title, value = "", classes = [], anyName = false, number = false }) {
    const dialog = find("#ask"), text = find("#ask-text"), list = find("#ask-list");
    find("#ask-title").textContent = title;
    text.type = number ? "number" : "search";
    text.value = value;
    return new Promise((resolve) => {
      let answer = null;
      const finish = (chosen) => { answer = chosen; dialog.close(); };
      const fill = () => {
        const typed = text.value.trim().toLowerCase();
        const found = classes.filter((each) => each.name.toLowerCase().includes(typed))
          .sort((a, b) => (b.name.toLowerCase() === typed) - (a.name.toLowerCase() === typed));
        const options = found.map((each) => {
          const button = make("button", { type: "button", textContent: each.name }, badge(each));
          button.addEventListener("click", () => finish(each.id));
          return button;
        });
        if (classes.length && anyName && typed && !found.some((each) => each.name.toLowerCase() === typed)) {
          const button = make("button", { type: "button", textContent: `New class “${text.value.trim()}”` });
          button.addEventListener("click", () => finish(text.value.trim()));
          options.push(button);
        }
        if (typed) options[0]?.classList.add("first"); // what Enter takes
        list.replaceChildren(...options);
      };
      const accept = () => {
        if (!text.value.trim()) return; // Enter alone must not pick a class by chance
        if (classes.length) list.firstElementChild?.click();
        else finish(text.value.trim());
      };
      text.oninput = fill;
      text.onkeydown = (event) => {
        event.stopPropagation(); // with the dialog closed, this Enter would open the framed image
        if (event.key === "Enter") { event.preventDefault(); accept(); }
      };
      find("#ask-ok").onclick = accept;
      find("#ask-cancel").onclick = () => dialog.close();
      dialog.onclose = () => resolve(answer);
      fill();
      dialog.showModal();
      text.focus();
      text.select();
    });
  }

  const actions = {
    confirm: () => targets().length && edit({ kind: "confirm", images: targets() }),
    wrong: () => targets().length && edit({ kind: "wrong", images: targets() }),
    undo: () => !find("#undo").disabled && edit({ kind: "undo" }),
    async move() {
      const images = targets();
      if (!images.length) return;
      const what = images.length === 1 ? "this image" : `${images.length} images`;
      const others = state.classes.filter((each) => each.id !== view);
      const to = await ask({ title: `Move ${what} to`, classes: others, anyName: true });
      if (to !== null) await edit({ kind: "move", images, to });
    },
    async rename() {
      const each = classOf(view);
      if (!each) return;
      const to = await ask({ title: `Rename ${each.name}`, value: each.raw });
      if (to !== null) await edit({ kind: "rename", class: each.id, to });
    },
    async merge() {
      const each = classOf(view);
      if (!each) return;
      const others = state.classes.filter((other) => other.id !== each.id);
      const to = await ask({ title: `Merge ${each.name} into`, classes: others });
      if (to === null) return;
      view = to;
      if (!await edit({ kind: "merge", classes: [each.id, to], to })) show(each.id);
    },
    async split() {
      const each = classOf(view);
      if (!each) return;
      const parts = await ask({ title: `Split ${each.name} into how many parts?`, value: "2", number: true });
      if (parts !== null) await edit({ kind: "split", class: each.id, parts: Number(parts) });
    },
    all() { shown.slice(0, limit).forEach((number) => selected.add(number)); mark(); },
    clear() { selected.clear(); mark(); },
    learn: () => !find("#learn").disabled && learn("start"),
    help: () => find("#keys").showModal(),
    more() { limit += PAGE; drawView(); },
  };

  // Learning

  const LEARNING = {
    running: () => "Learning from your corrections. This goes on when you close the page.",
    failed: () => "It could not be learned.",
    done: (found) => `The new result is ready: ${found.line}`,
  };
  let closed = ""; // the message that was closed, so that it does not come back by itself

  function drawLearning(found) {
    const running = found.is === "running";
    find("#learn").disabled = running;
    find("#learning").hidden = found.is === "idle" || closed === found.is + found.line;
    find("#learning").className = found.is;
    if (found.is === "idle") return;
    find("#learning-text").textContent = LEARNING[found.is](found);
    find("#learning-line").textContent = found.is === "done" ? `Later: ${found.command}` : found.line || "Starting…";
    find("#learning-stop").hidden = !running;
    find("#learning-open").hidden = found.is !== "done";
    find("#learning-close").hidden = running;
    find("#learning-close").onclick = () => { closed = found.is + found.line; find("#learning").hidden = true; };
    clearTimeout(drawLearning.timer);
    if (running) drawLearning.timer = setTimeout(watchLearning, 700);
  }

  async function watchLearning() {
    const found = await request("/refit");
    if (found !== null) drawLearning(found);
  }

  async function learn(what) {
    closed = "";
    const found = await request("/refit", { do: what });
    if (found === null) return;
    drawLearning(found);
    if (what === "open" && await load("/state")) { view = "uncertain"; show(view); }
  }

  function enlarge(number) {
    const image = state.images[number];
    find("#large-image").src = `/image/${number}?size=large`;
    find("#large-image").alt = find("#large-name").textContent = image.name;
    find("#large-facts").textContent = `${classOf(image.class).name}, ${percent(image.confidence)} sure`;
    find("#large").showModal();
  }

  // Keys

  function step(key) {
    const cards = [...document.querySelectorAll("#grid .card")];
    if (!cards.length) return;
    const at = cards.findIndex((each) => Number(each.dataset.image) === framed);
    if (!cards.includes(document.activeElement)) { cards[Math.max(at, 0)].focus(); return; }
    const columns = Math.max(1, cards.filter((each) => each.offsetTop === cards[0].offsetTop).length);
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
    cards[Math.min(Math.max(at + by, 0), cards.length - 1)].focus();
  }

  function walk(by) {
    const ids = state.classes.map((each) => each.id);
    if (ids.length) show(ids[(ids.indexOf(view) + by + ids.length + (view in LISTS && by < 0 ? 1 : 0)) % ids.length]);
  }

  const KEYS = {
    c: actions.confirm, w: actions.wrong, m: actions.move, r: actions.rename, g: actions.merge, s: actions.split,
    u: actions.undo, l: actions.learn, a: actions.all, Escape: actions.clear, "?": actions.help, n: () => show("uncertain"),
    j: () => walk(1), k: () => walk(-1), x: () => framed !== null && choose(framed, false),
    Enter: () => framed !== null && enlarge(framed),
  };

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key.startsWith("Arrow")) { event.preventDefault(); step(event.key); return; }
    const onCard = document.activeElement?.classList.contains("card");
    if (event.key === "Enter" && !onCard) return;
    const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (action) { event.preventDefault(); action(); }
  }

  document.addEventListener("DOMContentLoaded", async () => {
    find("#theme").addEventListener("click", () => { theme = root.dataset.theme === "dark" ? "light" : "dark"; paint(); });
    for (const [name, action] of Object.entries(actions)) {
      const button = find(`#${name}`);
      // The framed image stays framed while its button is pressed.
      button.addEventListener("mousedown", (event) => event.preventDefault());
      button.addEventListener("click", () => action());
    }
    for (const name of ["large", "keys"]) find(`#${name}-close`).addEventListener("click", () => find(`#${name}`).close());
    document.addEventListener("keydown", pressed);
    document.addEventListener("focusout", () => setTimeout(drawBar));
    for (const what of ["stop", "open"]) find(`#learning-${what}`).addEventListener("click", () => learn(what));
    if (await load("/state")) { draw(); await watchLearning(); }
    root.dataset.ready = "yes";
  });
})();
