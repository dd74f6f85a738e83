// The list of turns, newest first, in groups, and the one that is looked at.

const TURN_ROW = 52;
const STRIP = 26;
// As they are stacked, from the bottom up; the colours are those of the style's `--recalled` etc.
const OUTCOMES = [
  ["recalled", "recalled"],
  ["prompt", "already in the prompt"],
  ["tool", "asked for by tool"],
  ["nothing", "nothing stored"],
  ["blind", "blind: empty with memories stored"],
  ["failed", "recall failed"],
];
const NOTED = ["degraded", "compacted"];

class TurnsView {
  constructor(traces) {
    this.traces = traces;
    this.folded = new Set();
    this.detail = new TurnDetail(traces);
    this.list = new LongList("Turns", TURN_ROW, (one) => this.row(one), (turn) => this.show(turn));
    const filter = () => this.filter();
    this.search = searchField("Search cues, memories and answers", "Search cues, memories, answers", filter);
    const outcomes = OUTCOMES.map(([name, words]) => [name, words.replace(/:.*/, "")]);
    this.outcome = select("Outcome", [["", "All turns"], ...outcomes, ...NOTED.map((name) => [name, name])], filter);
    this.group = select("Groups", [["", "By time"], ["thread", "By thread"], ["user", "By user"]], filter);
    if (traces.turns.some((turn) => turn.thread !== null)) this.group.value = "thread";
    else if (new Set(traces.turns.map((turn) => traces.user(turn))).size > 1) this.group.value = "user";
    this.strip = el("canvas.strip", { height: STRIP, "aria-hidden": "true", click: (event) => this.jump(event) });
    this.count = el("p.quiet", { "aria-live": "polite" });
    this.node = el("section.split#turns");
    const side = [el("div.filters", this.search, this.outcome, this.group), this.strip, this.count];
    fillSplit(this.node, side, this.list, this.detail.node);
    new ResizeObserver(() => this.drawStrip()).observe(this.strip);
  }

  start(number = null) {
    this.filter(number ?? this.traces.turns.length - 1);
    if (number !== null) this.node.classList.add("is-open");
  }

  // More traces have come: whoever looks at the latest turn goes on to the new one.
  refresh(traces) {
    const isLatest = this.current === this.traces.turns.at(-1);
    this.traces = this.detail.traces = this.detail.controls.traces = traces;
    if (this.isStarted) this.filter(isLatest ? traces.turns.length - 1 : this.current?.number);
  }

  filter(number = null) {
    const { traces } = this;
    const wanted = this.outcome.value;
    const found = traces.search(this.search.value.trim().toLowerCase()).filter((turn) => {
      if (NOTED.includes(wanted)) return turn[wanted].length > 0;
      return !wanted || traces.outcome(turn) === wanted;
    });
    const all = plural(traces.turns.length, "turn");
    this.count.textContent = found.length === traces.turns.length ? all : `${thousands(found.length)} of ${all}`;
    this.items = this.grouped(found.toReversed());
    const place = this.items.findIndex((one) => one.number === number);
    this.list.show(this.items, place < 0 ? this.items.findIndex((one) => !one.isGroup) : place);
  }

  grouped(found) {
    const by = this.group.value;
    if (!by) return found;
    const groups = new Map();
    for (const turn of found) {
      const name = by === "user" ? this.traces.user(turn) : (turn.thread ?? "no thread");
      if (!groups.has(name)) groups.set(name, { isGroup: true, name, turns: [] });
      groups.get(name).turns.push(turn);
    }
    return [...groups.values()].flatMap((one) => (this.folded.has(one.name) ? [one] : [one, ...one.turns]));
  }

  row(turn) {
    if (turn.isGroup) return this.groupRow(turn);
    const place = el("span.quiet", `${turn.number + 1} · ${moment(turn.at, 5, 16)}`);
    const degraded = turn.degraded.length > 0 && el("span.tag.tag-bad", "degraded");
    const head = el("div.turn-head", place, outcomeTag(this.traces, turn), degraded);
    return el("div.turn-row", head, quoted(this.traces.title(turn), "one-line"));
  }

  groupRow({ name, turns }) {
    const { traces, folded } = this;
    const isFolded = folded.has(name);
    const recalled = turns.filter((turn) => traces.outcome(turn) === "recalled").length;
    const facts = [plural(turns.length, "turn"), `${recalled} with memories`];
    if (this.group.value === "thread") facts.unshift([...new Set(turns.map((turn) => traces.user(turn)))].slice(0, 2).join(", "));
    const click = () => {
      folded[isFolded ? "delete" : "add"](name);
      const top = this.list.node.scrollTop;
      this.filter(this.current?.number);
      this.list.node.scrollTop = top;
    };
    const title = el("b.one-line", el("span", isFolded ? "▸ " : "▾ "), quoted(name));
    return el("div.turn-row.group-row", { "aria-expanded": String(!isFolded), click }, title, quoted(facts.join(" · "), "quiet one-line"));
  }

  show(turn) {
    this.current = turn;
    this.detail.show(turn);
    this.drawStrip();
    this.onShow?.(turn);
  }

  // All turns at a glance, the oldest on the left: what came of them.
  drawStrip() {
    const { strip, traces } = this;
    const width = strip.clientWidth;
    if (!width || !traces.turns.length) return;
    if (this.shares?.width !== width || this.shares.traces !== traces) {
      this.shares = { width, traces, columns: slices(traces.turns, width).map((some) => outcomeShares(traces, some)) };
    }
    const scale = window.devicePixelRatio || 1;
    Object.assign(strip, { width: width * scale, height: STRIP * scale });
    const pen = strip.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(strip);
    const { columns } = this.shares;
    const step = width / columns.length;
    OUTCOMES.forEach(([name], k) => {
      pen.fillStyle = style.getPropertyValue(`--${name}`);
      columns.forEach((shares, i) => {
        const below = sumOf(shares.slice(0, k), (share) => share);
        pen.fillRect(i * step, STRIP * (1 - below - shares[k]), step - (step > 3 ? 1 : 0), STRIP * shares[k]);
      });
    });
    if (!this.current) return;
    pen.fillStyle = style.getPropertyValue("--ink");
    pen.fillRect((width * (this.current.number + 0.5)) / traces.turns.length - 1, 0, 2, STRIP);
  }

  jump(event) {
    this.showTurn(Math.floor((event.offsetX / this.strip.clientWidth) * this.traces.turns.length));
  }

  showTurn(number) {
    const place = this.items.findIndex((one) => one.number === number);
    if (place < 0) {
      this.search.value = this.outcome.value = "";
      this.folded.clear();
      this.filter(number);
    } else this.list.select(place);
    this.node.classList.add("is-open");
  }
}

function outcomeTag(traces, turn) {
  const outcome = traces.outcome(turn);
  const memories = plural(traces.chosen(turn), "memory", "memories");
  const gates = [...traces.gateCounts(turn).keys()];
  const nearest = ["trigger", "floor", "composite"].find((one) => gates.includes(one)) || gates[0];
  const words = {
    recalled: memories,
    prompt: "in the prompt",
    tool: `tool: ${traces.chosen(turn) ? memories : "nothing"}`,
    nothing: "nothing stored",
    blind: turn.count ? traces.words(nearest) : "no candidate",
    failed: "failed",
  };
  return el(`span.tag.tag-${outcome}`, words[outcome]);
}

// So many stretches of the turns, from the oldest to the latest.
function slices(turns, most) {
  const count = Math.min(most, turns.length);
  const from = (i) => Math.floor((i * turns.length) / count);
  return Array.from({ length: count }, (_, i) => turns.slice(from(i), from(i + 1)));
}

const outcomeShares = (traces, turns) =>
  OUTCOMES.map(([name]) => sumOf(turns, (turn) => traces.outcome(turn) === name) / turns.length);
