// Reads the page again every few seconds and puts in what has changed. Without it, or when it fails, the page is as it
// was read; nothing else depends on it.
(() => {
  "use strict";
  const every = 4000, slowest = 60000;
  const status = document.getElementById("live");
  let wait = every, read = new Date(), timer;

  // What was just done is said once, not again with each reading.
  if (document.querySelector(".said")) {
    const here = new URL(location.href);
    for (const name of ["said", "n", "gone"]) here.searchParams.delete(name);
    history.replaceState(null, "", here);
  }

  const clock = (t) => t.toISOString().slice(11, 19);
  const say = (text, bad) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", bad);
  };

  // A region in which somebody is at work stays as it is.
  const busy = (region) => {
    const text = getSelection();
    return region.contains(document.activeElement) || region.querySelector(":checked, details[open]") !== null ||
      (!text.isCollapsed && text.containsNode(region, true));
  };

  const refresh = async () => {
    const reply = await fetch(location.href, {redirect: "error", signal: AbortSignal.timeout(15000)});
    if (!reply.ok) throw new Error(reply.status);
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    let held = false;
    for (const old of document.querySelectorAll("[data-live]")) {
      const now = fresh.getElementById(old.id);
      if (!now) throw new Error("another page");
      if (now.innerHTML === old.innerHTML) continue;
      if (busy(old)) { held = true; continue; }
      old.replaceWith(document.adoptNode(now));
    }
    if (!held) {
      const foot = fresh.querySelector("footer");
      if (foot) document.querySelector("footer").replaceWith(document.adoptNode(foot));
      read = new Date();
    }
    enhance();
    say(held ? "held: newer is there" : "live", false);
  };

  const turn = async () => {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        await refresh();
        wait = every;
      } catch {
        wait = Math.min(2 * wait, slowest);
        say("not live, as of " + clock(read) + " UTC", true);
      }
    }
    clearTimeout(timer);
    timer = setTimeout(turn, wait);
  };

  // One box that selects all, and how many are selected.
  const enhance = () => {
    const place = document.getElementById("all");
    if (!place || place.firstChild) return;
    const boxes = () => [...document.querySelectorAll("input[name=entry]")];
    const all = Object.assign(document.createElement("input"), {type: "checkbox", title: "select all"});
    all.setAttribute("aria-label", "select all");
    const tell = () => {
      const n = boxes().filter((b) => b.checked).length;
      document.getElementById("selected").textContent = n ? n + " selected:" : "Selected:";
      all.indeterminate = n > 0 && n < boxes().length;
      all.checked = n > 0 && n === boxes().length;
    };
    all.addEventListener("change", () => { for (const b of boxes()) b.checked = all.checked; tell(); });
    place.append(all);
    place.closest("form").addEventListener("change", tell);
    tell();
  };

  enhance();
  if (!status) return;
  say("live", false);
  timer = setTimeout(turn, every);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
})();
