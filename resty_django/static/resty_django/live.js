/* Keeps parts of a page fresh: each element with an id and data-resty-live="<seconds>" is replaced by its like from the
   same address. Rests while the tab is hidden or the button says so, and a part
   while something in it is chosen or typed. Without this script the page is as it was loaded. */
"use strict";
(() => {
  const LONGEST = 120;
  let running = true;
  let failures = 0;
  let timer = 0;

  const parts = () => document.querySelectorAll("[id][data-resty-live]");
  const seconds = () => Math.min(...[...parts()].map((part) => Number(part.dataset.restyLive) || 10));

  function swap(fresh) {
    for (const old of parts()) {
      const next = fresh.getElementById(old.id);
      if (!next || old.querySelector("input:checked, input:focus, select:focus, textarea:focus")) continue;
      const active = old.contains(document.activeElement) ? document.activeElement : null;
      const open = [...old.querySelectorAll("details")].map((one) => one.open);
      const place = active && [...old.querySelectorAll("a, button, summary, [tabindex]")].indexOf(active);
      old.replaceChildren(...next.childNodes);
      [...old.querySelectorAll("details")].forEach((one, at) => { one.open = open[at] || false; });
      if (active) old.querySelectorAll("a, button, summary, [tabindex]")[place]?.focus({ preventScroll: true });
    }
    document.dispatchEvent(new Event("resty:swapped"));
  }

  async function look() {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) throw new Error(answer.statusText);
      swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
      failures = 0;
    } catch {
      failures += 1;
    }
    plan();
  }

  function plan() {
    clearTimeout(timer);
    if (running && !document.hidden && parts().length) {
      timer = setTimeout(look, 1000 * Math.min(LONGEST, seconds() * 2 ** failures));
    }
  }

  function button() {
    const made = document.createElement("button");
    const text = document.createElement("span");
    made.type = "button";
    made.className = "button resty-live";
    made.append(text);
    const say = () => {
      text.textContent = running ? made.dataset.stop : made.dataset.go;
    };
    Object.assign(made.dataset, { stop: parts()[0].dataset.restyStop || "Stop reloading", go: parts()[0].dataset.restyGo || "Resume" });
    made.addEventListener("click", () => {
      running = !running;
      say();
      plan();
    });
    say();
    return made;
  }

  document.addEventListener("DOMContentLoaded", () => {
    const first = parts()[0];
    if (!first) return;
    first.before(button());
    document.addEventListener("visibilitychange", plan);
    plan();
  });
})();
