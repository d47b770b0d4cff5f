"use strict";
// Keeps open pages up to date, copies stream cuts, zooms pictures. Without it, pages are as they were when loaded.
(() => {
  const main = document.querySelector("main[data-live]");
  const state = document.getElementById("state");
  const waiting = new Map();
  let source = null;
  let zoom = 1;

  const busy = (part) => {
    const selection = document.getSelection();
    const selected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return selected || (part.contains(document.activeElement) && document.activeElement !== part);
  };
  // All of it is made by the server's templates, which escape what comes from streams.
  const show = () => {
    for (const [name, html] of waiting) {
      const part = document.getElementById("part-" + name);
      if (!part || busy(part)) continue;
      const left = part.scrollLeft;
      part.innerHTML = html;
      part.scrollLeft = left;
      waiting.delete(name);
    }
  };
  const open = () => {
    source = new EventSource(main.dataset.live);
    source.onopen = () => { state.textContent = "live"; };
    source.onmessage = (message) => {
      for (const [name, html] of Object.entries(JSON.parse(message.data))) waiting.set(name, html);
      state.textContent = "live";
      show();
    };
    source.onerror = () => { state.textContent = "not live: the server does not answer, trying again"; };
  };
  const follow = () => {
    if (document.hidden && source) { source.close(); source = null; }
    if (!document.hidden && !source) open();
  };
  if (main) {
    document.addEventListener("visibilitychange", follow);
    document.addEventListener("focusout", () => setTimeout(show, 0));
    follow();
  }

  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("code"));
      document.getSelection().removeAllRanges();
      document.getSelection().addRange(range);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button);
    if (button.dataset.zoom) {
      zoom = Math.min(Math.max(button.dataset.zoom === "in" ? zoom * 1.5 : zoom / 1.5, 1), 12);
      const picture = document.getElementById("part-picture");
      picture.style.setProperty("--zoom", String(zoom));
      state.textContent = "zoom " + Math.round(zoom * 100) + " %";
    }
  });
})();
