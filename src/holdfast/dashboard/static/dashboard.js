// Live regions, times in the viewer's zone, theme, zoom of charts, small comforts of forms. Pages work without it, but do not move.
"use strict";

// ---- Times ------------------------------------------------------------------------------------------------------------
const zone = localStorage.getItem("holdfast-zone") === "utc" ? "UTC" : undefined;
const options = { hourCycle: "h23", timeZone: zone };
const dateFormat = new Intl.DateTimeFormat("sv-SE", { ...options, year: "numeric", month: "2-digit", day: "2-digit" });
const minuteFormat = new Intl.DateTimeFormat("sv-SE", { ...options, hour: "2-digit", minute: "2-digit" });
const timeFormat = new Intl.DateTimeFormat("sv-SE", { ...options, hour: "2-digit", minute: "2-digit", second: "2-digit" });

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const both = `${dateFormat.format(at)} ${timeFormat.format(at)}`;
    element.title = `${both} ${zone || Intl.DateTimeFormat().resolvedOptions().timeZone}`;
    const only = element.dataset.only;
    if (only === "title") continue;
    if (only === "short") element.textContent = `${dateFormat.format(at)} ${minuteFormat.format(at)}`;
    else element.textContent = only ? { time: timeFormat, minute: minuteFormat, date: dateFormat }[only].format(at) : both;
  }
}

// ---- Live regions -----------------------------------------------------------------------------------------------------
const live = document.querySelector("[data-live]");
const status = document.getElementById("live-status");
const PLACES = 4; // a browser opens six connections to a host; pages beyond these places ask every few seconds instead
const ASK_EVERY = 5000;
const IDENTITY = ["id", "href", "form"];
const VIEWERS = ["open"]; // attributes that the viewer changes
const held = {}; // regions that are not shown yet
let source = null;
let retry = 1000;
let timer = 0;
let releasePlace = null;

function say(kind, text) {
  if (!status) return;
  status.dataset.kind = kind;
  status.textContent = text;
}

function swap(regions) {
  Object.assign(held, regions);
  if (show()) say("live", "Live");
  else say("paused", "Paused while text is selected");
  retry = 1000;
}

function show() {
  // A region in which the viewer has selected text is shown later. Returns whether all are shown.
  const selection = getSelection();
  const selected = selection.isCollapsed ? null : selection.getRangeAt(0);
  for (const [id, html] of Object.entries(held)) {
    const region = document.getElementById(id);
    if (region && selected?.intersectsNode(region)) continue;
    delete held[id];
    if (region) update(region, html);
  }
  return Object.keys(held).length === 0;
}

function update(region, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  showTimes(wanted.content);
  const focused = region.contains(document.activeElement) ? document.activeElement : null;
  patch(region, wanted.content);
  if (!focused || focused.isConnected) return;
  const same = focused.id
    ? document.getElementById(focused.id)
    : [...region.querySelectorAll("a")].find((link) => link.href === focused.href);
  same?.focus({ preventScroll: true });
}

function patch(element, wanted) {
  // Elements stay, with what the viewer does to them: focus, scroll, an open table, a pressed button. A link or a button for something else is another one.
  const children = [...wanted.childNodes];
  children.forEach((child, place) => {
    const known = element.childNodes[place];
    if (!known) element.append(child);
    else if (known.isEqualNode(child)) return;
    else if (!isSame(known, child)) known.replaceWith(child);
    else if (known.nodeType === Node.ELEMENT_NODE) {
      patchAttributes(known, child);
      patch(known, child);
    } else known.data = child.data;
  });
  while (element.childNodes.length > children.length) element.lastChild.remove();
}

function isSame(known, child) {
  if (known.nodeName !== child.nodeName || (known.nodeName === "BUTTON" && known.value !== child.value)) return false;
  return known.nodeType !== Node.ELEMENT_NODE || IDENTITY.every((name) => known.getAttribute(name) === child.getAttribute(name));
}

function patchAttributes(known, child) {
  // By their names: a list of `attributes` makes a node of each, which stays as long as the element does.
  for (const name of known.getAttributeNames()) if (!child.hasAttribute(name) && !VIEWERS.includes(name)) known.removeAttribute(name);
  for (const name of child.getAttributeNames()) {
    const value = child.getAttribute(name);
    if (known.getAttribute(name) !== value && !VIEWERS.includes(name)) known.setAttribute(name, value);
  }
}

function lost() {
  say("lost", "The server does not answer; trying again …");
  clearTimeout(timer);
  timer = setTimeout(connect, retry);
  retry = Math.min(retry * 2, 10000);
}

async function ask() {
  clearTimeout(timer);
  try {
    const answer = await fetch(live.dataset.live.replace(/^\/live\//, "/regions/"), { credentials: "same-origin" });
    if (answer.status === 401 || answer.status === 403) return ended();
    if (answer.status === 404) return gone();
    if (!answer.ok) throw new Error(String(answer.status));
    swap(await answer.json());
    timer = setTimeout(connect, ASK_EVERY);
  } catch {
    lost();
  }
}

function ended() {
  disconnect();
  say("lost", "Your session has ended; load the page again to log in.");
}

function gone() {
  disconnect();
  say("lost", "What this page shows no longer exists.");
}

function takePlace() {
  // The place is held until `releasePlace` is called, or the page goes away. Without the Locks API every page has one.
  if (releasePlace || !navigator.locks) return Promise.resolve(true);
  const attempt = (number) =>
    new Promise((resolve) => {
      navigator.locks.request(`holdfast-live-${number}`, { ifAvailable: true }, (lock) => {
        if (!lock) return resolve(false);
        return new Promise((release) => {
          releasePlace = release;
          resolve(true);
        });
      });
    });
  return Array.from({ length: PLACES }).reduce(
    (before, _, number) => before.then((taken) => taken || attempt(number)),
    Promise.resolve(false),
  );
}

async function connect() {
  clearTimeout(timer);
  if (document.hidden || source) return;
  if (!(await takePlace())) return ask();
  if (document.hidden || source) return;
  source = new EventSource(live.dataset.live);
  source.addEventListener("regions", (event) => swap(JSON.parse(event.data)));
  source.addEventListener("gone", gone);
  source.addEventListener("logged-out", ended);
  source.addEventListener("error", () => {
    if (!source) return;
    source.close();
    source = null;
    ask(); // says whether the session has ended, or the server is away
  });
}

function disconnect() {
  clearTimeout(timer);
  if (source) source.close();
  source = null;
  if (releasePlace) releasePlace();
  releasePlace = null;
}

if (live) {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      disconnect();
      say("paused", "Paused while hidden");
    } else {
      connect();
    }
  });
  document.addEventListener("selectionchange", () => {
    if (Object.keys(held).length && show() && status?.dataset.kind === "paused") say("live", "Live");
  });
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", connect);
  connect();
}

// ---- Zoom of charts: drag over a span -----------------------------------------------------------------------------------
document.addEventListener("pointerdown", (start) => {
  // One listener for all charts, also those of regions that come later.
  const plot = start.target.closest?.("[data-zoom]");
  if (!plot) return;
  const box = plot.getBoundingClientRect();
  const from = new Date(plot.dataset.from).getTime();
  const span = new Date(plot.dataset.to).getTime() - from;
  const at = (event) => from + (Math.min(Math.max(event.clientX - box.left, 0), box.width) / box.width) * span;
  plot.setPointerCapture(start.pointerId);
  plot.onpointerup = (end) => {
    plot.onpointerup = null;
    const [first, last] = [at(start), at(end)].sort((one, other) => one - other);
    if (Math.abs(end.clientX - start.clientX) < 8 || last - first < 60000) return;
    const address = new URL(location.href);
    address.searchParams.set("since", new Date(first).toISOString());
    address.searchParams.set("until", new Date(last).toISOString());
    address.searchParams.delete("range");
    location.assign(address);
  };
});

// ---- Theme and time zone ------------------------------------------------------------------------------------------------
document.getElementById("theme")?.addEventListener("click", () => {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("holdfast-theme", document.documentElement.dataset.theme);
});
document.getElementById("zone")?.addEventListener("click", () => {
  localStorage.setItem("holdfast-zone", zone ? "local" : "utc");
  location.reload();
});
const zoneLabel = document.getElementById("zone");
if (zoneLabel) zoneLabel.textContent = zone || Intl.DateTimeFormat().resolvedOptions().timeZone;

// ---- Forms ----------------------------------------------------------------------------------------------------------------
document.addEventListener("submit", (event) => {
  // Sent once: the idempotency key makes a second sending harmless, this makes it rare.
  const button = event.submitter;
  if (button && event.target.method === "post") setTimeout(() => (button.disabled = true), 0);
});
// The page of a refused form: its address is that of the page, so that loading it again does not send the form again.
const shownFor = document.querySelector("main[data-address]");
if (shownFor) history.replaceState(null, "", shownFor.dataset.address);
window.addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form button:disabled:not([data-off])")) button.disabled = false;
});
for (const all of document.querySelectorAll("input[data-check-all]")) {
  all.addEventListener("change", () => {
    for (const one of document.querySelectorAll(`input[name="${all.dataset.checkAll}"]`)) one.checked = all.checked;
  });
}

showTimes(document);
