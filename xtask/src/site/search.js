// Finds words in all pages, without any request to another host. The index is a script, because pages opened from a file
// may not fetch; it is loaded when somebody begins to search.
"use strict";
(() => {
  const MOST = 20;
  const AROUND = 60;
  const root = document.documentElement.dataset.root;
  const input = document.getElementById("search");
  const list = document.getElementById("results");
  const menu = document.querySelector("nav details");

  const wide = window.matchMedia("(min-width: 60rem)");
  const unfold = () => { menu.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();

  let loading = null;
  const load = () => {
    loading ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = root + "search-index.js";
      script.onload = () => done(window.samehostIndex);
      script.onerror = failed;
      document.head.append(script);
    });
    return loading;
  };

  // Every word has to be there; words in titles count more.
  const score = (words, [, page, title, text]) => {
    const [pages, titles, texts] = [page, title, text].map((part) => part.toLowerCase());
    let sum = 0;
    for (const word of words) {
      const found = (titles.includes(word) ? 8 : 0) + (pages.includes(word) ? 4 : 0) + Math.min(texts.split(word).length - 1, 3);
      if (found === 0) return 0;
      sum += found;
    }
    return sum;
  };

  const excerpt = (words, text) => {
    const at = Math.max(0, Math.min(...words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0), text.length));
    const from = at < AROUND || at === text.length ? 0 : text.lastIndexOf(" ", at - AROUND) + 1;
    return (from > 0 ? "… " : "") + text.slice(from, from + 3 * AROUND) + (from + 3 * AROUND < text.length ? " …" : "");
  };

  const show = (words, index) => {
    const found = index.map((section) => [score(words, section), section]).filter(([sum]) => sum > 0);
    found.sort((one, other) => other[0] - one[0]);
    const items = found.slice(0, MOST).map(([, section]) => {
      const [url, page, title, text] = section;
      const link = document.createElement("a");
      link.href = root + url;
      link.textContent = page === title ? page : `${page}: ${title}`;
      const words_around = document.createElement("p");
      words_around.textContent = excerpt(words, text);
      const item = document.createElement("li");
      item.append(link, words_around);
      return item;
    });
    if (items.length === 0) {
      const item = document.createElement("li");
      item.textContent = "Nothing found";
      items.push(item);
    }
    list.replaceChildren(...items);
    list.hidden = false;
  };

  const search = async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
    if (words.length === 0) {
      list.hidden = true;
      return;
    }
    show(words, await load());
  };
  input.addEventListener("input", search);
  input.addEventListener("focus", load);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      list.hidden = true;
      input.blur();
    } else if (event.key === "/" && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!list.contains(event.target) && event.target !== input) list.hidden = true;
  });
})();
