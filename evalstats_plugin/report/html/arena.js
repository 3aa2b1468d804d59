// Sorts and searches the leaderboard; without scripts the table is whole and in order of rank.
"use strict";

const table = document.querySelector("#board-table");
const body = table.tBodies[0];
const said = document.querySelector("#found");
const search = document.querySelector("#search");
const collator = new Intl.Collator("en", { numeric: true });

function value(row, at) {
  const cell = row.cells[at];
  return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
}

function compare(a, b) {
  if (typeof a !== "number") return collator.compare(a, b);
  // What is unknown comes last in either direction.
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
  return a - b;
}

function sort(button, at) {
  const head = button.parentElement;
  const first = head.dataset.first;
  const now = head.getAttribute("aria-sort");
  const other = first === "descending" ? "ascending" : "descending";
  const order = now === first ? other : first;
  for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...body.rows].map((row) => [value(row, at), row]);
  const unknown = (a) => typeof a === "number" && Number.isNaN(a);
  rows.sort(([a], [b]) => (unknown(a) || unknown(b) ? compare(a, b) : sign * compare(a, b)));
  body.append(...rows.map(([, row]) => row));
}

for (const [at, head] of [...table.tHead.rows[0].cells].entries()) {
  if (!head.dataset.first) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => sort(button, at));
}

function find() {
  const wanted = search.value.trim().toLowerCase();
  let shown = 0;
  for (const row of body.rows) {
    row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
    shown += !row.hidden;
  }
  said.textContent = wanted === "" ? "" : `${shown} of ${body.rows.length}`;
}

search.addEventListener("input", find);
document.querySelector("#tools").hidden = false;
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
  if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    find();
  }
});
find();
