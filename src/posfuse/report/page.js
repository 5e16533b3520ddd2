"use strict";
// A click on a heading sorts the table: numbers by value, empty cells last.
for (const table of document.querySelectorAll("table:has(thead button)")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.cells[column].textContent.trim();
    const number = text => {
      if (/^(not feasible|learned)/.test(text)) return Infinity;
      const [over, under] = text.replace(/,/g, "").replace(/^(<|sqrt_d = )/, "").split("/");
      return parseFloat(over) / (/^\d/.test(under) ? parseFloat(under) : 1);
    };
    const rows = [...body.rows];
    const numeric = rows.every(row => key(row) === "" || !isNaN(number(key(row))));
    rows.sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = numeric ? number(x) - number(y) : x.localeCompare(y, "en", {numeric: true});
      return up ? order : -order;
    });
    body.append(...rows);
  }));
}
// The first columns that name a row stay in view beside each other, if they leave half of the width.
function fixColumns() {
  for (const cell of document.querySelectorAll(".fixed")) {
    cell.classList.remove("fixed");
    cell.style.left = "";
  }
  for (const box of document.querySelectorAll(".scroll")) {
    const heads = box.querySelector("tr").cells;
    for (let column = 0, left = 0; column < box.dataset.names; column++) {
      const right = left + heads[column].offsetWidth;
      if (right > box.clientWidth / 2) break;
      for (const { cells } of box.querySelectorAll("tr")) {
        cells[column].classList.add("fixed");
        cells[column].style.left = left + "px";
      }
      left = right;
    }
  }
}
fixColumns();
addEventListener("resize", fixColumns);
// The title of a mark is shown in a label beside the pointer.
const tip = document.createElement("div");
tip.id = "tip"; tip.hidden = true; tip.setAttribute("role", "status");
document.body.append(tip);
for (const title of document.querySelectorAll("figure svg g > title")) {
  title.parentElement.dataset.tip = title.textContent;
  title.parentElement.setAttribute("aria-label", title.textContent);
  title.remove();
}
const follow = event => {
  const mark = event.target.closest && event.target.closest("svg [data-tip]");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const right = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.left = Math.max(right, 8) + "px";
  tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
};
addEventListener("pointermove", follow);
addEventListener("pointerdown", follow);
// A printed page shows what is behind each row of the answer and behind each claim.
addEventListener("beforeprint", () => document.querySelectorAll(":is(.answers, .verdict) details, .more")
  .forEach(details => details.open = true));
// A link to the terms opens them.
document.querySelector('nav a[href="#terms"]').addEventListener("click", () => {
  document.getElementById("terms").open = true; });
