// "Learn from my corrections": the refit, and how it goes.
import { find, request } from "./dom.js";

const TEXT = {
  running: () => "Learning from your corrections. This goes on when you close the page.",
  failed: () => "It could not be learned.",
  done: (found) => `The new result is ready: ${found.line}`,
};
let closed = ""; // the message that was closed, so that it does not come back by itself
let timer = 0;

function draw(found) {
  const running = found.is === "running";
  find("#learn").disabled = running;
  find("#learning").hidden = found.is === "idle" || closed === found.is + found.line;
  find("#learning").className = found.is;
  clearTimeout(timer);
  if (running) timer = setTimeout(watchLearning, 700);
  if (found.is === "idle") return;
  find("#learning-text").textContent = TEXT[found.is](found);
  find("#learning-line").textContent = found.is === "done" ? `Later: ${found.command}` : found.line || "Starting…";
  find("#learning-stop").hidden = !running;
  find("#learning-open").hidden = found.is !== "done";
  find("#learning-close").hidden = running;
  find("#learning-close").onclick = () => { closed = found.is + found.line; find("#learning").hidden = true; };
}

export async function watchLearning() {
  const found = await request("/refit");
  if (found !== null) draw(found);
}

export async function learn(what) {
  closed = "";
  const found = await request("/refit", { do: what });
  if (found !== null) draw(found);
  return found !== null;
}
