// The timeline: all turns, what each brought, and the one that is looked at.

const TURN_ROW = 52;
const STRIP = 40;
const EMPTY = 2;

class TurnsView {
  constructor(traces) {
    this.traces = traces;
    this.detail = new TurnDetail(traces);
    this.list = new LongList("Turns", TURN_ROW, (turn) => this.row(turn), (turn) => {
      this.detail.show(turn);
      this.mark(turn);
    });
    this.search = el("input", {
      type: "search",
      placeholder: "Search cues  ( / )",
      "aria-label": "Search cues",
      on: { input: () => this.filter() },
    });
    const outcomes = [
      ["", "All turns"],
      ["recalled", "Recalled"],
      ["empty", "Empty"],
      ["degraded", "Degraded"],
      ["compacted", "Compacted"],
    ];
    this.outcome = select("Outcome", outcomes, () => this.filter());
    this.strip = el("canvas", { class: "strip", height: STRIP, "aria-hidden": "true" });
    this.strip.addEventListener("click", (event) => this.jump(event));
    this.count = el("p", { class: "quiet", "aria-live": "polite" });
    const side = el(
      "div",
      { class: "side" },
      el("div", { class: "filters" }, this.search, this.outcome),
      this.strip,
      this.count,
      this.list.node
    );
    this.node = el("section", { class: "split", id: "turns" }, side, this.detail.node);
    new ResizeObserver(() => this.drawStrip()).observe(this.strip);
  }

  start(number) {
    this.found = this.traces.turns;
    this.list.show(this.found, Math.min(number, this.found.length - 1));
    this.count.textContent = plural(this.found.length, "turn");
  }

  filter() {
    const words = this.search.value.toLowerCase();
    const wanted = this.outcome.value;
    this.found = this.traces.turns.filter((turn) => {
      const told = `${turn.text} ${turn.parts.join(" ")}`.toLowerCase();
      return told.includes(words) && this.isWanted(turn, wanted);
    });
    const all = plural(this.traces.turns.length, "turn");
    const isAll = this.found.length === this.traces.turns.length;
    this.count.textContent = isAll ? all : `${this.found.length.toLocaleString("en")} of ${all}`;
    this.list.show(this.found);
  }

  isWanted(turn, wanted) {
    if (wanted === "recalled") return this.chosen(turn) > 0;
    if (wanted === "empty") return this.chosen(turn) === 0;
    if (wanted === "degraded") return turn.degraded.length > 0;
    return wanted !== "compacted" || turn.compacted.length > 0;
  }

  chosen(turn) {
    if (turn.chosen === undefined) turn.chosen = this.traces.gateCounts(turn).get("") || 0;
    return turn.chosen;
  }

  row(turn) {
    const chosen = this.chosen(turn);
    const label = chosen ? plural(chosen, "memory", "memories") : emptyReason(this.traces, turn);
    return el(
      "div",
      { class: "turn-row" },
      el(
        "div",
        { class: "turn-head" },
        el("span", { class: "quiet", text: `${turn.number + 1} · ${moment(turn.at).slice(0, 16)}` }),
        el("span", { class: chosen ? "tag tag-good" : "tag", text: label }),
        turn.degraded.length ? el("span", { class: "tag tag-bad", text: "degraded" }) : null
      ),
      quoted(turn.text || turn.parts.join(" | ") || "(no words)", "one-line")
    );
  }

  // All turns at a glance: as high as memories were recalled.
  drawStrip() {
    const { strip } = this;
    const { turns } = this.traces;
    const width = strip.clientWidth;
    if (!width || !turns.length) return;
    if (this.heights?.width !== width) this.heights = this.heightsFor(width);
    const scale = window.devicePixelRatio || 1;
    strip.width = width * scale;
    strip.height = STRIP * scale;
    const pen = strip.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(strip);
    const colours = [style.getPropertyValue("--line"), style.getPropertyValue("--relevance")];
    const { columns } = this.heights;
    const step = width / columns.length;
    columns.forEach((height, i) => {
      pen.fillStyle = colours[height > EMPTY ? 1 : 0];
      pen.fillRect(i * step, STRIP - height, Math.max(1, step - (step > 3 ? 1 : 0)), height);
    });
    if (this.current) {
      pen.fillStyle = style.getPropertyValue("--accent");
      pen.fillRect((width * this.current.number) / turns.length, 0, 2, STRIP);
    }
  }

  heightsFor(width) {
    const { turns } = this.traces;
    const count = Math.min(width, turns.length);
    const means = [];
    for (let i = 0; i < count; i += 1) {
      const from = Math.floor((i * turns.length) / count);
      const part = turns.slice(from, Math.floor(((i + 1) * turns.length) / count));
      means.push(part.reduce((sum, turn) => sum + this.chosen(turn), 0) / part.length);
    }
    const most = Math.max(1, ...means);
    const height = (mean) => (mean ? Math.max(EMPTY + 1, (STRIP * mean) / most) : EMPTY);
    return { width, columns: means.map(height) };
  }

  mark(turn) {
    this.current = turn;
    this.drawStrip();
    if (this.onShow) this.onShow(turn);
  }

  jump(event) {
    const share = event.offsetX / this.strip.clientWidth;
    this.showTurn(Math.floor(share * this.traces.turns.length));
  }

  showTurn(number) {
    let place = this.found.findIndex((turn) => turn.number >= number);
    if (place < 0 || this.found[place].number !== number) {
      this.search.value = "";
      this.outcome.value = "";
      this.start(number);
      return;
    }
    this.list.select(place);
  }
}

function emptyReason(traces, turn) {
  if (!turn.count) return turn.searched ? "no candidate" : "nothing stored";
  const gates = [...traces.gateCounts(turn).keys()];
  const gate = ["trigger", "floor", "composite"].find((one) => gates.includes(one)) || gates[0];
  return traces.words(gate);
}
