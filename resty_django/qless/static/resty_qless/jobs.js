"use strict";
/* Beside resty_django/live.js. Nothing is changed by it but by pressing a button for the user who pressed it before. */
{
  /* A check box in the head of a table chooses all of its rows. */
  const addChoosers = () => {
    for (const head of document.querySelectorAll("th.resty-pick:not(:has(input))")) {
      const box = document.createElement("input");
      box.type = "checkbox";
      box.setAttribute("aria-label", "Choose all rows of this page");
      box.addEventListener("change", () => {
        for (const each of head.closest("table").querySelectorAll("input[name=pick]")) each.checked = box.checked;
      });
      head.append(box);
    }
  };
  addChoosers();
  document.addEventListener("resty:swapped", addChoosers);

  /* The next step of what is done to many jobs. */
  const steps = document.querySelector("form[data-go-on]");
  if (steps) window.setTimeout(() => steps.requestSubmit(), 200);
}
