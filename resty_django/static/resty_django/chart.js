/* Shows a cursor and the values of a column while the pointer is over a chart. The values come from the tooltips in the
   drawing, which browsers without this script show by themselves. */
"use strict";
(() => {
  let cursor = null;
  let tooltip = null;

  function make(chart, plot) {
    if (!cursor) {
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
      cursor.setAttribute("class", "resty-cursor");
      cursor.dataset.restyScript = ""; // live.js keeps it
      tooltip = document.createElement("div");
      tooltip.className = "resty-tooltip";
      tooltip.dataset.restyScript = "";
      tooltip.setAttribute("role", "status");
    }
    if (cursor.parentNode !== plot) plot.append(cursor);
    if (tooltip.parentNode !== chart) chart.append(tooltip);
  }

  function hide() {
    cursor?.remove();
    tooltip?.remove();
  }

  function show(event) {
    const column = event.target instanceof Element && event.target.closest(".resty-column");
    const chart = column && column.closest(".resty-chart");
    if (!chart) return hide();
    const plot = column.parentNode;
    make(chart, plot);
    const middle = Number(column.getAttribute("x")) + Number(column.getAttribute("width")) / 2;
    cursor.setAttribute("d", `M${middle} 0V${plot.dataset.height}`);
    const title = column.querySelector("title");
    if (title) { // otherwise the browser would show it, too
      column.dataset.text = title.textContent;
      title.remove();
    }
    tooltip.textContent = column.dataset.text;
    const box = chart.getBoundingClientRect();
    const place = column.getBoundingClientRect();
    const left = place.right - box.left + 8;
    const fits = left + tooltip.offsetWidth <= box.width;
    tooltip.style.left = `${Math.max(0, fits ? left : place.left - box.left - tooltip.offsetWidth - 8)}px`;
    tooltip.style.top = `${place.top - box.top + 4}px`;
    return undefined;
  }

  document.addEventListener("pointerover", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
})();
