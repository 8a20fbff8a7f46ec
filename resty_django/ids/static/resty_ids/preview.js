"use strict";
/* Shows a preview of the rule while the user types. Sends the form by POST; the server does not save it. */
{
  const WAIT = 250; // milliseconds of quiet before a request
  const panel = document.getElementById("resty-preview");
  const result = document.getElementById("resty-preview-result");
  const form = panel?.closest("form");

  if (form && result) {
    let timer = 0;
    let running = null;

    const say = (text) => {
      const line = document.createElement("p");
      line.className = "resty-error";
      line.textContent = text;
      result.replaceChildren(line);
    };

    const ask = async () => {
      running?.abort();
      const turn = (running = new AbortController());
      const body = new FormData(form);
      result.setAttribute("aria-busy", "true");
      try {
        const reply = await fetch(panel.dataset.url, {
          method: "POST",
          body,
          credentials: "same-origin",
          headers: { "X-CSRFToken": String(body.get("csrfmiddlewaretoken") ?? "") },
          signal: turn.signal,
        });
        const text = await reply.text();
        if (turn !== running) return;
        if (!reply.ok || reply.redirected) {
          say(reply.redirected ? panel.dataset.signedOut : panel.dataset.failed.replace("%s", reply.status));
        } else {
          const page = new DOMParser().parseFromString(text, "text/html");
          result.replaceChildren(...page.body.childNodes);
        }
      } catch (error) {
        if (error.name !== "AbortError") say(panel.dataset.down);
      } finally {
        if (turn === running) result.removeAttribute("aria-busy");
      }
    };

    const soon = () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(ask, WAIT);
    };

    form.addEventListener("input", soon);
    form.addEventListener("change", soon);
    const kind = form.elements.namedItem("kind");
    const source = form.elements.namedItem("source");
    const fit = () => { source.rows = kind.value === "lua" ? 18 : 3; };
    if (kind && source) kind.addEventListener("change", fit);
    const button = document.getElementById("resty-preview-button");
    if (button) button.hidden = true;
  }
}
