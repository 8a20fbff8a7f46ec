"use strict";
/* Shows the buttons that copy a text of the page, and copies it. Where the clipboard is not available, for example
   without HTTPS, the text is selected. Without this script the text can be selected by hand. */
{
  const select = (source) => {
    for (let folded = source.closest("details:not([open])"); folded; folded = source.closest("details:not([open])")) {
      folded.open = true;
    }
    window.getSelection().selectAllChildren(source);
  };

  for (const button of document.querySelectorAll("button[data-resty-copy]")) {
    const source = document.getElementById(button.dataset.restyCopy);
    const report = button.parentElement.querySelector("[role=status]");
    if (!source) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      let copied = false;
      try {
        await navigator.clipboard.writeText(source.textContent);
        copied = true;
      } catch {
        select(source);
        copied = document.execCommand("copy");
      }
      if (report) report.textContent = copied ? button.dataset.restyCopied : button.dataset.restySelected;
    });
  }
}
