/* Returns what is wrong with the layout of a page: wider than the window, content cut off, links covered, labels outside of
   their chart, words broken in the middle, tables cut at 1280 px, or scrolling without a hint or out of the keyboard's reach.
   Tokens of more than 24 characters, such as keys, may break anywhere. */
async () => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); // for what depends on scrolling
  const problems = [], page = document.scrollingElement, content = document.querySelector("#content") ?? document.querySelector("main");
  const name = (node) => `${node.tagName.toLowerCase()}${node.id ? "#" + node.id : ""}.${[...node.classList].join(".")}`;
  const scrolls = (node) => ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
  const outside = (box) => getComputedStyle(document.documentElement).direction === "rtl" ? box.left < -1 : box.right > innerWidth + 1;
  const contained = (node) => {
    for (let outer = node.parentElement; outer && !outer.matches("#container, body"); outer = outer.parentElement)
      if (!outer.matches("#main, .main, .content, #content") && getComputedStyle(outer).overflowX !== "visible") return true;
    return false;
  };
  const wide = [page, ...document.querySelectorAll("#container, #main, .main, .content, #content, #content-main")]
    .filter((node) => node.scrollWidth > node.clientWidth + 1 && (node === page || scrolls(node) || node.matches("#content-main")));
  if (page.scrollWidth > innerWidth || wide.length) {
    const widest = [...document.querySelectorAll("body *")]
      .filter((node) => node.getClientRects().length && !contained(node) && outside(node.getBoundingClientRect()))
      .filter((node, _, all) => !all.some((inner) => inner !== node && node.contains(inner)));
    /* A width of which no element is the cause cuts nothing off. */
    if (widest.length) problems.push(`is ${Math.max(page.scrollWidth, ...wide.map((node) => node.scrollWidth))} px wide: ${widest.slice(0, 4).map(name).join(", ")}`);
  }
  for (const node of content.querySelectorAll("*")) {
    if (node.closest("svg, input, select, .resty-hidden, .visually-hidden") || node.clientWidth <= 1 || !["hidden", "clip"].includes(getComputedStyle(node).overflowX)) continue;
    if (node.scrollWidth > node.clientWidth + 1) problems.push(`${name(node)} cuts off its content`);
  }
  for (const node of content.querySelectorAll(":is(a, button, input, select, textarea, summary)")) {
    if (node.closest("svg, .resty-hidden, .visually-hidden, .select2-hidden-accessible") || !node.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    node.scrollIntoView({ block: "center", inline: "center" });
    const box = node.getClientRects()[0];
    if (!box || !box.width) continue;
    const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    if (hit && !node.contains(hit) && !hit.contains(node) && !hit.closest("label")) problems.push(`${name(node)} ${node.textContent.trim().slice(0, 20)} is covered by ${name(hit)}`);
  }
  scrollTo(0, 0);
  for (const node of content.querySelectorAll("*")) {
    if (!node.querySelector("table") || !scrolls(node) || !node.checkVisibility() || node.scrollWidth <= node.clientWidth + 1) continue;
    const hint = getComputedStyle(node, "::before").content;
    if (innerWidth >= 1280) problems.push(`${name(node)} is cut: ${node.scrollWidth} in ${node.clientWidth} px: ${node.innerText.slice(0, 400)}`);
    if (node.tabIndex !== 0 || node.role !== "region" || !node.ariaLabel) problems.push(`${name(node)} scrolls, but is no region that the keyboard reaches`);
    if (["none", "normal"].includes(hint)) problems.push(`${name(node)} does not say that it scrolls`);
  }
  for (const text of content.querySelectorAll("svg.resty-axes text")) {
    const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
    if (inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1)) problems.push(`the label ${text.textContent} is outside of its chart`);
  }
  for (const chart of content.querySelectorAll("svg.resty-axes")) {
    const marks = [...chart.querySelectorAll("text.resty-mark, text.resty-minor-mark")].map((mark) => mark.getBoundingClientRect()).filter((box) => box.width);
    if (marks.some((box, place) => place && box.left < marks[place - 1].right)) problems.push("the labels of the x axis overlap");
  }
  /* The title of a list in the header of a theme. */
  for (const title of document.querySelectorAll(".change-list #header-inner h1 a"))
    if (title.getClientRects().length && title.clientWidth < Math.min(title.scrollWidth, 48)) problems.push(`the title ${title.textContent.trim()} is cut to ${title.clientWidth} px`);
  const texts = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const parent = text.parentElement;
    if (!text.data.trim() || parent.closest("svg, pre, code, textarea, script, option, .resty-id") || !parent.getClientRects().length) continue;
    range.selectNodeContents(text);
    if (range.getClientRects().length < 2) continue;
    for (const match of text.data.matchAll(/[^\s]+/g)) {
      if (match[0].length > 24) continue;
      for (const word of match[0].matchAll(/[\p{L}\p{N}]{2,}/gu)) {
        range.setStart(text, match.index + word.index);
        range.setEnd(text, match.index + word.index + word[0].length);
        const tops = new Set([...range.getClientRects()].filter((box) => box.width).map((box) => Math.round(box.top)));
        if (tops.size > 1) problems.push(`breaks the word ${word[0]} in ${name(parent)}`);
      }
    }
  }
  for (const node of document.querySelectorAll(".resty-page :is(code, pre, kbd, svg:has(text), .resty-source), .resty-id"))
    if (getComputedStyle(node).direction !== "ltr") problems.push(`${name(node)} reads from right to left`);
  return [...new Set(problems)].slice(0, 8);
}
