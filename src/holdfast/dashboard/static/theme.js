// Sets the theme before the page is painted. Loaded in the head, so it is small.
"use strict";
{
  const stored = localStorage.getItem("holdfast-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
}
