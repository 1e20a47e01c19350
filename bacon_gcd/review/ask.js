// The dialog that asks for a class, a name or a number.
import { badge, find, make } from "./dom.js";
import { feedWaiting } from "./queue.js";

// proposed: [name, confidence] that may be chosen instead of typing one.
export function ask({ title, value = "", classes = [], anyName = false, number = false, proposed = [] }) {
  const dialog = find("#ask"), text = find("#ask-text"), list = find("#ask-list");
  find("#ask-title").textContent = title;
  text.inputMode = number ? "numeric" : "text";
  text.value = value;
  return new Promise((resolve) => {
    let answer = null;
    const finish = (chosen) => { answer = chosen; dialog.close(); };
    const option = (content, chosen, ...more) => {
      const button = make("button", { type: "button", textContent: content }, ...more);
      button.addEventListener("click", () => finish(chosen));
      return button;
    };
    const fill = () => {
      const typed = text.value.trim().toLowerCase();
      const same = (each) => each.name.toLowerCase() === typed;
      const found = classes.filter((each) => each.name.toLowerCase().includes(typed)).sort((a, b) => same(b) - same(a));
      const options = found.map((each) => option(each.name, each.id, badge(each)));
      if (classes.length && anyName && typed && !found.some(same))
        options.push(option(`New class “${text.value.trim()}”`, text.value.trim()));
      for (const [name, sure] of proposed)
        options.push(option(name, name, make("span", { className: "quiet", textContent: ` proposed, ${Math.round(100 * sure)} %` })));
      if (typed && classes.length) options[0]?.classList.add("first"); // what Enter takes
      list.replaceChildren(...options);
    };
    const accept = () => {
      if (!text.value.trim()) return; // Enter alone must not pick a class by chance
      if (classes.length) list.firstElementChild?.click();
      else finish(text.value.trim());
    };
    const type = (key) => { // a key that was pressed before the dialog was there
      if (key === "Enter") accept();
      else if (key === "Escape") dialog.close();
      else if (key === "Backspace") text.value = text.value.slice(0, -1);
      else if (key.length === 1) text.setRangeText(key, text.selectionStart, text.selectionEnd, "end");
      fill();
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
    feedWaiting(type, () => dialog.open);
  });
}
