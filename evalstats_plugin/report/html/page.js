// The page looks numbers up, sorts, filters and counts; it computes none. What is from logs goes
// into the page as text nodes alone.
"use strict";

const SIZES = [25, 100, 1000]; // rows at a time
const PRINTED = 2000; // rows of a table on paper
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const SVG = "http://www.w3.org/2000/svg";
const TEXTS = new Set(["text", "notes"]);
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
  count: (value) => (value === null ? "–" : value.toLocaleString("en-US")),
};

function rectangle(kind, x, y, width, height) {
  const drawn = document.createElementNS(SVG, "rect");
  const said = { class: kind, x, y, width, height };
  for (const [key, value] of Object.entries(said)) drawn.setAttribute(key, value);
  return drawn;
}

function bar(from, to, middle, [start, end]) {
  const place = (x) => 100 * Math.min(Math.max((x - start) / (end - start || 1), 0), 1);
  const drawn = document.createElementNS(SVG, "svg");
  const said = { class: "bar", viewBox: "0 0 100 13", preserveAspectRatio: "none", "aria-hidden": "true" };
  for (const [key, value] of Object.entries(said)) drawn.setAttribute(key, value);
  drawn.append(rectangle("axis", 0, 6, 100, 1));
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
      const axis = column.axes[column.axis === 0 ? 0 : column.axis[row]];
      made.append(bar(low, high, column.middle[row], axis));
      made.append(make("span", `[${number(low)}, ${number(high)}]`));
    }
    return made;
  }
  if (!TEXTS.has(column.kind)) {
    const value = column.values[row];
    return make("td", WRITTEN[column.kind](value), { class: "number" });
  }
  const text = column.strings[column.values[row]];
  if (column.kind === "notes") {
    const made = make("td", "", { class: "notes" });
    text.split(",").filter(Boolean).forEach((n, i) => {
      made.append(...(i ? [", "] : []), make("a", n, { href: `#note-${n}` }));
    });
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
    return code === 0 ? null : block.levels[code - 1];
  });
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
    this.filter(this.words);
  }

  filter(words) {
    this.words = words;
    const texts = this.table.columns.filter((c) => TEXTS.has(c.kind) && c.kind !== "notes");
    const tests = words.map((word) =>
      texts.map((c) => c.strings.map((text) => text.toLowerCase().includes(word))));
    this.order = this.all.filter((row) =>
      tests.every((test) => texts.some((c, i) => test[i][c.values[row]])));
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
    this.body.replaceChildren(...this.order.slice(from, to).map((row) => this.row(row)));
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
    return line;
  }
}

const $ = (id) => document.getElementById(id);
const D = JSON.parse($("data").textContent);
const B = D.board;
const columns = B ? B.columns : [];
const lead = columns.findIndex((c) => c.kind === "overall") >= 0 ? columns.findIndex((c) => c.kind === "overall") : 0;
const N = D.models.length;
const MINUS = "\u2212";

function bytes(text) {
  const binary = atob(text);
  return Uint8Array.from({ length: binary.length }, (_, i) => binary.charCodeAt(i)).buffer;
}

for (const column of columns) {
  const packed = column.pairs;
  if (!packed) continue;
  for (const name of ["difference", "low", "high", "low_single", "high_single"]) {
    if (packed[name] === null) continue; // unknown of every pair
    const view = new DataView(bytes(packed[name]));
    packed[name] = column.share
      ? Array.from({ length: view.byteLength / 2 }, (_, i) => view.getInt16(2 * i, true))
      : Array.from({ length: view.byteLength / 4 }, (_, i) => view.getFloat32(4 * i, true));
    packed[name] = packed[name].map((x) => (x === -32768 || Number.isNaN(x) ? null : x));
  }
  packed.verdict = new Int8Array(bytes(packed.verdict));
  if (typeof packed.items === "string") {
    const view = new DataView(bytes(packed.items));
    packed.items = Array.from({ length: view.byteLength / 4 }, (_, i) => view.getInt32(4 * i, true));
  }
}

// The place of a pair: those of the first models, then those of the leader with the others.
function place(i, j) {
  const n = B.kept;
  if (j < n) return (i * (2 * n - i - 1)) / 2 + (j - i - 1);
  return i === 0 ? (n * (n - 1)) / 2 + (j - n) : -1;
}

// What is known of model a less model b; null where nothing can be, or the page leaves it out.
function pair(column, a, b) {
  const at = a === b || !column.pairs ? -1 : place(Math.min(a, b), Math.max(a, b));
  if (at < 0 || (column.pairs.difference?.[at] ?? null) === null) return null;
  const sign = a < b ? 1 : -1;
  const { difference, verdict, items } = column.pairs;
  // Of any pair picked from the page, then of one that was chosen beforehand.
  const [[low, high], single] = ["", "_single"].map((kind) => {
    const ends = [column.pairs[`low${kind}`]?.[at] ?? null, column.pairs[`high${kind}`]?.[at] ?? null];
    return ends[0] === null ? [null, null] : sign > 0 ? ends : [-ends[1], -ends[0]];
  });
  return {
    difference: sign * difference[at], low, high, single, verdict: sign * verdict[at],
    items: typeof items === "number" ? items : items[at],
  };
}

// Scores of 100 with one decimal; other scales with three digits. What is shown as zero has no sign.
function points(column, steps, plus = false) {
  if (steps === null) return "–";
  const size = Math.abs(steps);
  const text = column.share ? (size / 100).toFixed(1) : String(Number(size.toPrecision(3)));
  const sign = Number(text) === 0 ? "" : steps < 0 ? MINUS : plus ? "+" : "";
  return sign + text;
}

const many = (n, noun) => `${n.toLocaleString("en-US")} ${noun}${n === 1 ? "" : "s"}`;
const range = (low, high) => (low === null ? "–" : low === high ? `${low}` : `${low}–${high}`);

function draw(name, attributes, ...inside) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

// An interval with its estimate; filled where it is clear. Positions are shares of the width.
function interval(low, high, middle, [start, end], { kind = "score", zero = null, single = [null], title = "" } = {}) {
  const at = (x) => `${(100 * Math.min(Math.max((x - start) / (end - start || 1), 0), 1)).toFixed(2)}%`;
  const made = draw("svg", { class: `plot ${kind}`, role: "img", "aria-label": title });
  made.append(draw("title", {}, title));
  for (const x of [start, end]) made.append(draw("line", { class: "grid", x1: at(x), x2: at(x), y1: 0, y2: 18 }));
  if (zero !== null) made.append(draw("line", { class: "zero", x1: at(zero), x2: at(zero), y1: 0, y2: 18 }));
  if (low !== null) made.append(draw("line", { class: "limits", x1: at(low), x2: at(high), y1: 9, y2: 9 }));
  if (single[0] !== null) made.append(draw("line", { class: "limits single", x1: at(single[0]), x2: at(single[1]), y1: 9, y2: 9 }));
  made.append(kind === "score"
    ? draw("line", { class: "estimate", x1: at(middle), x2: at(middle), y1: 3, y2: 15 })
    : draw("circle", { class: "estimate", cx: at(middle), cy: 9, r: 4 }));
  return made;
}

const WORDS = { 1: "clearly better", "-1": "clearly worse", 0: "cannot tell" };
const KINDS = { 1: "A", "-1": "B", 0: "none" };

function table(caption, heads, rows) {
  const made = make("table", "");
  const top = make("tr", "");
  top.append(...heads.map(([text, kind]) => make("th", text, { scope: "col", class: kind ?? "" })));
  const head = make("thead", "");
  head.append(top);
  const body = make("tbody", "");
  body.append(...rows);
  // A phone shows each row below its heads.
  for (const row of rows)
    [...row.cells].forEach((cell, i) => { cell.dataset.head = heads[i][0]; });
  made.append(make("caption", caption), head, body);
  const scroll = make("div", "", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption });
  scroll.append(made);
  return scroll;
}

function line(cells, attributes = {}) {
  const made = make("tr", "", attributes);
  cells.forEach(([content, kind], i) => {
    const one = make(i === 0 ? "th" : "td", "", i === 0 ? { scope: "row", class: kind ?? "" } : { class: kind ?? "" });
    one.append(content);
    made.append(one);
  });
  return made;
}

// All state is in the address.
const VIEWS = ["board", "compare", "tasks", "judged", "slices", "suspects", "method"];

function state() {
  const found = new URLSearchParams(location.hash.slice(1));
  const model = (name, other) => {
    const k = D.models.indexOf(found.get(name));
    return k < 0 ? other : k;
  };
  const view = VIEWS.includes(found.get("view")) && $(found.get("view"))
    ? found.get("view") : "board";
  const base = D.baseline ?? 0;
  const a = model("a", base);
  const b = model("b", a === 0 ? Math.min(1, N - 1) : 0);
  return { view, a, b, task: found.get("task"), item: found.get("item") };
}

function address(changes) {
  const now = { ...state(), ...changes };
  const said = new URLSearchParams({ view: now.view });
  if (now.view === "compare") {
    said.set("a", D.models[now.a]);
    said.set("b", D.models[now.b]);
  }
  if (now.task !== null && ["compare", "tasks"].includes(now.view)) said.set("task", now.task);
  if (now.item) said.set("item", now.item);
  return `#${said}`;
}

const link = (text, changes, attributes = {}) => make("a", text, { href: address(changes), ...attributes });
const short = (name) => (name.length > 14 ? `${name.slice(0, 8)}…${name.slice(-4)}` : name);

// Compare

const blockOf = (task) => D.items.findIndex((block) => block.task === task);

function scoresOf(block, item) {
  const found = new Array(N).fill(null);
  answers(block, item).forEach((score, i) => { found[block.models[i]] = score; });
  return found;
}

// A score of one item: in words where all are right or wrong.
function score(block, value) {
  if (value === null) return "–";
  const words = block.levels.every((x) => x === 0 || x === 1);
  if (words) return (value === 1) !== Boolean(block.lower) ? "right" : "wrong";
  return String(Number(value.toPrecision(3)));
}

// Means of items of 0 and 1 as per cent of 100, others with three digits.
function mean(block, value) {
  if (value === null) return "–";
  const share = block.levels.every((x) => x >= 0 && x <= 1);
  return share ? (100 * value).toFixed(1) : String(Number(value.toPrecision(3)));
}

// Items on which two models have other scores, by task, those first that the models agree on most.
function flips(a, b) {
  const found = [];
  D.items.forEach((block, k) => {
    const [i, j] = [block.models.indexOf(a), block.models.indexOf(b)];
    if (i < 0 || j < 0) return;
    block.names.forEach((_, item) => {
      const all = answers(block, item);
      if (all[i] === null || all[j] === null || all[i] === all[j]) return;
      const rest = all.filter((x, m) => m !== i && m !== j && x !== null);
      const low = Math.min(...rest), high = Math.max(...rest);
      const same = Math.max(rest.filter((x) => x === low).length, rest.filter((x) => x === high).length);
      const ahead = (all[i] > all[j]) !== Boolean(block.lower);
      found.push({ block: k, item, a: all[i], b: all[j], ahead, size: Math.abs(all[i] - all[j]), same });
    });
  });
  return found.sort((x, y) => y.size - x.size || y.same - x.same);
}

const FLIPS = 100; // items listed at a time

function showPair({ a, b, task }) {
  [$("a").value, $("b").value] = [a, b];
  const [one, two] = [D.models[a], D.models[b]];
  const title = $("h-compare");
  const strong = (name) => make("b", name);
  const whole = pair(columns[lead], a, b);
  const tasks = columns.filter((c) => c.kind === "task");
  const has = columns[lead].kind === "overall" || columns.length === 1;
  const ends = (c, [low, high]) => (low === null ? "–" : `${points(c, low, low < 0)} to ${points(c, high, low < 0)}`);
  const limits = (p, c) => (p.low === null ? "no limits" : `limits ${ends(c, [p.low, p.high])}`);
  const chosenBefore = (p) => !p.verdict && p.single[0] !== null && (p.single[0] > 0 || p.single[1] < 0);
  if (a === b) title.replaceChildren("Choose two models.");
  else if (!has || !whole) title.replaceChildren(strong(one), " and ", strong(two));
  else {
    const unit = columns[lead].share ? " points" : "";
    const size = points(columns[lead], Math.abs(whole.difference));
    if (whole.verdict) {
      const [up, down] = whole.verdict > 0 ? [one, two] : [two, one];
      const turned = whole.verdict > 0 ? whole : pair(columns[lead], b, a);
      title.replaceChildren(strong(up), " is better than ", strong(down), ` by ${size}${unit} (${limits(turned, columns[lead])}).`);
    } else {
      const ahead = whole.difference > 0 ? "A is" : whole.difference < 0 ? "B is" : "they are";
      title.replaceChildren(strong(one), " and ", strong(two), ` cannot be told apart: ${ahead} ${whole.difference ? `${size}${unit} ahead` : "level"}, ${limits(whole, columns[lead])}.`);
    }
  }
  const found = flips(a, b);
  const verdicts = tasks.map((c) => pair(c, a, b)).filter(Boolean);
  const count = (v) => verdicts.filter((p) => p.verdict === v).length;
  const shown = Math.max(...columns.map((c) => (c.share ? 1 : 0)));
  $("pair-more").textContent = a === b || !verdicts.length
    ? (a === b ? "" : "This page has no limits for this pair: compare has them.")
    : tasks.length < 2 ? ""
    : count(1) + count(-1) === 0 ? `On none of ${many(verdicts.length, "task")} is either clearly better.`
    : `A is clearly better on ${count(1) || "no"} ${count(1) === 1 ? "task" : "tasks"}, B on ${count(-1) || "none"}; on the other ${count(0)} the items cannot tell.`;
  $("pair-single").textContent = a === b || !has || !whole || whole.single[0] === null ? ""
    : `Had you chosen this pair before you saw the scores, the limits of A ${MINUS} B would be ${ends(columns[lead], whole.single)}${chosenBefore(whole) ? ", and one would be better" : ""}. The verdicts are of the wider limits, which hold for whichever pair you pick from this page.`;
  // One scale for all shares, as wide as this pair needs.
  const every = columns.map((c) => [c, pair(c, a, b)]);
  const reach = Math.max(500, ...every.filter(([c, p]) => c.share && p).flatMap(([, p]) => [p.low ?? 0, p.high ?? 0, p.difference].map(Math.abs)));
  const end = Math.min(Math.ceil(reach / 1000) * 1000, 10000);
  const rows = every.map(([c, p]) => {
    const block = blockOf(c.name);
    const own = found.filter((f) => f.block === block);
    const name = c.kind === "task" ? link(c.name, { view: "compare", a, b, task: c.name, item: null }) : document.createTextNode(c === columns[lead] && has ? "Overall" : c.name);
    const kind = [c.kind === "task" ? (c.group ? "inside" : "") : "whole", task === c.name ? "chosen" : ""].join(" ");
    if (!p) return line([[name], [a === b ? "" : "no shared item or limits", "faint"], ...Array(8).fill([""])], { class: kind });
    const most = c.share ? end : Math.max(Math.abs(p.low ?? 0), Math.abs(p.high ?? 0), Math.abs(p.difference)) || 1;
    const said = `${points(c, p.difference, true)}, ${limits(p, c)}: ${WORDS[p.verdict]}`;
    const plot = interval(p.low, p.high, p.difference, [-most, most], { kind: KINDS[p.verdict], zero: 0, single: p.single, title: `${c.name}: A less B ${said}` });
    const words = p.verdict ? `${p.verdict > 0 ? "A" : "B"} clearly better` : chosenBefore(p) ? "only if chosen before" : "cannot tell";
    const counts = c.kind === "task" && block >= 0 ? [own.filter((f) => f.ahead).length, own.filter((f) => !f.ahead).length] : ["", ""];
    return line([
      [name], [p.items.toLocaleString("en-US"), "number"], [points(c, c.estimate[a]), "number"], [points(c, c.estimate[b]), "number"],
      [plot, "plotcell"], [points(c, p.difference, true), "number"], ...[[p.low, p.high], p.single].map(([low, high]) => [low === null ? "–" : `${points(c, low, true)} to ${points(c, high, true)}`, "number"]),
      [words, `verdict ${KINDS[p.verdict]}`], [`${counts[0]}`, "number"], [`${counts[1]}`, "number"],
    ], { class: kind });
  });
  const scale = shown ? `◂ B better   ${MINUS}${end / 100} … +${end / 100}   A better ▸` : "A less B";
  $("pair").replaceChildren(table("Differences of the two models by task", [["Task"], ["Items", "number"], ["A", "number"], ["B", "number"], [scale, "plotcell"], [`A ${MINUS} B`, "number"], ["Limits, picked from this page", "number"], ["Limits, chosen beforehand", "number"], ["Verdict"], ["A ahead", "number"], ["B ahead", "number"]], rows));
  showFlips(found.filter((f) => task === null || D.items[f.block].task === task), { a, b, task });
}

function showFlips(found, { a, b, task }) {
  const of = task === null ? "" : ` of ${task}`;
  const note = $("flips-note");
  if (!D.items.length) note.textContent = "These logs have no answers to single items.";
  else {
    note.textContent = `${many(found.length, "item")}${of}, most telling first: the largest differences, and among them those on which the other models agree.${found.length > FLIPS ? ` The first ${FLIPS} are shown.` : ""} `;
    if (task !== null) note.append(link("All tasks", { view: "compare", a, b, task: null, item: null }));
  }
  const rows = found.slice(0, FLIPS).map((f) => {
    const block = D.items[f.block];
    const name = link(short(block.names[f.item]), { item: `${f.block}.${f.item}` }, { title: block.names[f.item], class: "id" });
    return line([[name], [block.task], [score(block, f.a), `number ${f.ahead ? "up" : ""}`], [score(block, f.b), `number ${f.ahead ? "" : "up"}`], [mean(block, block.means[f.item]), "number"], [strip(block, f.item)]]);
  });
  const heads = [["Item"], ["Task"], ["A", "number"], ["B", "number"], ["Mean", "number"], ["Every model, best left"]];
  $("flips").replaceChildren(...(rows.length ? [table("Items on which the two differ", heads, rows)] : []));
  listed = found.map((f) => `${f.block}.${f.item}`);
}

let listed = []; // items that the arrow keys go through

// A square for each model that answered, the best left; at most 120.
function strip(block, item) {
  const all = answers(block, item).slice(0, 120);
  const [low, high] = [block.levels[0], block.levels.at(-1)];
  const made = draw("svg", { class: "strip", width: 7 * all.length + 1, height: 12, "aria-hidden": "true" });
  all.forEach((x, i) => {
    const kind = x === null ? "missing" : low === high || (x !== low && x !== high) ? "part" : (x === high) !== Boolean(block.lower) ? "most" : "least";
    made.append(draw("rect", { class: kind, x: 7 * i + 0.5, y: 0.5, width: 5.5, height: 11 }));
  });
  return made;
}

// Tasks

function showTasks({ task }) {
  const chosen = columns.find((c) => c.name === task);
  const title = $("h-tasks"), more = $("tasks-more"), place_ = $("task");
  if (!chosen) {
    title.textContent = `${many(columns.filter((c) => c.kind === "task").length, "task")}: where models can be told apart`;
    more.textContent = "Open a task to see every model on it.";
    const rows = columns.map((c) => {
      const known = c.estimate.map((x, k) => [x, k]).filter(([x]) => x !== null);
      const best = known.sort((x, y) => (c.lower ? 1 : -1) * (x[0] - y[0]))[0];
      const first = c.first.filter(Boolean).length;
      const verdicts = c.pairs ? [...c.pairs.verdict] : [];
      return line([
        [link(c.name, { view: "tasks", task: c.name, item: null })], [c.metric], [Math.max(0, ...c.items.filter((x) => x !== null)).toLocaleString("en-US"), "number"],
        [best ? D.models[best[1]] : "–"], [best ? points(c, best[0]) : "–", "number"], [first ? `${first} of ${known.length}` : "–", "number"],
        [verdicts.length ? `${verdicts.filter(Boolean).length.toLocaleString("en-US")} of ${verdicts.length.toLocaleString("en-US")}` : "–", "number"],
      ], { class: c.kind === "task" ? (c.group ? "inside" : "") : "whole" });
    });
    place_.replaceChildren(table("Tasks", [["Task"], ["Metric"], ["Items", "number"], ["Best"], ["Score", "number"], ["May be the best", "number"], [B.kept < N ? "Pairs told apart, of those here" : "Pairs told apart", "number"]], rows));
    return;
  }
  const order = chosen.estimate.map((x, k) => [x, k]).filter(([x]) => x !== null).sort((x, y) => (chosen.lower ? 1 : -1) * (x[0] - y[0]) || x[1] - y[1]);
  const first = chosen.first.filter(Boolean).length;
  title.replaceChildren(make("b", chosen.name), first ? `: ${first} of ${many(order.length, "model")} may be the best.` : `: ${many(order.length, "model")}.`);
  more.replaceChildren(`${chosen.metric}, ${many(Math.max(0, ...chosen.items.filter((x) => x !== null)), "item")}. `, link("All tasks", { view: "tasks", task: null, item: null }));
  const ends = order.flatMap(([x, k]) => [x, chosen.low[k] ?? x, chosen.high[k] ?? x]);
  const span = chosen.share ? [0, 10000] : [Math.min(...ends), Math.max(...ends)];
  const rows = order.map(([x, k]) => line([
    [link(D.models[k], { view: "compare", a: k === 0 ? state().a : 0, b: k === 0 ? 1 : k, task: chosen.name, item: null })], [range(chosen.best[k], chosen.worst[k]), "number"], [points(chosen, x), `number${chosen.first[k] ? " first" : ""}`],
    [interval(chosen.low[k], chosen.high[k], x, span, { title: `${D.models[k]}: ${points(chosen, x)}, limits ${points(chosen, chosen.low[k])} to ${points(chosen, chosen.high[k])}` }), "plotcell"], [chosen.letters[k], "ties"],
  ]));
  const parts = [table(`Models on ${chosen.name}`, [["Model"], ["Rank", "number"], ["Score", "number"], [`Limits, ${points(chosen, span[0])} to ${points(chosen, span[1])}`, "plotcell"], ["Ties"]], rows)];
  const k = blockOf(chosen.name);
  if (k >= 0) parts.push(make("h2", "Its items, lowest mean first"), itemsOf(k));
  place_.replaceChildren(...parts);
}

function itemsOf(k) {
  const block = D.items[k];
  const order = block.names.map((_, i) => i).sort((i, j) => (block.means[i] ?? 0) - (block.means[j] ?? 0) || i - j);
  listed = order.map((i) => `${k}.${i}`);
  const made = make("ul", "", { class: "items" });
  made.append(...order.slice(0, 1000).map((i) => {
    const one = make("li", "");
    one.append(link(short(block.names[i]), { item: `${k}.${i}` }, { title: block.names[i], class: "id" }), ` ${mean(block, block.means[i])}${block.flags[i] ? ` ${block.flags[i]}` : ""}`);
    return one;
  }));
  return made;
}

// An item

function showItem({ item, a, b, view }) {
  const dialog = $("item");
  const [k, i] = (item ?? "").split(".").map(Number);
  const block = D.items[k];
  if (!item || !block || !(i in block.names)) {
    if (dialog.open) dialog.close();
    return;
  }
  const texts = D.texts[item];
  const at = listed.indexOf(item);
  const top = make("div", "", { class: "top" });
  const title = make("h1", "", { id: "h-item" });
  title.append(`${block.task} · `, make("span", block.names[i], { class: "id" }));
  const step = (by, text, name) => {
    const button = make("button", text, { type: "button", "aria-label": name });
    button.disabled = at < 0 || !(at + by in listed);
    button.addEventListener("click", () => location.replace(address({ item: listed[at + by] })));
    return button;
  };
  const close = make("button", "✕", { type: "button", "aria-label": "Close" });
  close.addEventListener("click", () => dialog.close());
  top.append(title, step(-1, "←", "Previous item"), step(1, "→", "Next item"), close);
  const parts = [top];
  const said = (head, text) => { if (text) parts.push(make("h2", head), make("div", text, { class: "text", tabindex: "0" })); };
  const scores = scoresOf(block, i);
  if (texts) {
    said("Question", texts.question);
    said("Target", texts.target);
    const of = Object.keys(texts.answers).map(Number);
    const wanted = view === "compare" ? [a, b].filter((m) => of.includes(m)) : [];
    for (const m of [...wanted, ...of.filter((m) => !wanted.includes(m))]) {
      const [answer, where] = texts.answers[m];
      said(`${D.models[m]}: ${score(block, scores[m])}${where ? ` (${where})` : ""}`, answer || "(no answer logged)");
    }
  } else parts.push(make("p", "This page holds no text of this item: the log has none, or it is not among the suspects and the most surprising items.", { class: "note" }));
  parts.push(make("h2", `Every model's score, the best first: mean ${mean(block, block.means[i])}, correlation with the rest of the task ${block.rest[i] === null ? "–" : signed(block.rest[i])}${block.flags[i] ? `; ${block.flags[i]}` : ""}`));
  const list = make("ol", "", { class: "answers" });
  const [low, high] = [block.levels[0], block.levels.at(-1)];
  answers(block, i).forEach((value, m) => {
    const kind = value === null ? "missing" : low === high || (value !== low && value !== high) ? "part" : (value === high) !== Boolean(block.lower) ? "most" : "least";
    const one = make("li", "", { class: kind });
    one.append(make("span", D.models[block.models[m]], { class: "model" }), make("b", score(block, value)));
    list.append(one);
  });
  parts.push(list);
  dialog.replaceChildren(...parts);
  if (!dialog.open) dialog.showModal();
}

// Leaderboard

function startBoard() {
  const body = document.querySelector("#ranks tbody");
  const lines = [...body.rows];
  const column = columns[lead];
  const others = columns.filter((_, i) => i !== lead);
  const kept = lines.map((row) => row.querySelector(".barcell svg"));
  lines.forEach((row, k) => {
    const name = row.querySelector(".name");
    const other = k === (D.baseline ?? 0) ? (k === 0 ? 1 : 0) : (D.baseline ?? 0);
    if (N > 1) name.replaceChildren(make("a", name.textContent, { href: address({ view: "compare", a: other, b: k, task: null, item: null }) }));
    if (!others.length) return;
    const cell_ = make("td", "", { class: "unfold" });
    const button = make("button", many(others.filter((c) => c.kind === "task").length, "task"), { type: "button", "aria-expanded": "false" });
    button.addEventListener("click", () => button.setAttribute("aria-expanded", row.classList.toggle("open")));
    cell_.append(button);
    row.append(cell_);
  });
  if (others.length) document.querySelector("#ranks thead tr").append(make("td", "", { class: "unfold" }));
  const show = () => {
    const words = $("find").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
    let n = 0;
    lines.forEach((row, k) => {
      const name = D.models[k].toLowerCase();
      row.hidden = (words.length > 0 && !words.some((w) => name.includes(w))) || ($("only").value === "1" && !column.first[k]);
      n += !row.hidden;
    });
    $("count").value = n === N ? many(N, "model") : `${n.toLocaleString("en-US")} of ${many(N, "model")}`;
  };
  $("find").addEventListener("input", show);
  $("only").addEventListener("change", show);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("only").disabled = !column.first.some(Boolean);
  $("bars").append(...lines.slice(0, column.pairs ? B.kept : 0).map((_, k) => new Option(`the difference from ${D.models[k]}`, k)));
  const bars = () => {
    const from = $("bars").value;
    document.querySelector("#ranks .ticks").classList.toggle("off", from !== "");
    if (from === "") {
      lines.forEach((row, k) => {
        row.querySelector(".barcell svg").replaceWith(kept[k]);
        row.querySelector(".barcell").title = `${points(column, column.estimate[k])}, limits ${points(column, column.low[k])} to ${points(column, column.high[k])}`;
      });
      return;
    }
    const found = lines.map((_, k) => pair(column, k, Number(from)));
    const reach = Math.max(1, ...found.filter(Boolean).flatMap((p) => [p.low ?? 0, p.high ?? 0].map(Math.abs)));
    lines.forEach((row, k) => {
      const p = found[k];
      const title = p ? `${points(column, p.difference, true)}, limits ${points(column, p.low, true)} to ${points(column, p.high, true)}: ${WORDS[p.verdict]}` : "";
      const drawn = p ? interval(p.low, p.high, p.difference, [-reach, reach], { kind: KINDS[p.verdict], zero: 0, title }) : draw("svg", { class: "plot" });
      row.querySelector(".barcell svg").replaceWith(drawn);
      row.querySelector(".barcell").title = title;
    });
  };
  $("bars").addEventListener("change", bars);
  const groups = others.some((c) => c.kind === "group");
  const open = $("open-groups");
  open.hidden = !groups;
  document.querySelector("#ranks").classList.toggle("grouped", groups);
  open.addEventListener("click", () => {
    const on = document.querySelector("#ranks").classList.toggle("opened");
    open.setAttribute("aria-pressed", on);
  });
  let sorted = { by: "rank", down: false };
  const key = {
    rank: (k) => k, name: (k) => D.models[k].toLowerCase(),
    score: (k) => column.estimate[k] ?? -Infinity,
  };
  document.querySelectorAll("#ranks thead th[data-sort]").forEach((head) => {
    const button = make("button", "", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const by = head.dataset.sort;
      const numeric = !["rank", "name"].includes(by);
      sorted = { by, down: sorted.by === by ? !sorted.down : numeric };
      const value = key[by] ?? ((k) => others[by].estimate[k] ?? -Infinity);
      const sign = sorted.down ? -1 : 1;
      const order = lines.map((row, k) => [value(k), k]).sort(([x, i], [y, j]) => (x < y ? -sign : x > y ? sign : i - j));
      body.append(...order.map(([, k]) => lines[k]));
      document.querySelectorAll("#ranks thead th").forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    });
  });
  for (const id of ["a", "b"]) {
    $(id).append(...D.models.map((name, k) => new Option(name, k)));
    $(id).addEventListener("change", () => location.replace(address({ [id]: Number($(id).value), item: null })));
  }
  $("swap").addEventListener("click", () => { const { a, b } = state(); location.replace(address({ a: b, b: a, item: null })); });
  show();
}


function render() {
  const now = state();
  for (const view of VIEWS) if ($(view)) $(view).hidden = view !== now.view;
  for (const one of document.querySelectorAll("nav a")) {
    const own = new URLSearchParams(one.hash.slice(1)).get("view") === now.view;
    if (own) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  if (now.view === "compare") showPair(now);
  if (now.view === "tasks") showTasks(now);
  if (now.view === "suspects") listed = [...document.querySelectorAll("#suspects [data-item]")].map((x) => x.dataset.item);
  showItem(now);
}

function start() {
  const tables = D.tables.map((each) => new Rows(each));
  const form = $("filter");
  const filter = () => tables.forEach((each) => each.filter(form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean)));
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
  if (B) startBoard();
  for (const head of document.querySelectorAll("#suspects [data-item]")) {
    const made = make("a", short(head.textContent), { href: address({ view: "suspects", item: head.dataset.item }) });
    head.replaceChildren(made);
  }
  $("item").addEventListener("close", () => { if (state().item) history.replaceState(null, "", address({ item: null })); });
  addEventListener("hashchange", () => {
    const before = document.querySelector("main > section:not([hidden])");
    render();
    if (document.querySelector("main > section:not([hidden])") !== before) scrollTo(0, 0);
  });
  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing && $("find")) {
      event.preventDefault();
      location.hash = "#view=board";
      $("find").focus();
    } else if (["ArrowLeft", "ArrowRight"].includes(event.key) && $("item").open) {
      const by = listed[listed.indexOf(state().item) + (event.key === "ArrowLeft" ? -1 : 1)];
      if (by !== undefined && listed.includes(state().item)) location.replace(address({ item: by }));
    } else if (["ArrowUp", "ArrowDown"].includes(event.key) && document.activeElement?.closest("#ranks th")) {
      const links = [...document.querySelectorAll("#ranks tbody tr:not([hidden]) .name a")];
      const next = links[links.indexOf(document.activeElement) + (event.key === "ArrowUp" ? -1 : 1)];
      if (next) { event.preventDefault(); next.focus(); }
    }
  });
  const closed = [];
  addEventListener("beforeprint", () => {
    tables.forEach((each) => each.draw(true));
    document.querySelectorAll("details:not([open])").forEach((part) => { closed.push(part); part.open = true; });
  });
  addEventListener("afterprint", () => {
    tables.forEach((each) => each.draw());
    closed.splice(0).forEach((part) => { part.open = false; });
  });
  if (matchMedia("(max-width: 820px)").matches)
    document.querySelectorAll("aside details").forEach((part) => { part.open = false; });
  theme($("theme"));
  document.documentElement.classList.add("scripted");
  render();
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
