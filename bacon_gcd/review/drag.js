// Select cards by dragging a rectangle over them.
import { find, make } from "./dom.js";

const FAR = 6; // pixels before a press is a drag

// select(numbers, more): the cards under the rectangle; more: Shift or Ctrl is held, add to the selection.
export function prepareDrag(select) {
  const grid = find("#grid");
  let start = null, band = null, boxes = [];

  const boxOf = (event) => ({
    left: Math.min(start.x, event.pageX), right: Math.max(start.x, event.pageX),
    top: Math.min(start.y, event.pageY), bottom: Math.max(start.y, event.pageY),
  });

  function begin() {
    band = document.body.appendChild(make("div", { id: "band" }));
    boxes = [...grid.querySelectorAll(".card")].map((card) => {
      const box = card.getBoundingClientRect();
      return { number: Number(card.dataset.image), left: box.left + scrollX, right: box.right + scrollX,
        top: box.top + scrollY, bottom: box.bottom + scrollY };
    });
  }

  function move(event) {
    if (!start) return;
    if (!band && Math.hypot(event.pageX - start.x, event.pageY - start.y) < FAR) return;
    if (!band) begin();
    const box = boxOf(event);
    Object.assign(band.style, { left: `${box.left}px`, top: `${box.top}px`, width: `${box.right - box.left}px`, height: `${box.bottom - box.top}px` });
    const under = boxes.filter((each) => each.left < box.right && each.right > box.left && each.top < box.bottom && each.bottom > box.top);
    select(under.map((each) => each.number), start.more);
    const edge = event.clientY < 90 ? -20 : event.clientY > innerHeight - 90 ? 20 : 0;
    if (edge) scrollBy({ top: edge, behavior: "instant" });
  }

  const swallow = (event) => { if (event.isTrusted) { event.stopPropagation(); event.preventDefault(); } };

  function end() {
    if (band) { // the click that ends a drag selects nothing by itself
      band.remove();
      addEventListener("click", swallow, true);
      setTimeout(() => removeEventListener("click", swallow, true)); // it comes at once, if it comes
    }
    start = band = null;
  }

  find("main").addEventListener("pointerdown", (event) => {
    const onControl = event.target.closest("button:not(.card), input, #map, #side");
    if (event.button !== 0 || event.pointerType === "touch" || onControl) return;
    start = { x: event.pageX, y: event.pageY, more: event.shiftKey || event.ctrlKey || event.metaKey };
  });
  find("main").addEventListener("selectstart", (event) => { if (start) event.preventDefault(); });
  grid.addEventListener("dragstart", (event) => event.preventDefault());
  addEventListener("pointermove", move);
  addEventListener("pointerup", end);
}
