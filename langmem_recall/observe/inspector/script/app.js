// The page: three views, their keys, and the place one was at.

const KEYS = [
  ["1 2 3", "turns, memories, health"],
  ["j k", "next and previous row"],
  ["↑ ↓ PgUp PgDn Home End", "move in a list that has the focus"],
  ["/", "search"],
  ["r", "reset what-if"],
  ["?", "these keys"],
];

const FOLLOW_MS = 2000;

class App {
  constructor(traces) {
    this.traces = traces;
    const { unreadable, live } = traces.head;
    this.tag = live;
    this.live = el("span.tag.tag-good", { hidden: !live }, "live");
    const showTurn = (number) => {
      this.open("turns");
      this.views.turns.showTurn(number);
    };
    this.views = {
      turns: new TurnsView(traces),
      memories: new MemoriesView(traces, showTurn),
      health: new HealthView(traces, showTurn),
    };
    this.views.turns.onShow = (turn) => {
      if (this.current === "turns") history.replaceState(null, "", `#turn-${turn.number + 1}`);
    };
    this.tabs = ["Turns", "Memories", "Health"].map((text) => {
      const name = text.toLowerCase();
      return button({ role: "tab", id: `tab-${name}`, "aria-controls": name, click: () => this.open(name) }, text);
    });
    this.help = el("dialog", { "aria-label": "Keys" }, el("h2", "Keys"), factList(KEYS), button({ click: () => this.help.close() }, "Close"));
    this.main = el("main");
    const lost = `${plural(unreadable, "record")} could not be read and ${unreadable === 1 ? "is" : "are"} left out.`;
    const help = button({ "aria-label": "Keys", click: () => this.help.showModal() }, "?");
    const header = el("header", el("h1", document.title), this.live, el("nav", { role: "tablist" }, this.tabs), help);
    replaced(document.body, header, unreadable && el("p.note.note-bad", lost), this.main, this.help);
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.open(...this.placeMeant());
    if (live) this.follow();
  }

  // While it is served, the page asks for what has come since: seldom where that takes long.
  async follow() {
    const start = performance.now();
    try {
      const answer = await fetch("/", { headers: { "If-None-Match": this.tag }, cache: "no-store" });
      if (answer.ok) {
        const [, packed] = /id="traces">([^<]*)</.exec(await answer.text());
        this.traces = window.inspector.traces = await unpack(packed);
        for (const view of Object.values(this.views)) view.refresh(this.traces);
      }
      this.tag = answer.headers.get("ETag");
      this.live.textContent = "live";
    } catch {
      this.live.textContent = "no longer served";
    }
    setTimeout(() => this.follow(), FOLLOW_MS + 5 * (performance.now() - start));
  }

  placeMeant() {
    const turn = /^#turn-(\d+)$/.exec(location.hash);
    if (turn) return ["turns", Math.max(0, Number(turn[1]) - 1)];
    const name = location.hash.slice(1);
    return [Object.hasOwn(this.views, name) ? name : this.traces.turns.length ? "turns" : "memories"];
  }

  open(name, number) {
    if (this.current === name) return;
    this.current = name;
    for (const tab of this.tabs) tab.setAttribute("aria-selected", String(tab.id === `tab-${name}`));
    const view = this.views[name];
    replaced(this.main, view.node);
    if (view.isStarted) view.list?.draw();
    else {
      view.isStarted = true;
      view.start(number);
    }
    if (name !== "turns") history.replaceState(null, "", `#${name}`);
  }

  onKey(event) {
    const { target, key } = event;
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
    if (key === "Escape" && isTyping) target.blur();
    if ((isTyping && target.type !== "range") || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = this.views[this.current];
    const actions = {
      1: () => this.open("turns"),
      2: () => this.open("memories"),
      3: () => this.open("health"),
      j: () => view.list?.move(1),
      k: () => view.list?.move(-1),
      r: () => this.views.turns.detail.controls.reset(),
      "?": () => this.help.showModal(),
      "/": () => view.search?.focus(),
    };
    if (!Object.hasOwn(actions, key) || this.help.open) return;
    event.preventDefault();
    actions[key]();
  }
}

async function main() {
  const place = document.getElementById("traces");
  try {
    const traces = await unpack(place.textContent);
    place.remove();
    // For the console, and for whoever wants to ask the same of many turns.
    window.inspector = { traces, app: new App(traces), whatIf, recordedOutcomes };
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    replaced(document.body, el("p.note.note-bad", `This page could not be read: ${error}. It needs a browser of 2023 or later.`));
    throw error;
  }
}

main();
