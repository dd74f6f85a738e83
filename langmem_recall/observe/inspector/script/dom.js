// Elements from texts: whatever a memory says is set as text, never as markup.

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

// What cannot be seen, or turns the writing around, is shown by its number.
function seen(text) {
  return String(text).replace(HIDDEN, (char) => {
    const code = char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    return `\u27e8U+${code}\u27e9`;
  });
}

function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = seen(value);
    else if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (name === "width" || name === "left") node.style[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

// A text of somebody else's, kept apart from the writing around it.
function quoted(text, className) {
  return el("bdi", { class: className, text });
}

function replaced(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null));
}

function svg(tag, given = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function select(label, options, onChange) {
  const choices = options.map(([value, text]) => el("option", { value, text }));
  return el("select", { "aria-label": label, on: { change: onChange } }, ...choices);
}

const plural = (count, one, many = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
const fixed = (number, digits = 2) => (number === null ? "–" : number.toFixed(digits));
const moment = (seconds) =>
  seconds === null ? "–" : new Date(1e3 * seconds).toISOString().replace("T", " ").slice(0, 19);

function ago(seconds) {
  if (seconds === null || Number.isNaN(seconds)) return "of unknown age";
  const hours = seconds / 3600;
  if (hours < 0) return "from the future";
  if (hours < 1) return `${Math.round(60 * hours)} min old`;
  if (hours < 48) return `${Math.round(hours)} h old`;
  return `${Math.round(hours / 24)} d old`;
}

// What there is to say of a memory beyond its text: out of force, masked, pinned.
function statusTags(memory) {
  const { status, pinned } = memory;
  return [
    status === "active" ? null : el("span", { class: "tag tag-bad", text: status }),
    pinned ? el("span", { class: "tag", text: "pinned" }) : null,
  ];
}

function factList(pairs) {
  const rows = pairs.map(([name, value]) =>
    el("div", {}, el("dt", { text: name }), el("dd", {}, quoted(value)))
  );
  return el("dl", { class: "facts" }, ...rows);
}

// A list and what is chosen of it: side by side, or one after the other where there is no room.
function fillSplit(node, side, list, detail) {
  const close = () => node.classList.remove("is-open");
  const back = el("button", { type: "button", class: "back", text: "‹ Back to the list", on: { click: close } });
  list.onOpen = (item) => {
    if (!item.isGroup) node.classList.add("is-open");
  };
  replaced(node, side, el("div", { class: "pane" }, back, detail));
}

// A long list of which only the visible rows exist.
class LongList {
  constructor(label, rowHeight, makeRow, onSelect) {
    Object.assign(this, { rowHeight, makeRow, onSelect, items: [], selected: -1, onOpen() {} });
    this.canvas = el("div", { class: "long-canvas" });
    this.node = el(
      "div",
      { class: "long", role: "listbox", tabindex: "0", "aria-label": label },
      this.canvas
    );
    this.node.addEventListener("scroll", () => this.draw(), { passive: true });
    this.node.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  show(items, selected = items.length ? 0 : -1) {
    this.items = items;
    this.selected = -1;
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
    const last = this.items.length - 1;
    let place = Math.max(0, Math.min(last, this.selected + by));
    const step = Math.sign(by);
    while (this.items[place]?.isGroup && place + step >= 0) place += step;
    // Above the first row there is only its group.
    this.select(this.items[place]?.isGroup ? this.selected : place);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    steps.Home = -this.items.length;
    steps.End = this.items.length;
    if (!Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    this.move(steps[event.key]);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / this.rowHeight) - 3);
    const count = Math.ceil(this.node.clientHeight / this.rowHeight) + 6;
    const rows = this.items.slice(first, first + count).map((item, i) => {
      const place = first + i;
      const row = this.makeRow(item);
      row.classList.add("long-row");
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(place === this.selected));
      row.id = `${this.node.getAttribute("aria-label").replace(/\W/g, "")}-${place}`;
      row.style.top = `${place * this.rowHeight}px`;
      row.style.height = `${this.rowHeight}px`;
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
