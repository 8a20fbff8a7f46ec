"use strict";
/* Loaded with resty_django/live.js. It changes nothing except by pressing a button that the user has already pressed. */
{
  const { selectAll } = document.currentScript.dataset;

  /* A check box in the table head selects all rows. */
  const addChoosers = () => {
    for (const head of document.querySelectorAll("th.resty-pick:not(:has(input))")) {
      const box = document.createElement("input");
      box.type = "checkbox";
      box.dataset.restyScript = ""; // live.js keeps it
      box.setAttribute("aria-label", selectAll);
      box.addEventListener("change", () => {
        for (const each of head.closest("table").querySelectorAll("input[name=pick]")) each.checked = box.checked;
      });
      head.append(box);
    }
  };
  addChoosers();
  document.addEventListener("resty:swapped", addChoosers);

  /* Submit the next step of a bulk operation. */
  const steps = document.querySelector("form[data-go-on]");
  if (steps) window.setTimeout(() => steps.requestSubmit(), 200);
}
