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
    this.tag = traces.head.live;
    this.live = el("span", { class: "tag tag-good", text: "live", hidden: !traces.head.live });
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
    this.tabs = new Map();
    this.help = el(
      "dialog",
      { "aria-label": "Keys" },
      el("h2", { text: "Keys" }),
      factList(KEYS),
      el("button", { type: "button", text: "Close", on: { click: () => this.help.close() } })
    );
  }

  start() {
    const { title, unreadable } = this.traces.head;
    const names = [["turns", "Turns"], ["memories", "Memories"], ["health", "Health"]];
    const tabs = names.map(([name, text]) => {
      const tab = el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": name, text, on: { click: () => this.open(name) } });
      this.tabs.set(name, tab);
      return tab;
    });
    const help = el("button", { type: "button", "aria-label": "Keys", text: "?", on: { click: () => this.help.showModal() } });
    const header = el("header", {}, el("h1", {}, quoted(title)), this.live, el("nav", { role: "tablist" }, ...tabs), help);
    this.main = el("main");
    const lost = unreadable ? el("p", { class: "note note-bad", text: `${plural(unreadable, "record")} could not be read and ${unreadable === 1 ? "is" : "are"} left out.` }) : null;
    replaced(document.body, header, lost, this.main, this.help);
    document.addEventListener("keydown", (event) => this.onKey(event));
    const [name, number] = this.placeMeant();
    this.open(name, number);
    if (this.traces.head.live) this.follow();
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
    if (Object.hasOwn(this.views, name)) return [name];
    return [this.traces.turns.length ? "turns" : "memories"];
  }

  open(name, number) {
    if (this.current === name) return;
    this.current = name;
    for (const [other, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(other === name));
    }
    const view = this.views[name];
    replaced(this.main, view.node);
    if (!view.isStarted) {
      view.isStarted = true;
      view.start(number);
    } else if (view.list) view.list.draw();
    if (name !== "turns") history.replaceState(null, "", `#${name}`);
  }

  onKey(event) {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape" && isTyping) event.target.blur();
    const isRange = event.target.type === "range";
    if ((isTyping && !isRange) || event.ctrlKey || event.metaKey || event.altKey) return;
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
    if (!Object.hasOwn(actions, event.key) || this.help.open) return;
    event.preventDefault();
    actions[event.key]();
  }
}

async function main() {
  const place = document.getElementById("traces");
  try {
    const traces = await unpack(place.textContent);
    place.remove();
    const app = new App(traces);
    app.start();
    // For the console, and for whoever wants to ask the same of many turns.
    window.inspector = { traces, app, whatIf, recordedOutcomes };
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    document.body.replaceChildren(
      el("p", { class: "note note-bad", text: `This page could not be read: ${error}. It needs a browser of 2023 or later.` })
    );
    throw error;
  }
}

main();
