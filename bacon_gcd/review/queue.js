// Keys and clicks are done one after the other: while the server works on one, the next ones wait and none is lost.
const waiting = [];
let working = false;

// A task is { run } or { key }: a key that waits goes to the dialog that a task before it opened.
export async function enqueue(task) {
  waiting.push(task);
  if (working) return;
  working = true;
  while (waiting.length) {
    try {
      await waiting.shift().run();
    } catch (error) {
      console.error(error); // the others still get their turn
    }
  }
  working = false;
}

// Hand the keys that wait to a dialog that was just opened, as if they were typed there, while it is open.
export function feedWaiting(feed, isOpen) {
  while (waiting.length && waiting[0].key !== undefined && isOpen()) feed(waiting.shift().key);
}
