"use strict";
// The page is whole without this file. It brings the parts that change up to date,
// and copies texts.
(() => {
  document.documentElement.classList.add("scripted");

  const live = document.getElementById("live");
  const waiting = new Map(); // HTML of parts in which text is selected just now

  // again finds, in what replaced it, the element that had the focus.
  const again = (part, was) => {
    const around = was.id ? was : was.closest("details");
    if (around?.id) {
      const now = document.getElementById(around.id);
      return around === was ? now : now?.querySelector(was.tagName);
    }
    const href = was.getAttribute("href");
    return href && part.querySelector(`a[href="${CSS.escape(href)}"]`);
  };
  const replace = (part, html) => {
    const open = [...part.querySelectorAll("details[open]")].map((d) => d.id);
    const scrolled = [...part.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
    const focused = part.contains(document.activeElement) && document.activeElement;
    part.innerHTML = html;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    part.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = scrolled[i] ?? 0; });
    if (focused) again(part, focused)?.focus({ preventScroll: true });
  };
  const selectedIn = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode);
  };
  document.addEventListener("selectionchange", () => {
    for (const [part, html] of waiting) {
      if (selectedIn(part)) continue;
      waiting.delete(part);
      replace(part, html);
    }
  });

  const events = new EventSource(document.body.dataset.events);
  events.onopen = () => { live.hidden = false; live.className = "live"; live.textContent = "live"; };
  events.onerror = () => { live.hidden = false; live.className = "live lost"; live.textContent = "no connection"; };
  for (const name of ["summary", "volumes", "attachments", "faults", "calls", "volume", "timeline"]) {
    const part = document.getElementById(name);
    if (!part) continue;
    events.addEventListener(name, (event) => {
      waiting.delete(part);
      if (selectedIn(part)) waiting.set(part, event.data); else replace(part, event.data);
    });
  }
  events.addEventListener("token", (event) => {
    for (const input of document.querySelectorAll("input[name=token]")) input.value = event.data;
  });
  addEventListener("pagehide", () => events.close());

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
})();
