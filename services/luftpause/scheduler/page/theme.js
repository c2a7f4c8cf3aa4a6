// Which colours are shown: the system's, light or dark? Runs before the page is drawn, so that it does not flash.
(() => {
  "use strict";
  const KEY = "luftpause.theme";
  const NAMES = { system: "as the system", light: "light", dark: "dark" };
  const ICONS = { system: "◐", light: "☀", dark: "☾" };
  const kept = () => {
    try {
      return localStorage.getItem(KEY) || "system";
    } catch {
      return "system";
    }
  };
  let theme = kept() in NAMES ? kept() : "system";

  function apply() {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  }

  function show(button) {
    button.setAttribute("aria-label", `Colours: ${NAMES[theme]}`);
    button.title = `Colours: ${NAMES[theme]}`;
    button.firstElementChild.textContent = ICONS[theme];
  }

  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    show(button);
    button.addEventListener("click", () => {
      const order = Object.keys(NAMES);
      theme = order[(order.indexOf(theme) + 1) % order.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // A browser that keeps nothing still shows it until it is closed.
      }
      apply();
      show(button);
    });
  });
})();
