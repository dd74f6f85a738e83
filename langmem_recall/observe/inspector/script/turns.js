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

class TurnsView {
  constructor(traces) {
    this.traces = traces;
    this.folded = new Set();
    this.detail = new TurnDetail(traces);
    this.list = new LongList("Turns", TURN_ROW, (one) => this.row(one), (turn) => this.show(turn));
    this.search = el("input", {
      type: "search",
      placeholder: "Search cues, memories, answers  ( / )",
      "aria-label": "Search cues, memories and answers",
      on: { input: () => this.filter() },
    });
    const outcomes = [
      ["", "All turns"],
      ...OUTCOMES.map(([name, words]) => [name, words.replace(/:.*/, "")]),
      ["degraded", "degraded"],
      ["compacted", "compacted"],
    ];
    this.outcome = select("Outcome", outcomes, () => this.filter());
    const groups = [["", "By time"], ["thread", "By thread"], ["user", "By user"]];
    this.group = select("Groups", groups, () => this.filter());
    if (traces.turns.some((turn) => turn.thread !== null)) this.group.value = "thread";
    else if (new Set(traces.turns.map((turn) => traces.user(turn))).size > 1) this.group.value = "user";
    this.strip = el("canvas", { class: "strip", height: STRIP, "aria-hidden": "true" });
    this.strip.addEventListener("click", (event) => this.jump(event));
    this.count = el("p", { class: "quiet", "aria-live": "polite" });
    const side = el(
      "div",
      { class: "side" },
      el("div", { class: "filters" }, this.search, this.outcome, this.group),
      this.strip,
      this.count,
      this.list.node
    );
    this.node = el("section", { class: "split", id: "turns" });
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
      if (wanted === "degraded" || wanted === "compacted") return turn[wanted].length > 0;
      return !wanted || traces.outcome(turn) === wanted;
    });
    const all = plural(traces.turns.length, "turn");
    const isAll = found.length === traces.turns.length;
    this.count.textContent = isAll ? all : `${found.length.toLocaleString("en")} of ${all}`;
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
    const outcome = this.traces.outcome(turn);
    return el(
      "div",
      { class: "turn-row" },
      el(
        "div",
        { class: "turn-head" },
        el("span", { class: "quiet", text: `${turn.number + 1} · ${moment(turn.at).slice(5, 16)}` }),
        el("span", { class: `tag tag-${outcome}`, text: outcomeWords(this.traces, turn) }),
        turn.degraded.length ? el("span", { class: "tag tag-bad", text: "degraded" }) : null
      ),
      quoted(turn.text || turn.parts.join(" | ") || "(no words)", "one-line")
    );
  }

  groupRow({ name, turns }) {
    const isFolded = this.folded.has(name);
    const recalled = turns.filter((turn) => this.traces.outcome(turn) === "recalled").length;
    const users = [...new Set(turns.map((turn) => this.traces.user(turn)))];
    const facts = [plural(turns.length, "turn"), `${recalled} with memories`];
    if (this.group.value === "thread") facts.unshift(users.slice(0, 2).join(", "));
    const fold = () => {
      this.folded[isFolded ? "delete" : "add"](name);
      const top = this.list.node.scrollTop;
      this.filter(this.current?.number);
      this.list.node.scrollTop = top;
    };
    return el(
      "div",
      { class: "turn-row group-row", "aria-expanded": String(!isFolded), on: { click: fold } },
      el("b", { class: "one-line" }, el("span", { text: isFolded ? "▸ " : "▾ " }), quoted(name)),
      quoted(facts.join(" · "), "quiet one-line")
    );
  }

  show(turn) {
    this.current = turn;
    this.detail.show(turn);
    this.drawStrip();
    if (this.onShow) this.onShow(turn);
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
    strip.width = width * scale;
    strip.height = STRIP * scale;
    const pen = strip.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(strip);
    const { columns } = this.shares;
    const step = width / columns.length;
    OUTCOMES.forEach(([name], k) => {
      pen.fillStyle = style.getPropertyValue(`--${name}`);
      columns.forEach((shares, i) => {
        const below = shares.slice(0, k).reduce((sum, share) => sum + share, 0);
        pen.fillRect(i * step, STRIP * (1 - below - shares[k]), step - (step > 3 ? 1 : 0), STRIP * shares[k]);
      });
    });
    if (this.current) {
      pen.fillStyle = style.getPropertyValue("--ink");
      pen.fillRect((width * (this.current.number + 0.5)) / traces.turns.length - 1, 0, 2, STRIP);
    }
  }

  jump(event) {
    const share = event.offsetX / this.strip.clientWidth;
    this.showTurn(Math.floor(share * this.traces.turns.length));
  }

  showTurn(number) {
    const place = this.items.findIndex((one) => one.number === number);
    if (place < 0) {
      this.search.value = "";
      this.outcome.value = "";
      this.folded.clear();
      this.filter(number);
    } else this.list.select(place);
    this.node.classList.add("is-open");
  }
}

function outcomeWords(traces, turn) {
  const outcome = traces.outcome(turn);
  const chosen = traces.chosen(turn);
  const memories = plural(chosen, "memory", "memories");
  if (outcome === "tool") return chosen ? `tool: ${memories}` : "tool: nothing";
  if (outcome === "recalled") return memories;
  if (outcome === "prompt") return "in the prompt";
  if (outcome !== "blind") return outcome === "failed" ? "failed" : "nothing stored";
  if (!turn.count) return "no candidate";
  const gates = [...traces.gateCounts(turn).keys()];
  return traces.words(["trigger", "floor", "composite"].find((one) => gates.includes(one)) || gates[0]);
}

// So many stretches of the turns, from the oldest to the latest.
function slices(turns, most) {
  const count = Math.min(most, turns.length);
  const from = (i) => Math.floor((i * turns.length) / count);
  return Array.from({ length: count }, (_, i) => turns.slice(from(i), from(i + 1)));
}

function outcomeShares(traces, turns) {
  const counts = new Map();
  for (const turn of turns) {
    const outcome = traces.outcome(turn);
    counts.set(outcome, (counts.get(outcome) || 0) + 1);
  }
  return OUTCOMES.map(([name]) => (counts.get(name) || 0) / turns.length);
}
