"use strict";
// Keeps open pages up to date, copies stream cuts, zooms pictures, finds the cut at a place in one. Without it, pages are as they were when loaded.
(() => {
  const main = document.querySelector("main[data-live]");
  const state = document.getElementById("state");
  const waiting = new Map();
  let source = null;
  let zoom = 1;
  let pinned = null; // the time (ms) of the chosen place

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
      if (name === "picture") drawPin();
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
  // --- places in a picture -------------------------------------------------------------------------------------------
  const places = document.getElementById("place-tools");
  const slider = document.getElementById("place");
  const pin = document.getElementById("pin");
  const found = document.getElementById("place-cut");
  let asking = 0;

  const svg = () => document.querySelector("#part-picture svg[data-axis]");
  // Where epochs begin, and the end: between these, time is linear in x.
  const knots = () => svg().dataset.axis.split(" ").map((knot) => {
    const [x, time, epoch] = knot.split(":").map(Number);
    return { x, time, epoch };
  });
  const between = (from, to, value) => {
    const known = knots();
    const limited = Math.min(Math.max(value, known[0][from]), known[known.length - 1][from]);
    let place = known.findIndex((knot) => knot[from] > limited) - 1;
    if (place < 0) place = Math.max(known.length - 2, 0);
    const [low, high] = [known[place], known[Math.min(place + 1, known.length - 1)]];
    const share = (limited - low[from]) / (high[from] - low[from] || 1);
    return { value: low[to] + share * (high[to] - low[to]), epoch: low.epoch };
  };
  const label = (time, epoch) => new Date(time).toISOString().replace("T", " ").replace("Z", " UTC") + ", epoch " + epoch;
  const say = (text) => { document.getElementById("place-time").textContent = text; };
  const drawPin = () => {
    const picture = svg();
    if (pinned === null || !picture) return;
    const box = picture.viewBox.baseVal;
    pin.style.left = (100 * between("time", "x", pinned).value) / box.width + "%";
    pin.style.top = 6200 / box.height + "%"; // between the epochs' numbers and the axis
    pin.style.height = 32000 / box.height + "%";
    pin.hidden = false;
  };
  const ask = async () => {
    const number = ++asking;
    const time = pinned;
    let answer;
    try {
      const response = await fetch(places.dataset.cut + "?time=" + Math.round(time));
      answer = await response.json();
      if (!response.ok) throw new Error(answer.message);
    } catch (error) {
      if (number === asking) say(error.message);
      return;
    }
    if (number !== asking) return;
    found.querySelector("code").textContent = answer.streamCut;
    found.querySelector("button").dataset.copy = answer.streamCut;
    found.querySelector("a").href = places.dataset.events + "?at=" + encodeURIComponent(answer.streamCut) + "#events";
    found.querySelector("span").textContent = Object.entries(answer.positions).map(([segment, offset]) => segment % 2 ** 32 + "." + Math.floor(segment / 2 ** 32) + " at " + Number(offset).toLocaleString("en")).join(", ");
    found.hidden = false;
  };
  let pause = 0;
  const choose = (x) => {
    const { value, epoch } = between("x", "time", x);
    pinned = value;
    say(label(value, epoch));
    drawPin();
    clearTimeout(pause);
    pause = setTimeout(ask, 250);
  };
  const pointed = (event) => {
    const box = svg().getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * svg().viewBox.baseVal.width;
  };
  if (places && svg()) {
    places.hidden = false;
    slider.addEventListener("input", () => {
      const known = knots();
      const [first, last] = [known[0].x, known[known.length - 1].x];
      choose(first + ((last - first) * slider.value) / 1000);
    });
    document.getElementById("part-picture").addEventListener("pointermove", (event) => {
      const { value, epoch } = between("x", "time", pointed(event));
      if (event.pointerType === "mouse") say(label(value, epoch));
    });
    document.getElementById("part-picture").addEventListener("click", (event) => {
      const x = pointed(event);
      const known = knots();
      const [first, last] = [known[0].x, known[known.length - 1].x];
      slider.value = String((1000 * (x - first)) / (last - first || 1));
      choose(x);
    });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button);
    if (button.dataset.zoom) {
      zoom = Math.min(Math.max(button.dataset.zoom === "in" ? zoom * 1.5 : zoom / 1.5, 1), 12);
      document.querySelector(".canvas").style.setProperty("--zoom", String(zoom));
      state.textContent = "zoom " + Math.round(zoom * 100) + " %";
    }
  });
})();
