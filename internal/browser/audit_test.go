package browser

// audit is evaluated in a page, and returns what is wrong with it for those who see little, have no mouse, or hear the
// page read: WCAG 2.2's contrast (1.4.3 and 1.4.11), names (4.1.2), focus that is seen (2.4.7), reflow (1.4.10), IDs
// that are unique, and links that lead into the page.
const audit = `(() => {
  const faults = new Set();
  const excess = document.documentElement.scrollWidth - innerWidth;
  if (excess > 0) faults.add("wider than the screen by " + excess + " pixels");

  const rgba = (text) => {
    const n = text.match(/[\d.]+(?:e-?\d+)?/g).map(Number);
    if (text.startsWith("color(")) return [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1];
    return [n[0], n[1], n[2], n[3] ?? 1];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const ground = (e) => e ? over(rgba(getComputedStyle(e).backgroundColor), ground(e.parentElement)) : [255, 255, 255, 1];
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((x, y) => y - x);
    return (x + 0.05) / (y + 0.05);
  };
  const name = (e) => e.tagName.toLowerCase() + (e.className ? "." + e.className : "") + " " + JSON.stringify((e.textContent || e.name || "").trim().slice(0, 30));

  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || !e.checkVisibility() || e.closest("svg, datalist, option, meter")) continue;
    const s = getComputedStyle(e), g = ground(e), ratio = contrast(over(rgba(s.color), g), g);
    if (ratio < 4.5) faults.add("text " + name(e) + " has a contrast of " + ratio.toFixed(2));
  }
  for (const e of document.querySelectorAll(".bars rect:not(.hit), .course path")) {
    const s = getComputedStyle(e), shape = rgba(s.fill === "none" ? s.stroke : s.fill), g = ground(e.closest("svg"));
    const ratio = contrast(over(shape, g), g);
    if (ratio < 3) faults.add("drawing " + e.tagName + "." + (e.getAttribute("class") || e.closest("svg").getAttribute("class")) + " has a contrast of " + ratio.toFixed(2));
  }

  for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a, summary, [tabindex='0']")) {
    const label = e.getAttribute("aria-label") || e.labels?.[0]?.textContent || (e.matches("input, select, textarea") ? "" : e.textContent);
    if (!label || !label.trim()) faults.add("without a name: " + e.outerHTML.slice(0, 120));
    if (!e.checkVisibility()) continue;
    e.focus({focusVisible: true, preventScroll: true});
    const s = getComputedStyle(e), g = ground(e.parentElement);
    if (document.activeElement !== e) faults.add("takes no focus: " + name(e));
    else if (s.outlineStyle === "none" || parseFloat(s.outlineWidth) < 2) faults.add("focus is not seen: " + name(e));
    else if (contrast(over(rgba(s.outlineColor), g), g) < 3) faults.add("focus is hardly seen: " + name(e));
    if (e.matches("input, select, textarea, button, .button") && e.type !== "checkbox") {
      const edge = Math.max(contrast(over(rgba(s.borderTopColor), g), g), contrast(ground(e), g));
      if (edge < 3) faults.add("edge of " + name(e) + " has a contrast of " + edge.toFixed(2));
    }
    e.blur();
  }

  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.add("the ID " + id + " is given twice");
  if (document.querySelectorAll("h1").length !== 1) faults.add("not one h1");
  for (const e of document.querySelectorAll("a[href^='#']")) if (!document.getElementById(e.hash.slice(1))) faults.add("leads nowhere: " + e.hash);
  scrollTo(0, 0);
  return [...faults];
})()`
