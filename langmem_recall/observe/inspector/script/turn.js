// One turn: what was asked, shown and answered, every candidate by its relevance, and what-if.

const PART_WORDS = {
  relevance: "relevance",
  similarity: "similarity",
  recency: "recency",
  importance: "importance",
  strength: "use",
  trust: "trust",
  feedback: "feedback",
};

// Reasons that the bar and its ticks tell.
const BAR_TELLS = /^(best )?relevance [\d.]+ is below the (floor|trigger)/;

class TurnDetail {
  constructor(traces) {
    this.traces = traces;
    this.controls = new WhatIfControls(traces, () => this.draw());
    this.head = el("div", { class: "turn-top" });
    this.result = el("div");
    const ranking = el("div", { class: "ranking" }, this.controls.node, this.result);
    this.node = el("div", { class: "detail" }, el("div", { class: "turn" }, this.head, ranking));
  }

  show(turn) {
    this.turn = turn;
    this.candidates = this.traces.candidates(turn);
    this.recorded = recordedOutcomes(this.traces, turn, this.candidates);
    this.controls.show(turn);
    replaced(this.head, ...this.headParts(turn));
    this.draw();
    this.node.scrollTop = 0;
  }

  headParts(turn) {
    const { traces } = this;
    const policy = traces.policy(turn);
    const text = turn.text || turn.parts.join(" | ") || "(no words)";
    const parts = turn.parts.filter((part) => part !== turn.text);
    const facts = [`${moment(turn.at)} UTC`, traces.user(turn)];
    if (turn.thread !== null) facts.push(`thread ${turn.thread}`);
    if (turn.temporal) facts.push(`asks about: ${temporalWords(turn.temporal)}`);
    const outcome = traces.outcome(turn);
    return [
      el("h2", {}, quoted(text)),
      parts.length ? el("p", { class: "chips" }, ...parts.map((part) => quoted(part, "chip"))) : null,
      el(
        "p",
        { class: "chips quiet" },
        el("span", { class: `tag tag-${outcome}`, text: outcomeWords(traces, turn) }),
        quoted(facts.join(" · "))
      ),
      ...turn.degraded.map((note) => el("p", { class: "note note-bad" }, quoted(note))),
      el("div", { class: "talk" }, this.blockPanel(turn), this.answerPanel(turn)),
      this.foot(turn, policy),
    ];
  }

  blockPanel(turn) {
    const spent =
      turn.budget === null ? "" : `${turn.tokens.toLocaleString("en")} of ${turn.budget.toLocaleString("en")} tokens`;
    const lines = turn.block === null ? null : blockLines(turn.block);
    const raw = () => el("pre", { class: "block", tabindex: "0", text: turn.block });
    const unknown = this.traces.chosen(turn)
      ? "Not recorded; the memories are listed below in its order."
      : `No new memories${turn.tokens ? "; those of earlier turns stay in view" : ""}.`;
    return panel(
      "Shown to the model",
      spent,
      turn.block === null ? el("p", { class: "quiet", text: unknown }) : null,
      lines ? el("ol", { class: "lines" }, ...lines) : null,
      lines ? el("details", { class: "raw" }, el("summary", { class: "quiet", text: "as it was sent" }), raw()) : null,
      turn.block !== null && !lines ? raw() : null
    );
  }

  answerPanel(turn) {
    if (turn.answer === null) {
      return panel("The model's answer", "", el("p", { class: "quiet", text: "Not recorded: agents with RecallMiddleware and a TraceLog record it." }));
    }
    // Handles of memories stand out.
    const parts = turn.answer.split(/(\[m\d+(?:, ?m\d+)*\])/);
    const shown = parts.map((part, i) => (i % 2 ? el("b", { class: "handle", text: part.slice(1, -1) }) : quoted(part)));
    return panel("The model's answer", "", el("p", { class: "answer", tabindex: "0" }, ...shown));
  }

  foot(turn, policy) {
    const timings = Object.entries(turn.timings);
    const sum = timings.reduce((all, [, ms]) => all + ms, 0);
    const channels = Object.entries(turn.channels).map(([name, count]) => `${count.toLocaleString("en")} by ${name}`);
    const facts = [
      `${turn.searched.toLocaleString("en")} stored` + (channels.length ? ` (${channels.join(", ")})` : ""),
      `policy ${policy.name} ${policy.fingerprint}`,
      `recall ${turn.id}`,
    ];
    if (timings.length) {
      facts.push(`${fixed(sum, 1)} ms: ${timings.map(([stage, ms]) => `${stage} ${fixed(ms, 1)}`).join(", ")}`);
    }
    return el("p", { class: "quiet" }, quoted(facts.join(" · ")));
  }

  draw() {
    const { turn, candidates, controls } = this;
    const isChanged = controls.isChanged();
    const outcomes = isChanged
      ? whatIf(this.traces, turn, candidates, controls.knobs, controls.budget)
      : this.recorded;
    this.outcomes = outcomes;
    const chosen = [...outcomes.values()].filter((one) => one.place);
    chosen.sort((a, b) => a.place - b.place);
    const dropped = this.byGate(outcomes);
    const largest = Math.max(1, ...[...outcomes.values()].map((one) => total(one.parts)));
    const gates = [...dropped].reverse();
    // What the prompt has already is as good as recalled; then the last gates: those came nearest.
    gates.sort(([a], [b]) => (b === "visible") - (a === "visible"));
    const opened = new Set([...this.result.querySelectorAll(".gate[open]")].map((one) => one.dataset.gate));
    const isSame = this.drawn === turn;
    this.drawn = turn;
    replaced(
      this.result,
      el("p", { class: "funnel-line", id: "funnel", text: isChanged ? this.funnelLine(chosen, dropped) : turn.funnel }),
      isChanged ? this.difference(outcomes) : null,
      candidates.length ? this.legend(outcomes) : null,
      chosen.length ? el("h3", { text: `Recalled (${chosen.length})` }) : null,
      chosen.length ? this.rows(chosen, largest, isChanged) : null,
      ...turn.conflicts.map((pair) => this.conflict(pair)),
      ...gates.map(([gate, drops], i) => {
        const isOpen = isSame ? opened.has(gate) : !chosen.length && i === 0;
        return this.gate(gate, drops, largest, isChanged, isOpen);
      })
    );
  }

  // What one gate dropped, folded: how many, and how near the nearest came.
  gate(gate, drops, largest, isChanged, isOpen) {
    const words = gate === "visible" ? "Already in the prompt" : `Not recalled: ${this.traces.words(gate)}`;
    const summary = el(
      "summary",
      {},
      el("b", { text: `${words} (${drops.length})` }),
      quoted(drops[0].reason ?? "", "quiet")
    );
    const node = el("details", { class: `gate gate-${gate}`, "data-gate": gate, open: isOpen }, summary);
    const fill = () => {
      if (node.open && node.children.length === 1) node.append(this.rows(drops, largest, isChanged));
    };
    node.addEventListener("toggle", fill);
    fill();
    return node;
  }

  conflict(pair) {
    const [newer, older] = pair.map((index) => this.candidates[index]?.memory.key ?? "a forgotten memory");
    return el("p", { class: "note" }, quoted(`${newer} contradicts ${older}, which is older`));
  }

  byGate(outcomes) {
    const gates = new Map();
    for (const one of outcomes.values()) {
      if (!one.place) gates.set(one.gate, [...(gates.get(one.gate) || []), one]);
    }
    for (const drops of gates.values()) {
      drops.sort((a, b) => b.signals.relevance - a.signals.relevance);
    }
    return gates;
  }

  funnelLine(chosen, dropped) {
    const drops = [...dropped].map(([gate, some]) => `${some.length} ${this.traces.words(gate)}`);
    const kept = `${chosen.length} recalled`;
    return `candidates ${this.candidates.length} -> ${drops.join(", ") || "none dropped"} -> ${kept}`;
  }

  difference(outcomes) {
    const come = [];
    const gone = [];
    for (const [index, one] of outcomes) {
      const was = this.recorded.get(index).place;
      if (one.place && !was) come.push(one.candidate.memory.key);
      if (!one.place && was) gone.push(one.candidate.memory.key);
    }
    const told = [
      come.length ? `comes in: ${come.join(", ")}` : "",
      gone.length ? `drops out: ${gone.join(", ")}` : "",
    ].filter(Boolean);
    const text = told.join("; ") || "the same memories, perhaps in another order";
    return el("p", { class: "note", id: "difference" }, el("b", { text: "What if: " }), quoted(text));
  }

  rows(some, largest, isChanged) {
    return el("ol", { class: "rows" }, ...some.map((one) => this.row(one, largest, isChanged)));
  }

  row(one, largest, isChanged) {
    const { candidate, signals } = one;
    const { memory } = candidate;
    const was = this.recorded.get(candidate.index);
    const moved = isChanged && Boolean(was.place) !== Boolean(one.place);
    // Of what was recalled only how it was found is told; of the rest which gate dropped it and why.
    const found = candidate.place ? candidate.reason : "";
    const why = one.place ? found : BAR_TELLS.test(one.reason) ? "" : one.reason;
    const good = this.traces.feedback.get(JSON.stringify([this.turn.id, memory.namespace, memory.key]));
    const summary = el(
      "summary",
      {},
      el("span", { class: "row-place", text: one.place ? String(one.place) : "·" }),
      this.bar(one, largest),
      el(
        "span",
        { class: "row-number" },
        el("b", { text: fixed(signals.relevance) }),
        one.parts.length ? el("span", { class: "quiet", text: `score ${fixed(one.score)}` }) : null
      ),
      quoted(memory.text ?? "(text not recorded)", "row-text"),
      el(
        "span",
        { class: "row-meta quiet" },
        quoted(`${memory.key} · ${memory.kind} · ${memory.source} · ${ago(this.turn.at - (memory.written_at ?? NaN))}`),
        ...statusTags(memory),
        one.isShortened ? el("span", { class: "tag", text: "shortened" }) : null,
        moved ? el("span", { class: "tag tag-moved", text: one.place ? "comes in" : "drops out" }) : null,
        good === undefined ? null : el("span", { class: good ? "tag tag-good" : "tag tag-bad", text: good ? "good" : "bad" }),
        why ? quoted(why, "row-reason") : null
      )
    );
    const details = el("details", { "data-index": candidate.index }, summary);
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(this.facts(one));
    });
    const outcome = one.place ? "" : one.gate === "visible" ? " row-prompt" : " row-dropped";
    return el("li", { class: `row${outcome}` }, details);
  }

  // Relevance from 0 to 1 with what the gates ask for; below it, thinner, what the score is made of.
  bar({ signals, parts, score }, largest) {
    const { floor, trigger } = this.controls.knobs;
    const share = (part) => `${Math.min(100, Math.max(0, 100 * part))}%`;
    const made = parts.map(([name, part]) => `${PART_WORDS[name]} ${fixed(part, 3)}`).join(", ");
    const told =
      `relevance ${fixed(signals.relevance, 3)}; floor ${floor}, trigger ${trigger}` +
      (made ? `; score ${fixed(score, 3)} from ${made}` : "; not scored");
    return el(
      "span",
      { class: "bar", role: "img", "aria-label": told, title: told },
      el("span", { class: "bar-fill", width: share(signals.relevance) }),
      el("i", { class: "tick tick-floor", left: share(floor) }),
      el("i", { class: "tick tick-trigger", left: share(trigger) }),
      el(
        "span",
        { class: "bar-score" },
        ...parts.map(([name, part]) => el("span", { class: `part part-${name}`, width: share(part / largest) }))
      )
    );
  }

  legend(outcomes) {
    const { floor, trigger } = this.controls.knobs;
    const names = new Set();
    for (const one of outcomes.values()) {
      for (const [name, part] of one.parts) if (part > 0) names.add(name);
    }
    const entry = (mark, text) => el("span", {}, el("i", { class: mark }), el("span", { text }));
    return el(
      "p",
      { class: "legend quiet" },
      entry("swatch bar-fill", "relevance, 0 to 1"),
      entry("mark tick-floor", `floor ${fixed(floor)}`),
      entry("mark tick-trigger", `trigger ${fixed(trigger)}`),
      el("span", { class: "legend-score" }, "thin line: score from ", ...[...names].map((name) => entry(`swatch part-${name}`, PART_WORDS[name])))
    );
  }

  facts(one) {
    const { candidate, signals } = one;
    const { memory, usage } = candidate;
    return factList([
      ...Object.entries(signals).map(([name, value]) => [name, fixed(value, 6)]),
      ...one.parts.map(([name, value]) => [`score from ${PART_WORDS[name]}`, fixed(value, 4)]),
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

const total = (parts) => parts.reduce((sum, [, part]) => sum + Math.max(0, part), 0);

function panel(title, aside, ...children) {
  const head = el("p", { class: "panel-head" }, el("b", { text: title }), el("span", { class: "quiet", text: aside }));
  return el("section", { class: "panel" }, head, ...children);
}

// The lines of a block as handle, text and label; null where it is not made of such lines.
function blockLines(block) {
  const rows = block.split("\n").filter((line) => line.startsWith("{"));
  try {
    const read = rows.map((row) => JSON.parse(row));
    if (!read.length || !read.every((one) => typeof one.id === "string" && typeof one.text === "string")) return null;
    return read.map(({ id, text, label }) =>
      el(
        "li",
        {},
        el("b", { class: "handle", text: id }),
        el("span", {}, quoted(text), quoted(label ?? "", "line-label quiet"))
      )
    );
  } catch {
    return null;
  }
}

function temporalWords([mode, start, end]) {
  if (start === null && end === null) return mode;
  return `${mode}, ${moment(start).slice(0, 10)} to ${moment(end).slice(0, 10)}`;
}
