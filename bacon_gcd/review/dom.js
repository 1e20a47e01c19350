// Names come from strangers' files: they are set as text, never as HTML.
import { model } from "./model.js";

export const find = (selector) => document.querySelector(selector);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A name that may be broken after its underscores, as nodes; its text stays what it is.
export function breakable(name) {
  return name.split(/(?<=_)(?!_|$)/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));
}

export const kind = (each) => (each.known ? "known" : "novel");
export const badge = (each) => make("span", { className: `badge ${kind(each)}`, textContent: each.known ? "known" : "new" });
export const className = (id) => model.classes.get(id)?.name ?? "";

export function tell(text) {
  find("#note").textContent = text;
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => { find("#note").textContent = ""; }, 8000);
}

export async function request(path, asked) {
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

// Make these the children, touching only what differs.
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const child of wanted) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}
