/* Keeps parts of a page fresh: each element with an id and data-resty-live="<seconds>" is patched to look like the one
   in a new copy of the page, so that focus, selected text, check boxes and scroll position survive. The status element
   of admin/resty_django/live.html names more parts, and contains the texts. Pauses while the tab is hidden or after the
   user has stopped it. Without this script the page stays as it was loaded. */
"use strict";
(() => {
  const MAX_RETRY_SECONDS = 120; // between two attempts while the server fails
  const TIMEOUT_SECONDS = 20; // until an attempt counts as failed
  let running = true;
  let failures = 0;
  let timer = 0;
  let version = "";
  let fetching = false;
  let signedOut = false;
  let updated = Date.now();
  let button = null;
  let age = null;

  const status = () => document.querySelector(".resty-live-status");
  const selector = () => ["[id][data-resty-live]", status()?.dataset.restyParts].filter(Boolean).join(", ");
  const parts = () => [...document.querySelectorAll(selector())];
  const seconds = () => Math.min(...parts().map((part) => Number(part.dataset.restyLive || status()?.dataset.restyEvery) || 10));
  /* Pages without the status element have English texts. */
  const text = (name, fallback) => status()?.dataset[name] || fallback;

  /* --- patching ------------------------------------------------------------------------------------------------- */

  const isOurs = (node) => node.nodeType === Node.ELEMENT_NODE && "restyScript" in node.dataset;

  function keyOf(node) {
    if (node.nodeType !== Node.ELEMENT_NODE) return "";
    if (node.id) return node.id;
    return node.nodeName === "TR" ? node.querySelector("a[href]")?.getAttribute("href") || "" : "";
  }

  const isSelected = (node) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(node, true);
  };

  /* Keep what the user has opened, typed or chosen. */
  const isUsers = (node, name) =>
    (node.nodeName === "DETAILS" && name === "open") ||
    (node.nodeName === "INPUT" && node.type !== "hidden" && ["value", "checked"].includes(name)) ||
    (node.nodeName === "OPTION" && name === "selected") ||
    ("restyCopy" in node.dataset && name === "hidden");

  function patch(old, next) {
    if (old.isEqualNode(next)) return;
    for (const { name } of [...old.attributes]) {
      if (!next.hasAttribute(name) && !isUsers(old, name)) old.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (old.getAttribute(name) !== value && !isUsers(old, name)) old.setAttribute(name, value);
    }
    if (old.nodeName !== "TEXTAREA") patchChildren(old, next);
  }

  function patchChildren(old, next) {
    const keyed = new Map([...old.children].map((child) => [keyOf(child), child]).filter(([key]) => key));
    let cursor = old.firstChild;
    for (const child of next.childNodes) {
      while (cursor && isOurs(cursor)) cursor = cursor.nextSibling;
      const key = keyOf(child);
      let match = key ? keyed.get(key) : cursor;
      if (match && (match.nodeType !== child.nodeType || match.nodeName !== child.nodeName)) match = null;
      if (match && !key && keyOf(match)) match = null;
      if (!match) {
        old.insertBefore(document.importNode(child, true), cursor);
        continue;
      }
      keyed.delete(key);
      if (match === cursor) cursor = cursor.nextSibling;
      else old.insertBefore(match, cursor);
      if (child.nodeType === Node.ELEMENT_NODE) patch(match, child);
      else if (match.data !== child.data && !isSelected(match)) match.data = child.data;
    }
    while (cursor) {
      const rest = cursor.nextSibling;
      if (!isOurs(cursor)) cursor.remove();
      cursor = rest;
    }
  }

  function update(fresh) {
    const active = document.activeElement;
    for (const old of parts()) {
      const next = old.id && fresh.getElementById(old.id);
      if (next) patch(old, next);
    }
    if (active !== document.activeElement && active?.isConnected) active.focus({ preventScroll: true });
    document.dispatchEvent(new Event("resty:swapped"));
  }

  /* --- requests ------------------------------------------------------------------------------------------------- */

  async function look() {
    fetching = true;
    try {
      const response = await fetch(location.href, {
        cache: "no-store",
        credentials: "same-origin",
        headers: { Accept: "text/html", "X-Resty-Live": "1", ...(version && { "If-None-Match": version }) },
        redirect: "manual",
        signal: AbortSignal.timeout(1000 * TIMEOUT_SECONDS),
      });
      signedOut = response.type === "opaqueredirect" || response.status === 403;
      if (response.status !== 304) {
        if (!response.ok) throw new Error(response.statusText);
        update(new DOMParser().parseFromString(await response.text(), "text/html"));
        version = response.headers.get("ETag") || "";
      }
      failures = 0;
      updated = Date.now();
    } catch {
      failures += 1;
    }
    fetching = false;
    plan();
    say();
  }

  function plan() {
    clearTimeout(timer);
    if (fetching || !running || document.hidden || !parts().length) return;
    const wait = 1000 * Math.min(MAX_RETRY_SECONDS, seconds() * 2 ** failures);
    timer = setTimeout(look, failures ? wait : Math.max(0, updated + wait - Date.now()));
  }

  /* --- the status ----------------------------------------------------------------------------------------------- */

  function timePassed() {
    const passed = Math.max(0, Math.round((Date.now() - updated) / 1000));
    const units = text("restyUnits", "s min h").split(" ");
    const step = passed < 60 ? 0 : passed < 3600 ? 1 : 2;
    return `${Math.floor(passed / 60 ** step)} ${units[step]}`;
  }

  function say() {
    const stale = failures > 0 || signedOut;
    const pattern = signedOut
      ? text("restySignedOut", "Not updated: you are logged out, or may not see this page any more. Last update: %s ago")
      : stale
        ? text("restyDown", "Not updated: the server does not respond. Last update: %s ago")
        : text("restyUpdated", "Updated %s ago");
    button.textContent = running ? text("restyStop", "Stop live updates") : text("restyGo", "Start live updates");
    age.textContent = pattern.replace("%s", timePassed());
    age.classList.toggle("resty-alarm", stale);
    for (const part of parts()) part.toggleAttribute("data-resty-stale", stale);
  }

  function start() {
    const first = parts()[0];
    if (!first || button) return;
    const bar = document.createElement("div");
    bar.className = "resty-live-bar";
    bar.dataset.restyScript = "";
    age = document.createElement("span");
    age.className = "resty-quiet resty-live-age";
    button = document.createElement("button");
    button.type = "button";
    button.className = "button resty-quiet-button resty-live";
    button.addEventListener("click", () => {
      running = !running;
      say();
      plan();
    });
    bar.append(age, button);
    (status() || first).before(bar);
    setInterval(() => document.hidden || say(), 1000);
    document.addEventListener("visibilitychange", plan);
    say();
    plan();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
