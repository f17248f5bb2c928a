"use strict";
// Cards are made beforehand; this orders, filters and searches them, and never makes text into markup.
const cards = [...document.querySelectorAll(".card")];
const words = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));
const search = document.getElementById("search");
const order = document.getElementById("order");
const show = document.getElementById("show");
const whole = document.getElementById("whole");
const count = document.getElementById("count");
const list = document.getElementById("cards");

const wanted = () => search.value.toLowerCase().split(/\s+/).filter(Boolean);

function matches(card, terms) {
  const state = show.value === "all" || show.value === card.dataset.state ||
    (show.value === "alive" && card.dataset.state !== "dead");
  const has = (term) => (/^#\d+$/.test(term) ? term.slice(1) === card.dataset.number : words.get(card).includes(term));
  return state && terms.every(has);
}

function mark(terms) {
  if (!globalThis.CSS || !CSS.highlights) return;
  CSS.highlights.delete("found");
  const sought = terms.filter((term) => !term.startsWith("#"));
  if (!sought.length) return;
  const ranges = [];
  for (const card of cards.filter((each) => !each.hidden)) {
    const texts = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
    while (texts.nextNode() && ranges.length < 3000) {
      const text = texts.currentNode.data.toLowerCase();
      for (const term of sought) {
        for (let at = text.indexOf(term); at >= 0; at = text.indexOf(term, at + term.length)) {
          if (at + term.length > texts.currentNode.length) break;
          const range = new Range();
          range.setStart(texts.currentNode, at);
          range.setEnd(texts.currentNode, at + term.length);
          ranges.push(range);
        }
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

function filter() {
  const terms = wanted();
  for (const card of cards) card.hidden = !matches(card, terms);
  const left = cards.filter((card) => !card.hidden).length;
  count.textContent = `${left} of ${cards.length} shown`;
  mark(terms);
}

function sort() {
  const key = order.value;
  const value = (card) => Number(card.dataset[key]);
  const number = (card) => Number(card.dataset.number);
  const way = key === "number" ? 1 : -1;
  list.append(...cards.sort((a, b) => way * (value(a) - value(b)) || number(a) - number(b)));
}

function step(by) {
  const shown = cards.filter((card) => !card.hidden);
  const at = shown.findIndex((card) => card.contains(document.activeElement));
  const next = shown[Math.min(Math.max(at + by, 0), shown.length - 1)];
  if (next) next.querySelector(".number").focus();
}

function reveal() {
  const card = document.getElementById(location.hash.slice(1));
  if (!card || !card.classList.contains("card")) return;
  if (card.hidden) {
    search.value = "";
    show.value = "all";
    filter();
  }
  card.scrollIntoView();
}

search.addEventListener("input", filter);
show.addEventListener("change", filter);
order.addEventListener("change", sort);
whole.addEventListener("change", () => list.classList.toggle("whole", whole.checked));
addEventListener("hashchange", reveal);
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape" && event.target === search) {
    search.value = "";
    filter();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j" ? 1 : -1);
    }
  }
});
document.getElementById("tools").hidden = false;
sort();
filter();
reveal();
