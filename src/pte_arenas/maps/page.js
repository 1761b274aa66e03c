"use strict";
(() => {
  const details = document.getElementById("details");
  const query = document.getElementById("query");
  const found = document.getElementById("found");
  const things = [...document.querySelectorAll("[data-key]")];
  const byKey = new Map();
  for (const thing of things) {
    byKey.set(thing.dataset.key, [...(byKey.get(thing.dataset.key) ?? []), thing]);
  }
  const isRow = (thing) => thing.tagName === "TR";
  const factsOf = (thing) => thing.dataset.facts ?? thing.querySelector("title").textContent;

  // --- Details of what is pointed at or focused ---

  let lit = [];
  const show = (thing) => {
    lit.forEach((each) => each.classList.remove("lit"));
    lit = byKey.get(thing.dataset.key);
    lit.forEach((each) => each.classList.add("lit"));
    details.textContent = factsOf(thing);
  };
  const onThing = (event) => {
    const thing = event.target.closest?.("[data-key]");
    if (thing) show(thing);
  };
  document.addEventListener("pointerover", onThing);
  document.addEventListener("focusin", onThing);

  // --- Arrow keys within a picture or a table, which is one stop of the Tab key ---

  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.addEventListener("keydown", (event) => {
    const thing = event.target.closest?.("[data-key]");
    if (thing && event.key in steps) {
      const group = thing.closest("svg, tbody");
      const members = [...group.querySelectorAll("[data-key]:not([hidden])")];
      const next = members[members.indexOf(thing) + steps[event.key]];
      if (next) {
        next.focus();
        event.preventDefault();
      }
    } else if (event.key === "/" && event.target !== query) {
      query.focus();
      event.preventDefault();
    } else if (event.key === "Escape" && query.value) {
      query.value = "";
      search();
      query.focus();
    }
  });

  // --- Paper has no pointer: the tables say what shapes are ---

  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((each) => (each.open = true));
  });

  // --- Search ---

  // Names are escaped as in JSON; they are found as they are written there, and as they are.
  const plain = (text) =>
    text.replace(/\\(?:u([0-9a-f]{4})|(["\\]))/g, (_, code, character) =>
      code ? String.fromCharCode(parseInt(code, 16)) : character);
  const texts = new Map(things.map((thing) => {
    const facts = factsOf(thing);
    return [thing, `${facts}\n${plain(facts)}`.toLowerCase()];
  }));
  let hits = [];
  let current = -1;
  const search = () => {
    const wanted = query.value.trim().toLowerCase();
    hits = [];
    current = -1;
    const keys = new Set();
    for (const thing of things) {
      const isHit = wanted !== "" && texts.get(thing).includes(wanted);
      thing.classList.toggle("hit", isHit);
      if (isRow(thing)) thing.hidden = wanted !== "" && !isHit;
      if (isHit && !keys.has(thing.dataset.key)) {
        keys.add(thing.dataset.key);
        hits.push(byKey.get(thing.dataset.key).find(isRow) ?? thing);
      }
    }
    for (const picture of document.querySelectorAll(".figure")) {
      picture.classList.toggle("searched", wanted !== "");
    }
    const number = hits.length.toLocaleString("en");
    found.value = wanted === "" ? "" : hits.length === 1 ? "1 match" : `${number} matches`;
  };
  query.addEventListener("input", search);
  document.getElementById("zoom").addEventListener("input", (event) => {
    document.documentElement.style.setProperty("--zoom", event.target.value);
  });
  document.getElementById("find").addEventListener("submit", (event) => {
    event.preventDefault();
    if (hits.length === 0) return;
    current = (current + 1) % hits.length;
    const hit = hits[current];
    const closed = hit.closest("details:not([open])");
    if (closed) closed.open = true;
    found.value = `${(current + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}`;
    hit.scrollIntoView({ block: "nearest" });
    show(hit);
    if (event.submitter !== null && document.activeElement !== query) hit.focus({ preventScroll: true });
  });
})();
