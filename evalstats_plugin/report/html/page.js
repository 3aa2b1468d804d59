// The page's tables: sorting, filtering, turning pages, items opened. What is from logs goes into
// the page as text nodes alone.
"use strict";

const SIZES = [25, 100, 1000]; // rows at a time
const PRINTED = 2000; // rows of a table on paper
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const SVG = "http://www.w3.org/2000/svg";
const TEXTS = new Set(["text", "notes", "verdict"]);
const collator = new Intl.Collator("en", { numeric: true });

function make(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Numbers are written as in report/text.py and report/comparisons.py.
function number(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  if (size < 100) return value.toFixed(4);
  if (size < 10000) return value.toFixed(2);
  return general(value);
}

// Three digits, as Python's "g" writes them.
function general(value) {
  const [digits, exponent] = value.toExponential(2).split("e");
  const power = Math.abs(Number(exponent)).toString().padStart(2, "0");
  return `${Number(digits)}e${Number(exponent) < 0 ? "-" : "+"}${power}`;
}

const signed = (value) => (value > 0 ? "+" : "") + number(value);

const WRITTEN = {
  number,
  share: number,
  signed: (value) => (value === null ? "–" : signed(value)),
  count: (value) => (value === null ? "–" : value.toLocaleString("en-US")),
  p: (value) => (value === null ? "–" : value >= 0.00005 ? value.toFixed(4) : "<0.0001"),
  percent: (value) =>
    value === null ? "–" : value < 0.1 ? "<0.1 %" : value > 99.9 ? ">99.9 %" : `${value.toFixed(1)} %`,
};

function rectangle(kind, x, y, width, height) {
  const drawn = document.createElementNS(SVG, "rect");
  const said = { class: kind, x, y, width, height };
  for (const [key, value] of Object.entries(said)) drawn.setAttribute(key, value);
  return drawn;
}

function bar(from, to, middle, [start, end], zero) {
  const place = (x) => 100 * Math.min(Math.max((x - start) / (end - start || 1), 0), 1);
  const drawn = document.createElementNS(SVG, "svg");
  const said = { class: "bar", viewBox: "0 0 100 13", preserveAspectRatio: "none", "aria-hidden": "true" };
  for (const [key, value] of Object.entries(said)) drawn.setAttribute(key, value);
  drawn.append(rectangle("axis", 0, 6, 100, 1));
  if (zero !== undefined) drawn.append(rectangle("zero", place(zero), 0, 0.8, 13));
  const low = place(from);
  drawn.append(rectangle("reach", low, 4, Math.max(place(to) - low, 0.5), 5));
  if (middle !== null)
    drawn.append(rectangle("middle", Math.max(place(middle) - 0.8, 0), 1, 1.6, 11));
  return drawn;
}

function cell(column, row) {
  if (column.kind === "interval") {
    const made = make("td", "", { class: "interval" });
    const [low, high] = [column.low[row], column.high[row]];
    if (low === null) made.textContent = "–";
    else {
      const write = column.signed ? signed : number;
      const axis = column.axes[column.axis === 0 ? 0 : column.axis[row]];
      made.append(bar(low, high, column.middle[row], axis, column.zero));
      made.append(make("span", `[${write(low)}, ${write(high)}]`));
    }
    return made;
  }
  if (!TEXTS.has(column.kind)) {
    const value = column.values[row];
    const made = make("td", WRITTEN[column.kind](value), { class: "number" });
    if (column.kind === "share" && value !== null) made.prepend(bar(0, value, null, [0, 1]));
    return made;
  }
  const text = column.strings[column.values[row]];
  if (column.kind === "notes") {
    const made = make("td", "", { class: "notes" });
    text.split(",").filter(Boolean).forEach((n, i) => {
      made.append(...(i ? [", "] : []), make("a", n, { href: `#note-${n}` }));
    });
    return made;
  }
  if (column.kind === "verdict") {
    const made = make("td", "");
    made.append(make("span", text, { class: `verdict ${text}` }));
    return made;
  }
  const made = make(column.heads ? "th" : "td", text, column.heads ? { scope: "row" } : {});
  if (column.indent?.[row]) made.classList.add(`depth-${Math.min(column.indent[row], 3)}`);
  if (column.strong?.[row]) made.classList.add("strong");
  return made;
}

// Answers to an item: codes of a few bits each, six bits a letter.
function answers(block, item) {
  const n = block.models.length;
  const per = block.bits === 12 ? 0.5 : Math.floor(6 / block.bits);
  const width = Math.ceil(n / per);
  const letters = block.letters.slice(item * width, (item + 1) * width);
  const sixes = [...letters].map((letter) => ALPHABET.indexOf(letter));
  return block.models.map((_, i) => {
    const code = block.bits === 12
      ? sixes[2 * i] * 64 + sixes[2 * i + 1]
      : (sixes[Math.floor(i / per)] >> (block.bits * (per - 1 - (i % per)))) & (2 ** block.bits - 1);
    if (code === 0) return null;
    if (block.bits < 12) return block.levels[code - 1];
    const [low, high] = block.levels;
    return low + ((high - low) * (code - 1)) / 4094;
  });
}

function detail(table, row, width) {
  const block = table.blocks.findLast((one) => one.start <= row);
  const list = make("ol", "", { class: "answers" });
  const [low, high] = [block.levels[0], block.levels.at(-1)];
  const [worst, best] = block.lower ? [high, low] : [low, high];
  answers(block, row - block.start).forEach((score, i) => {
    const kind = score === null ? "missing" : low === high ? "part"
      : score === best ? "most" : score === worst ? "least" : "part";
    const line = make("li", "", { class: kind });
    line.append(make("span", table.models[block.models[i]], { class: "model" }));
    line.append(make("b", number(score)), make("small", `of all items ${number(block.means[i])}`));
    list.append(line);
  });
  const made = make("tr", "", { class: "detail" });
  const inside = make("td", "", { colspan: width });
  inside.append(make("p", "Score on this item, the model that is best on the task first:"), list);
  made.append(inside);
  return made;
}

// Numbers to sort by; null comes last either way.
function keys(column) {
  if (column.kind === "interval") return column.middle;
  if (!TEXTS.has(column.kind)) return column.values;
  const places = column.strings.map((_, i) => i);
  places.sort((a, b) => collator.compare(column.strings[a], column.strings[b]));
  const rank = [];
  places.forEach((string, i) => (rank[string] = column.strings[string] === "" ? null : i));
  return column.values.map((string) => rank[string]);
}

class Rows {
  constructor(table) {
    this.table = table;
    const section = document.getElementById(table.name);
    this.element = section.querySelector("table");
    this.body = section.querySelector("tbody");
    this.status = section.querySelector(".rows");
    this.sorted = { column: null, down: false };
    this.first = 0;
    this.open = new Set();
    this.all = Array.from({ length: table.rows }, (_, i) => i);
    this.element.querySelectorAll("thead th").forEach((head, i) => {
      const button = make("button", head.textContent, { type: "button" });
      button.addEventListener("click", () => this.sort(i));
      head.replaceChildren(button);
    });
    this.size = SIZES[0];
    this.status.after(this.turn(section.querySelector("caption").textContent));
  }

  // What turns the pages of a table.
  turn(caption) {
    const made = make("nav", "", { class: "turn", "aria-label": `Pages of: ${caption}` });
    this.turns = [["Previous", -1], ["Next", 1]].map(([text, by]) => {
      const button = make("button", text, { type: "button" });
      button.addEventListener("click", () => { this.first += by * this.size; this.draw(); });
      return button;
    });
    const size = make("select", "", { "aria-label": "Rows at a time" });
    size.append(...SIZES.map((n) => new Option(`${n} rows`, n)));
    size.addEventListener("change", () => { this.size = Number(size.value); this.draw(); });
    made.append(...this.turns, size);
    return made;
  }

  // First up, then down, then as the page came.
  sort(column) {
    const same = this.sorted.column === column;
    if (same && this.sorted.down) this.sorted = { column: null, down: false };
    else this.sorted = { column, down: same };
    this.element.querySelectorAll("thead th").forEach((head, i) => {
      if (i === this.sorted.column)
        head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.filter(this.chosen);
  }

  filter(chosen) {
    this.chosen = chosen;
    const texts = this.table.columns.filter((c) => TEXTS.has(c.kind) && c.kind !== "notes");
    const tests = chosen.words.map((word) =>
      texts.map((c) => c.strings.map((text) => text.toLowerCase().includes(word))));
    const asked = ["model", "task", "metric"].filter((role) => chosen[role] !== "").map((role) =>
      this.table.columns.filter((c) => c.role === role).map((c) => [c, c.strings.indexOf(chosen[role])]));
    const flag = chosen.flagged ? this.table.columns.find((c) => c.role === "flag") : undefined;
    const plain = flag && ["", "unclear"].map((text) => flag.strings.indexOf(text));
    this.order = this.all.filter((row) =>
      asked.every((of) => !of.length || of.some(([c, wanted]) => c.values[row] === wanted))
      && tests.every((test) => texts.some((c, i) => test[i][c.values[row]]))
      && (!flag || !plain.includes(flag.values[row])));
    if (this.sorted.column !== null) {
      const key = keys(this.table.columns[this.sorted.column]);
      const sign = this.sorted.down ? -1 : 1;
      this.order.sort((a, b) =>
        (key[a] === null) - (key[b] === null) || sign * (key[a] - key[b]) || a - b);
    }
    this.first = 0;
    this.draw();
  }

  draw(printing = false) {
    const total = this.order.length;
    this.first = Math.max(Math.min(this.first, total - 1), 0);
    const [from, to] = printing
      ? [0, Math.min(total, PRINTED)]
      : [this.first, Math.min(this.first + this.size, total)];
    this.body.replaceChildren(...this.order.slice(from, to).flatMap((row) => this.row(row)));
    const [left, right] = this.turns;
    [left.disabled, right.disabled] = [from === 0, to >= total];
    left.parentElement.hidden = total <= SIZES[0];
    const count = (n) => n.toLocaleString("en-US");
    const of = total < this.table.rows ? ` (of ${count(this.table.rows)} without the filter)` : "";
    const out = printing && to < total ? `; ${count(total - to)} are left out in print` : "";
    this.status.textContent = total
      ? `Rows ${count(from + 1)} to ${count(to)} of ${count(total)}${of}${out}`
      : `No row matches the filter${of}`;
  }

  row(row) {
    const line = make("tr", "");
    line.append(...this.table.columns.map((column) => cell(column, row)));
    if (!this.table.blocks) return [line];
    const head = line.firstElementChild;
    const opened = this.open.has(row);
    const button = make("button", head.textContent, { type: "button", class: "open", "aria-expanded": opened });
    button.addEventListener("click", () => this.toggle(row, button));
    head.replaceChildren(button);
    return opened ? [line, detail(this.table, row, this.table.columns.length)] : [line];
  }

  toggle(row, button) {
    const line = button.closest("tr");
    if (this.open.delete(row)) line.nextElementSibling.remove();
    else {
      this.open.add(row);
      line.after(detail(this.table, row, this.table.columns.length));
    }
    button.setAttribute("aria-expanded", this.open.has(row));
  }
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tables = data.tables.map((table) => new Rows(table));
  const form = document.getElementById("filter");
  for (const role of ["model", "task", "metric"]) {
    const columns = data.tables.flatMap((t) => t.columns.filter((c) => c.role === role));
    const names = [...new Set(columns.flatMap((c) => c.strings))].sort(collator.compare);
    // An option may not be told from "all" by an empty value.
    form.elements[role].append(...names.filter(Boolean).map((name) => new Option(name, name)));
  }
  const filter = () => {
    const chosen = { words: form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean) };
    for (const role of ["model", "task", "metric"]) chosen[role] = form.elements[role].value;
    chosen.flagged = form.elements.flagged.checked;
    tables.forEach((table) => table.filter(chosen));
    const found = tables.reduce((sum, table) => sum + table.order.length, 0);
    form.elements.found.value = `${found.toLocaleString("en-US")} rows`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  filter();
  const closed = document.querySelectorAll("details:not([open])");
  addEventListener("beforeprint", () => {
    tables.forEach((table) => table.draw(true));
    document.querySelectorAll("details").forEach((part) => (part.open = true));
  });
  addEventListener("afterprint", () => {
    tables.forEach((table) => table.draw());
    closed.forEach((part) => (part.open = false));
  });
  theme(document.getElementById("theme"));
  document.documentElement.classList.add("scripted");
}

// Remembered where the browser lets a file remember.
function theme(select) {
  const wear = (name) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
  };
  try {
    select.value = localStorage.getItem("evalstats-theme") ?? "system";
  } catch { /* as the system has it, then */ }
  if (select.selectedIndex < 0) select.value = "system";
  wear(select.value);
  select.addEventListener("change", () => {
    wear(select.value);
    try {
      localStorage.setItem("evalstats-theme", select.value);
    } catch { /* until the page is closed, then */ }
  });
}

start();
