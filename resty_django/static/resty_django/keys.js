"use strict";
/* Keyboard shortcuts for lists: j and k move, x selects, Enter opens, / searches, ? shows the help. They move the focus,
   so that Enter, Tab and screen readers work as usual. The dialog, with all texts, comes from the page; there, a user can
   turn the shortcuts off. Nothing is sent to the server. */
{
  const ROWS = ".resty-list tbody tr, .resty-all-limits tbody tr, #result_list tbody tr";
  const STORED = "resty_django.keys";
  const dialog = document.querySelector("dialog.resty-keys-help");
  const button = document.querySelector("button.resty-keys-button");
  const choice = dialog?.querySelector("input[type=checkbox]");

  const stored = () => {
    try {
      return window.localStorage.getItem(STORED);
    } catch {
      return null; // storage is disabled
    }
  };
  const isTyping = (target) => target.isContentEditable || target.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=submit], [type=button])");
  const rowOf = (element) => element.closest(ROWS);

  const focusRow = (row) => {
    if (!row) return;
    const target = row.querySelector("th a[href], td a[href]") || row;
    if (target === row) row.tabIndex = -1;
    target.focus();
    row.scrollIntoView({ block: "nearest" });
  };
  const move = (step) => {
    const rows = [...document.querySelectorAll(ROWS)];
    const index = rows.indexOf(rowOf(document.activeElement));
    if (index < 0) focusRow(rows.at(step > 0 ? 0 : -1));
    else focusRow(rows[index + step]);
  };
  const search = () => {
    const field = document.querySelector("#resty-find, #searchbar, #content input[type=search], .resty-searches input:not([type=hidden], [type=submit])");
    field?.focus();
    field?.select();
  };
  const actions = {
    j: () => move(1),
    k: () => move(-1),
    x: () => rowOf(document.activeElement)?.querySelector("input[type=checkbox]")?.click(),
    "/": search,
    "?": () => dialog.showModal(),
  };

  if (dialog && button && choice) {
    choice.checked = stored() !== "off";
    choice.addEventListener("change", () => {
      try {
        window.localStorage.setItem(STORED, choice.checked ? "on" : "off");
      } catch {
        // the choice lasts as long as the page
      }
    });
    button.hidden = false;
    button.addEventListener("click", () => dialog.showModal());
    document.addEventListener("keydown", (event) => {
      if (!choice.checked || dialog.open || event.defaultPrevented || event.isComposing) return;
      if (event.ctrlKey || event.altKey || event.metaKey || isTyping(event.target)) return;
      const action = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
      if (!action) return;
      event.preventDefault();
      action();
    });
  }
}
