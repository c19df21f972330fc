// What the pages of all servers share: numbers as text, parts of a page, and news with or without a key.
"use strict";
const PERIOD_MS = 1000, PATIENCE_MS = 10000;
const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const number = (n) => (n < 10000 ? whole.format(n) : short.format(n));
const percent = (part, of) => (of > 0 ? `${(100 * part / of).toFixed(part > 0 && part < of / 100 ? 1 : 0)}%` : "–");
const colour = (index) => `var(--c${index % 6})`;
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

function bytes(n) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= unit) return `${Number((n / unit).toPrecision(3))} ${name}`;
  }
  return `${n} B`;
}

function duration(s) {
  if (s < 90) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function row(...cells) {
  const made = element("tr");
  made.append(...cells.map((cell) => {
    if (cell instanceof Node) { const td = element("td"); td.append(cell); return td; }
    const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
    return element("td", text, className);
  }));
  return made;
}

function key(label, background) {
  const made = element("span", "", "key"), swatch = element("span", "", "swatch");
  swatch.style.background = background;
  made.append(swatch, label);
  return made;
}

// Parts are [share, background]; what is left of the bar is nothing.
function fillBar(bar, parts, total) {
  bar.replaceChildren(...parts.filter(([share]) => share > 0).map(([share, background]) => {
    const part = element("span");
    part.style.width = `${100 * share / (total || 1)}%`;
    part.style.background = background;
    return part;
  }));
}

const tint = (background) => `color-mix(in srgb, ${background} 40%, var(--panel))`;
const MEDIA = { device: "var(--m0)", memory: "var(--m1)", disk: "var(--m2)" };
const mediumColour = (medium) => MEDIA[medium] ?? "var(--m3)";

// ---- news --------------------------------------------------------------------------------------------------------

let apiKey = sessionStorage.getItem("octavo-key");

class NeedsKey extends Error {}

function setHealth(text, isBad) {
  $("health").textContent = text;
  $("health").classList.toggle("bad", isBad);
}

async function ask(path) {
  const response = await fetch(path, {
    headers: apiKey ? { Authorization: `Bearer ${apiKey}` } : {}, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (response.status === 401 || (response.status === 403 && apiKey)) throw new NeedsKey();
  if (!response.ok) throw new Error((await response.json()).error.message);
  return response.json();
}

function link(path) {
  const made = element("a", path);
  made.href = path;
  return made;
}

// `look` asks for the news and shows them; it is called again and again while somebody sees the page. `paths` are those
// of the server that can be looked at apart.
function begin(look, ...paths) {
  $("links").append(...paths.flatMap((path, place) => (place ? [" · ", link(path)] : [link(path)])));
  async function lookOnce() {
    try {
      await look();
      $("main").hidden = false;
      $("links").hidden = apiKey !== null;  // a link cannot show the key
      setHealth("live", false);
    } catch (error) {
      if (error instanceof NeedsKey) { askForKey(); return; }
      setHealth(error instanceof TypeError || error.name === "TimeoutError" ? "no answer" : error.message, true);
    }
    setTimeout(next, PERIOD_MS);
  }

  function next() {
    if (document.hidden) document.addEventListener("visibilitychange", lookOnce, { once: true });
    else lookOnce();
  }

  $("login").addEventListener("submit", (event) => {
    event.preventDefault();
    apiKey = $("key").value.trim();
    sessionStorage.setItem("octavo-key", apiKey);
    $("login").hidden = true;
    lookOnce();
  });
  lookOnce();
}

function askForKey() {
  $("wrong").hidden = apiKey === null;
  apiKey = null;
  sessionStorage.removeItem("octavo-key");
  $("login").hidden = false;
  $("main").hidden = true;
  setHealth("locked", true);
}
