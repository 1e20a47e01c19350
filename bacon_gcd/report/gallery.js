"use strict";
// The classes: their order, a search, and all images of a class page by page.
function makeGallery(images) {
  const { data } = images;
  const PER_PAGE = 48;
  const list = document.querySelector("#class-list");
  if (!list) return;
  const articles = [...list.children];

  // Order and search.
  const orders = {
    doubt: (a, b) => a.dataset.rank - b.dataset.rank,
    size: (a, b) => b.dataset.size - a.dataset.size,
    name: (a, b) => a.dataset.name.localeCompare(b.dataset.name),
    new: (a, b) => b.classList.contains("novel") - a.classList.contains("novel") || a.dataset.rank - b.dataset.rank,
  };
  document.querySelector("#order")?.addEventListener("change", (event) => {
    list.append(...articles.sort(orders[event.target.value]));
  });
  document.querySelector("#find")?.addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const article of articles) article.hidden = !article.dataset.name.includes(wanted);
  });

  // All images of a class; the numbers are collected when a class is first opened.
  let members = null;
  function membersOf(classId) {
    if (!members) {
      members = data.classes.map(() => []);
      data.class_id.forEach((c, n) => members[c].push(n));
    }
    return members[classId];
  }
  const sure = (n) => images.confidence(n) ?? -1;
  const imageOrders = {
    doubtful: ["least sure first", (a, b) => sure(a) - sure(b)],
    sure: ["surest first", (a, b) => sure(b) - sure(a)],
    name: ["by file name", (a, b) => (data.ids[a] < data.ids[b] ? -1 : 1)],
  };

  function shot(n) {
    const figure = makeElement("figure", "shot"), caption = makeElement("figcaption");
    const link = images.link(n), name = makeElement(link ? "a" : "span", "file", images.fileName(n));
    name.title = data.ids[n];
    if (link) Object.assign(name, { href: link, target: "_blank", rel: "noopener" });
    const told = data.labeled[n] ? "labeled" : images.confidence(n) === null ? "" : images.percent(images.confidence(n));
    caption.append(...(told ? [`${told} `] : []), name);
    figure.append(images.button(n), caption);
    return figure;
  }

  // Buttons and a number to turn pages; `go` is called with the page, counted from 0.
  function makePager(nPages, go) {
    const bar = makeElement("span", "pager"), position = makeElement("input");
    let page = 0;
    const turn = (text, label, by) => {
      const button = makeElement("button", "", text);
      button.type = "button";
      button.setAttribute("aria-label", label);
      button.addEventListener("click", () => show(page + by));
      return button;
    };
    const back = turn("←", "Page before", -1), on = turn("→", "Next page", 1);
    function show(to) {
      page = Math.min(nPages - 1, Math.max(0, to || 0));
      position.value = page + 1;
      back.disabled = page === 0;
      on.disabled = page === nPages - 1;
      go(page);
    }
    Object.assign(position, { type: "number", min: 1, max: nPages });
    position.setAttribute("aria-label", "Page");
    position.addEventListener("change", () => show(Number(position.value) - 1));
    bar.append(back, position, makeElement("span", "quiet", `of ${nPages.toLocaleString("en")}`), on);
    bar.hidden = nPages < 2;
    return { bar, show };
  }

  function makeOrder(change) {
    const order = makeElement("select");
    for (const [value, [text]] of Object.entries(imageOrders)) {
      if (data.confidence || value === "name") order.append(new Option(text, value));
    }
    order.setAttribute("aria-label", "Order of the images");
    order.addEventListener("change", change);
    return order;
  }

  function showPages(box, classId) {
    const numbers = membersOf(classId).slice(), shots = makeElement("div", "shots named"), controls = makeElement("div", "controls");
    const pager = makePager(Math.max(1, Math.ceil(numbers.length / PER_PAGE)), (page) => {
      shots.replaceChildren(...numbers.slice(page * PER_PAGE, (page + 1) * PER_PAGE).map(shot));
    });
    const order = makeOrder(sort);
    function sort() {
      numbers.sort(imageOrders[order.value][1]);
      pager.show(0);
    }
    controls.append(order, pager.bar);
    const missing = data.classes[classId].size - numbers.length;
    if (missing > 0) controls.append(makeElement("span", "quiet", `${missing.toLocaleString("en")} more are in the predictions file beside this page`));
    box.replaceChildren(controls, shots);
    sort();
  }

  list.addEventListener("click", (event) => {
    const button = event.target.closest("[data-all]");
    if (!button) return;
    const article = button.closest("article"), box = article.querySelector(".pages");
    box.hidden = !box.hidden;
    article.classList.toggle("open", !box.hidden);
    button.setAttribute("aria-expanded", String(!box.hidden));
    if (!box.hidden) showPages(box, Number(button.dataset.all));
    else box.replaceChildren();
  });
}
