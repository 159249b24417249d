// Keeps the parts of the page that are marked data-live up to date. Without this script the page is as it was made.
// The server escapes everything; what comes by the stream is put in place as it is.
"use strict";

const pill = document.getElementById("live");
const button = document.getElementById("pause");
const parts = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id.slice("part-".length), part]));
let stream = null;
let waiting = null;
let lastHeard = performance.now();
let state = "connecting";

function say() {
  const age = Math.round((performance.now() - lastHeard) / 1000);
  const words = {
    live: "Live",
    connecting: "Connecting",
    paused: "Paused",
    lost: `Console lost ${age} s ago, trying again`,
  };
  if (state === "live" && age >= 5) state = "lost";
  pill.dataset.state = state;
  if (pill.textContent !== words[state]) pill.textContent = words[state];
}

function isSelectedIn(part) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode);
}

// Replacing a part must not take away the focus, an opened box, or how far a table was scrolled.
function put(name, html) {
  const part = parts.get(name);
  if (part === undefined || isSelectedIn(part)) return part === undefined;
  const held = part.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = [...part.querySelectorAll("[data-scroll]")].map((box) => box.scrollLeft);
  part.innerHTML = html;
  part.querySelectorAll("[data-scroll]").forEach((box, at) => { box.scrollLeft = scrolled[at] ?? 0; });
  if (held !== undefined) part.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
  return true;
}

function take(event) {
  const news = JSON.parse(event.data);
  lastHeard = performance.now();
  state = "live";
  waiting = { title: news.title, parts: { ...waiting?.parts, ...news.parts } };
  for (const [name, html] of Object.entries(waiting.parts)) if (put(name, html)) delete waiting.parts[name];
  document.title = `${document.querySelector("#verdict.bad, #verdict.warn") === null ? "" : "! "}${news.title} - Strandline console`;
  say();
}

function open() {
  stream = new EventSource(`/live${location.pathname}${location.search}`);
  stream.onmessage = take;
  stream.onerror = () => {
    if (state !== "paused") state = "lost";
    say();
    // A refusal closes a stream for good; ask again later.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (state !== "paused") open(); }, 3000);
  };
}

function close() {
  stream?.close();
  stream = null;
}

button.hidden = false;
button.addEventListener("click", () => {
  if (state === "paused") {
    state = "connecting";
    button.textContent = "Pause";
    open();
  } else {
    state = "paused";
    button.textContent = "Go on";
    close();
  }
  say();
});
// A page that nobody sees needs no stream; it catches up when it is seen again.
document.addEventListener("visibilitychange", () => {
  if (state === "paused") return;
  close();
  if (!document.hidden) open();
});
addEventListener("pagehide", close);
addEventListener("pageshow", (event) => { if (event.persisted && state !== "paused") open(); });
for (const select of document.querySelectorAll(".filter select")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}
setInterval(say, 1000);
open();
say();
