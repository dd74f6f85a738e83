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

// One turn: what was asked, shown and answered, every candidate by its relevance, and what-if.

const PART_WORDS = { ...WEIGHTS, relevance: "relevance", feedback: "feedback" };

// Reasons that the bar and its ticks tell.
const BAR_TELLS = /^(best )?relevance [\d.]+ is below the (floor|trigger)/;

class TurnDetail {
  constructor(traces) {
    this.traces = traces;
    this.controls = new WhatIfControls(traces, () => this.draw());
    this.head = el("div.turn-top");
    this.result = el("div");
    this.node = el("div.detail", el("div.turn", this.head, el("div.ranking", this.controls.node, this.result)));
  }

  show(turn) {
    this.turn = turn;
    this.candidates = this.traces.candidates(turn);
    this.recorded = recordedOutcomes(this.traces, turn, this.candidates);
    this.controls.show(turn);
    this.drawHead();
    this.draw();
    this.node.scrollTop = 0;
  }

  drawHead() {
    const { traces, turn } = this;
    const { temporal, timings, degraded } = turn;
    const policy = traces.policy(turn);
    const parts = turn.parts.filter((part) => part !== turn.text).map((part) => quoted(part, "chip"));
    const asked = [`${moment(turn.at)} UTC`, traces.user(turn)];
    if (turn.thread !== null) asked.push(`thread ${turn.thread}`);
    if (temporal) {
      const [mode, start, end] = temporal;
      const isOpen = start === null && end === null;
      asked.push(`asks about: ${mode}${isOpen ? "" : `, ${moment(start, 0, 10)} to ${moment(end, 0, 10)}`}`);
    }
    const stages = Object.entries(timings);
    const channels = Object.entries(turn.channels).map(([name, count]) => `${thousands(count)} by ${name}`).join(", ");
    const found = [`${thousands(turn.searched)} stored${channels && ` (${channels})`}`, `policy ${policy.name} ${policy.fingerprint}`, `recall ${turn.id}`];
    if (stages.length) {
      const sum = sumOf(stages, ([, ms]) => ms);
      found.push(`${fixed(sum, 1)} ms: ${stages.map(([stage, ms]) => `${stage} ${fixed(ms, 1)}`).join(", ")}`);
    }
    replaced(
      this.head,
      el("h2", quoted(traces.title(turn))),
      parts.length && el("p.chips", parts),
      el("p.chips.quiet", outcomeTag(traces, turn), quoted(asked.join(" · "))),
      degraded.map((note) => el("p.note.note-bad", quoted(note))),
      el("div.talk", this.blockPanel(turn), this.answerPanel(turn)),
      el("p.quiet", quoted(found.join(" · ")))
    );
  }

  blockPanel({ block, budget, tokens }) {
    const spent = budget === null ? "" : `${thousands(tokens)} of ${thousands(budget)} tokens`;
    if (block === null) {
      const none = `No new memories${tokens ? "; those of earlier turns stay in view" : ""}.`;
      const unknown = this.traces.chosen(this.turn) ? "Not recorded; the memories are listed below in its order." : none;
      return panel("Shown to the model", spent, el("p.quiet", unknown));
    }
    const raw = el("pre.block", { tabindex: "0" }, block);
    const lines = blockLines(block);
    if (!lines) return panel("Shown to the model", spent, raw);
    return panel("Shown to the model", spent, el("ol.lines", lines), el("details.raw", el("summary.quiet", "as it was sent"), raw));
  }

  answerPanel({ answer }) {
    const absent = "Not recorded: agents with RecallMiddleware and a TraceLog record it.";
    if (answer === null) return panel("The model's answer", "", el("p.quiet", absent));
    // Handles of memories stand out.
    const parts = answer.split(/(\[m\d+(?:, ?m\d+)*\])/);
    const shown = parts.map((part, i) => (i % 2 ? el("b.handle", part.slice(1, -1)) : quoted(part)));
    return panel("The model's answer", "", el("p.answer", { tabindex: "0" }, shown));
  }

  draw() {
    const { traces, turn, candidates, controls } = this;
    const isChanged = (this.isChanged = controls.isChanged());
    const outcomes = isChanged ? whatIf(traces, turn, candidates, controls.knobs, controls.knobs.budget) : this.recorded;
    const all = [...outcomes.values()];
    const chosen = all.filter((one) => one.place).sort((a, b) => a.place - b.place);
    const dropped = new Map();
    for (const one of all.filter(({ place }) => !place)) dropped.set(one.gate, [...(dropped.get(one.gate) || []), one]);
    for (const drops of dropped.values()) drops.sort((a, b) => b.signals.relevance - a.signals.relevance);
    this.largest = Math.max(1, ...all.map(({ parts }) => sumOf(parts, ([, part]) => Math.max(0, part))));
    const drops = [...dropped].map(([gate, some]) => `${some.length} ${traces.words(gate)}`).join(", ");
    const funnel = `candidates ${candidates.length} -> ${drops || "none dropped"} -> ${chosen.length} recalled`;
    // What the prompt has already is as good as recalled; then the last gates: those came nearest.
    const gates = [...dropped].reverse().sort(([a], [b]) => (b === "visible") - (a === "visible"));
    const opened = new Set([...this.result.querySelectorAll(".gate[open]")].map((one) => one.dataset.gate));
    const isSame = this.drawn === turn;
    this.drawn = turn;
    replaced(
      this.result,
      el("p.funnel-line#funnel", isChanged ? funnel : turn.funnel),
      isChanged && this.difference(outcomes),
      candidates.length && this.legend(all),
      chosen.length && [el("h3", `Recalled (${chosen.length})`), this.rows(chosen)],
      turn.conflicts.map((pair) => {
        const [newer, older] = pair.map((index) => candidates[index]?.memory.key ?? "a forgotten memory");
        return el("p.note", quoted(`${newer} contradicts ${older}, which is older`));
      }),
      gates.map(([gate, some], i) => this.gate(gate, some, isSame ? opened.has(gate) : !chosen.length && i === 0))
    );
  }

  // What one gate dropped, folded: how many, and how near the nearest came.
  gate(gate, drops, open) {
    const words = gate === "visible" ? "Already in the prompt" : `Not recalled: ${this.traces.words(gate)}`;
    const summary = el("summary", el("b", `${words} (${drops.length})`), quoted(drops[0].reason ?? "", "quiet"));
    return unfolding(el("details", { class: `gate gate-${gate}`, "data-gate": gate, open }, summary), () => this.rows(drops));
  }

  difference(outcomes) {
    const keys = (isWanted) =>
      [...outcomes].flatMap(([index, one]) => (isWanted(one.place, this.recorded.get(index).place) ? one.candidate.memory.key : [])).join(", ");
    const come = keys((now, was) => now && !was);
    const gone = keys((now, was) => !now && was);
    const told = [come && `comes in: ${come}`, gone && `drops out: ${gone}`].filter(Boolean).join("; ");
    return el("p.note#difference", el("b", "What if: "), quoted(told || "the same memories, perhaps in another order"));
  }

  rows(some) {
    return el("ol.rows", some.map((one) => this.row(one)));
  }

  row(one) {
    const { candidate, signals, place, gate } = one;
    const { memory } = candidate;
    const isMoved = this.isChanged && Boolean(this.recorded.get(candidate.index).place) !== Boolean(place);
    // Of what was recalled only how it was found is told; of the rest which gate dropped it and why.
    const found = candidate.place ? candidate.reason : "";
    const why = place ? found : BAR_TELLS.test(one.reason) ? "" : one.reason;
    const good = this.traces.feedback.get(JSON.stringify([this.turn.id, memory.namespace, memory.key]));
    const summary = el(
      "summary",
      el("span.row-place", place || "·"),
      this.bar(one),
      el("span.row-number", el("b", fixed(signals.relevance)), one.parts.length > 0 && el("span.quiet", `score ${fixed(one.score)}`)),
      quoted(memory.text || "(text not recorded)", "row-text"),
      el(
        "span.row-meta.quiet",
        quoted(`${memory.key} · ${memory.kind} · ${memory.source} · ${ago(this.turn.at - (memory.written_at ?? NaN))}`),
        statusTags(memory),
        one.isShortened && el("span.tag", "shortened"),
        isMoved && el("span.tag.tag-moved", place ? "comes in" : "drops out"),
        good !== undefined && (good ? el("span.tag.tag-good", "good") : el("span.tag.tag-bad", "bad")),
        why && quoted(why, "row-reason")
      )
    );
    const outcome = place ? "row" : gate === "visible" ? "row row-prompt" : "row row-dropped";
    return el("li", { class: outcome }, unfolding(el("details", { "data-index": candidate.index }, summary), () => this.facts(one)));
  }

  // Relevance from 0 to 1 with what the gates ask for; below it, thinner, what the score is made of.
  bar({ signals: { relevance }, parts, score }) {
    const { floor, trigger } = this.controls.knobs;
    const share = (part) => `${Math.min(100, Math.max(0, 100 * part))}%`;
    const made = parts.map(([name, part]) => `${PART_WORDS[name]} ${fixed(part, 3)}`).join(", ");
    const scored = made ? `score ${fixed(score, 3)} from ${made}` : "not scored";
    const told = `relevance ${fixed(relevance, 3)}; floor ${floor}, trigger ${trigger}; ${scored}`;
    return el(
      "span.bar",
      { role: "img", "aria-label": told, title: told },
      el("span.bar-fill", { style: { width: share(relevance) } }),
      el("i.tick.tick-floor", { style: { left: share(floor) } }),
      el("i.tick.tick-trigger", { style: { left: share(trigger) } }),
      el("span.bar-score", parts.map(([name, part]) => el("span.part", { style: { width: share(part / this.largest), background: `var(--${name})` } })))
    );
  }

  legend(all) {
    const { floor, trigger } = this.controls.knobs;
    const names = new Set(all.flatMap(({ parts }) => parts.flatMap(([name, part]) => (part > 0 ? name : []))));
    const entry = (mark, text, style) => el("span", el(mark, { style }), el("span", text));
    return el(
      "p.legend.quiet",
      entry("i.swatch.bar-fill", "relevance, 0 to 1"),
      entry("i.mark.tick-floor", `floor ${fixed(floor)}`),
      entry("i.mark.tick-trigger", `trigger ${fixed(trigger)}`),
      el("span.legend-score", "thin line: score from ", [...names].map((name) => entry("i.swatch", PART_WORDS[name], { background: `var(--${name})` })))
    );
  }

  facts({ candidate, signals, parts }) {
    const { memory, usage } = candidate;
    return factList([
      ...Object.entries(signals).map(([name, value]) => [name, fixed(value, 6)]),
      ...parts.map(([name, value]) => [`score from ${PART_WORDS[name]}`, fixed(value, 4)]),
      ["cosine", fixed(candidate.dense, 3)],
      ["coverage", fixed(candidate.coverage)],
      ["BM25", fixed(candidate.bm25)],
      ["entities", fixed(candidate.entity)],
      ["episode", fixed(candidate.episode)],
      ["uses", `${usage.uses} (now worth ${fixed(usage.decayed)})`],
      ["last used", moment(usage.lastUsed)],
      ["written", moment(memory.written_at)],
      ["valid", `${moment(memory.valid_from)} to ${moment(memory.valid_until)}`],
      ["status", memory.status],
      ["namespace", this.traces.namespace(memory.namespace)],
    ]);
  }
}

// What is inside is made when it is first opened.
function unfolding(details, make) {
  const fill = () => details.open && details.children.length === 1 && details.append(make());
  details.addEventListener("toggle", fill);
  fill();
  return details;
}

const panel = (title, aside, ...children) =>
  el("section.panel", el("p.panel-head", el("b", title), el("span.quiet", aside)), ...children);

// The lines of a block as handle, text and label; null where it is not made of such lines.
function blockLines(block) {
  try {
    const read = block.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
    if (!read.length || !read.every(({ id, text }) => typeof id === "string" && typeof text === "string")) return null;
    return read.map(({ id, text, label }) => el("li", el("b.handle", id), el("span", quoted(text), quoted(label ?? "", "line-label quiet"))));
  } catch {
    return null;
  }
}
