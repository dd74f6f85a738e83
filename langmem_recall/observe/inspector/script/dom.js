// Elements from texts: whatever a memory says is set as text, never as markup.

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

// What cannot be seen, or turns the writing around, is shown by its number.
const seen = (text) =>
  String(text).replace(HIDDEN, (char) => `\u27e8U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);

// Elements by "tag.class#id"; then come attributes and listeners in objects, children, and texts.
const maker = (create) => (spec, ...rest) => {
  const [tag, ...marks] = spec.split(/(?=[.#])/);
  const node = create(tag);
  for (const mark of marks) {
    if (mark[0] === "#") node.id = mark.slice(1);
    else node.classList.add(mark.slice(1));
  }
  for (const part of rest.flat()) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node) node.append(part);
    else if (typeof part !== "object") node.append(seen(part));
    else for (const [name, value] of Object.entries(part)) setPart(node, name, value);
  }
  return node;
};

function setPart(node, name, value) {
  if (typeof value === "function") node.addEventListener(name, value);
  else if (name === "style") Object.assign(node.style, value ?? {});
  else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
}

const el = maker((tag) => document.createElement(tag));
const svg = maker((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
const button = (...rest) => el("button", { type: "button" }, ...rest);

// A text of somebody else's, kept apart from the writing around it.
const quoted = (text, className) => el("bdi", { class: className }, text);

function replaced(node, ...children) {
  node.replaceChildren(...children.flat().filter(Boolean));
}

function select(label, options, change) {
  return el("select", { "aria-label": label, change }, options.map(([value, text]) => el("option", { value }, text)));
}

const searchField = (label, placeholder, input) =>
  el("input", { type: "search", placeholder: `${placeholder}  ( / )`, "aria-label": label, input });
const sumOf = (some, count) => some.reduce((sum, one) => sum + Number(count(one)), 0);
const thousands = (count) => count.toLocaleString("en");
const plural = (count, one, many = `${one}s`) => `${thousands(count)} ${count === 1 ? one : many}`;
const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
const fixed = (number, digits = 2) => (number === null ? "–" : number.toFixed(digits));
const moment = (seconds, from = 0, to = 19) =>
  seconds === null ? "–" : new Date(1e3 * seconds).toISOString().replace("T", " ").slice(from, to);

function ago(seconds) {
  if (seconds === null || Number.isNaN(seconds)) return "of unknown age";
  const hours = seconds / 3600;
  if (hours < 0) return "from the future";
  if (hours < 1) return `${Math.round(60 * hours)} min old`;
  return hours < 48 ? `${Math.round(hours)} h old` : `${Math.round(hours / 24)} d old`;
}

// What there is to say of a memory beyond its text: out of force, masked, pinned.
const statusTags = ({ status, pinned }) => [
  status !== "active" && el("span.tag.tag-bad", status),
  pinned && el("span.tag", "pinned"),
];

const factList = (pairs) =>
  el("dl.facts", pairs.map(([name, value]) => el("div", el("dt", name), el("dd", quoted(value)))));

// A list and what is chosen of it: side by side, or one after the other where there is no room.
function fillSplit(node, side, list, detail) {
  list.onOpen = (item) => item.isGroup || node.classList.add("is-open");
  const back = button({ class: "back", click: () => node.classList.remove("is-open") }, "‹ Back to the list");
  replaced(node, el("div.side", side, list.node), el("div.pane", back, detail));
}

// A long list of which only the visible rows exist.
class LongList {
  constructor(label, rowHeight, makeRow, onSelect) {
    Object.assign(this, { label, rowHeight, makeRow, onSelect, items: [], selected: -1 });
    this.canvas = el("div.long-canvas");
    const listeners = { scroll: () => this.draw(), keydown: (event) => this.onKey(event) };
    this.node = el("div.long", { role: "listbox", tabindex: "0", "aria-label": label }, listeners, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  show(items, selected) {
    Object.assign(this, { items, selected: -1 });
    this.canvas.style.height = `${items.length * this.rowHeight}px`;
    this.node.scrollTop = 0;
    this.select(selected);
    this.draw();
  }

  select(place) {
    if (place < 0 || place >= this.items.length || this.items[place].isGroup) return;
    this.selected = place;
    const top = place * this.rowHeight;
    const { scrollTop, clientHeight } = this.node;
    if (top < scrollTop) this.node.scrollTop = top;
    else if (clientHeight && top + this.rowHeight > scrollTop + clientHeight) {
      this.node.scrollTop = top + this.rowHeight - clientHeight;
    }
    this.draw();
    this.onSelect(this.items[place]);
  }

  move(by) {
    const step = Math.sign(by);
    let place = Math.max(0, Math.min(this.items.length - 1, this.selected + by));
    while (this.items[place]?.isGroup && place + step >= 0) place += step;
    // Above the first row there is only its group.
    this.select(this.items[place]?.isGroup ? this.selected : place);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight) - 1);
    const all = this.items.length;
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -all, End: all }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    this.move(by);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / this.rowHeight) - 3);
    const count = Math.ceil(this.node.clientHeight / this.rowHeight) + 6;
    const rows = this.items.slice(first, first + count).map((item, i) => {
      const place = first + i;
      const row = this.makeRow(item);
      row.id = `${this.label}-${place}`;
      row.classList.add("long-row");
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(place === this.selected));
      Object.assign(row.style, { top: `${place * this.rowHeight}px`, height: `${this.rowHeight}px` });
      row.addEventListener("click", () => {
        this.select(place);
        this.onOpen(item);
      });
      if (place === this.selected) this.node.setAttribute("aria-activedescendant", row.id);
      return row;
    });
    this.canvas.replaceChildren(...rows);
  }
}
