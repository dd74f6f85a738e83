// One turn: the cue, the funnel through the gates, every candidate, and what-if.

const PART_WORDS = {
  relevance: "relevance",
  similarity: "similarity",
  recency: "recency",
  importance: "importance",
  strength: "use",
  trust: "trust",
  feedback: "feedback",
};

class TurnDetail {
  constructor(traces) {
    this.traces = traces;
    this.controls = new WhatIfControls(traces, () => this.draw());
    this.head = el("div");
    this.result = el("div");
    this.foot = el("div");
    this.node = el("div", { class: "detail" }, this.head, this.controls.node, this.result, this.foot);
  }

  show(turn) {
    this.turn = turn;
    this.candidates = this.traces.candidates(turn);
    this.recorded = recordedOutcomes(this.traces, turn, this.candidates);
    this.controls.show(turn);
    replaced(this.head, ...this.headParts(turn));
    replaced(this.foot, ...this.footParts(turn));
    this.draw();
    this.node.scrollTop = 0;
  }

  headParts(turn) {
    const policy = this.traces.policy(turn);
    const where = turn.namespaces.map((number) => this.traces.namespace(number)).join(", ");
    const channels = Object.entries(turn.channels).map(
      ([name, count]) => `${count.toLocaleString("en")} by ${name}`
    );
    const facts = [
      `${moment(turn.at)} UTC`,
      where,
      `${turn.searched.toLocaleString("en")} stored` + (channels.length ? ` (${channels.join(", ")})` : ""),
      `policy ${policy.name} ${policy.fingerprint}`,
    ];
    if (turn.temporal) facts.push(`asks about: ${temporalWords(turn.temporal)}`);
    return [
      el("h2", {}, quoted(turn.text || turn.parts.join(" | ") || "(no words)")),
      turn.parts.length
        ? el("p", { class: "chips" }, ...turn.parts.map((part) => quoted(part, "chip")))
        : null,
      el("p", { class: "quiet" }, quoted(facts.join(" · "))),
      ...turn.degraded.map((note) => el("p", { class: "note note-bad" }, quoted(note))),
    ];
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
    const largest = Math.max(1e-9, ...[...outcomes.values()].map((one) => total(one.parts)));
    replaced(
      this.result,
      el("p", { class: "funnel-line", id: "funnel", text: isChanged ? this.funnelLine(chosen, dropped) : turn.funnel }),
      this.funnel(chosen, dropped),
      isChanged ? this.difference(outcomes) : null,
      legend(outcomes),
      chosen.length ? el("h3", { text: `Recalled (${chosen.length})` }) : null,
      chosen.length ? this.rows(chosen, largest, isChanged) : null,
      ...turn.conflicts.map((pair) => this.conflict(pair)),
      // The last gates first: what they dropped came nearest.
      ...[...dropped].reverse().flatMap(([gate, drops]) => [
        el("h3", { text: `Not recalled: ${this.traces.words(gate)} (${drops.length})` }),
        this.rows(drops, largest, isChanged),
      ])
    );
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

  // From all candidates to the recalled ones: what each gate took away.
  funnel(chosen, dropped) {
    const all = this.candidates.length;
    if (!all) return null;
    let left = all;
    const steps = [["candidates", all, 0]];
    for (const [gate, drops] of dropped) {
      left -= drops.length;
      steps.push([this.traces.words(gate), left, drops.length]);
    }
    return el(
      "ol",
      { class: "funnel" },
      ...steps.map(([words, kept, lost]) =>
        el(
          "li",
          {},
          el("span", { class: "funnel-bar" }, el("span", { class: "funnel-kept", width: `${(100 * kept) / all}%` })),
          el("span", { class: "funnel-words", text: lost ? `−${lost} ${words}` : `${kept} ${words}` })
        )
      )
    );
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
    const { candidate } = one;
    const { memory } = candidate;
    const was = this.recorded.get(candidate.index);
    const moved = isChanged && Boolean(was.place) !== Boolean(one.place);
    // Of what was recalled only how it was found is told; of the rest which gate dropped it and why.
    const found = candidate.place ? candidate.reason : "";
    const why = one.place ? found : one.reason;
    const summary = el(
      "summary",
      {},
      el("span", { class: "row-place", text: one.place ? String(one.place) : "·" }),
      bar(one.parts, largest),
      el("span", { class: "row-score", text: fixed(one.parts.length ? one.score : null, 3) }),
      quoted(memory.text ?? "(text not recorded)", "row-text"),
      el(
        "span",
        { class: "row-meta quiet" },
        quoted(`${memory.key} · ${memory.kind} · ${memory.source} · ${ago(this.turn.at - (memory.written_at ?? NaN))}`),
        memory.pinned ? el("span", { class: "tag", text: "pinned" }) : null,
        one.isShortened ? el("span", { class: "tag", text: "shortened" }) : null,
        moved ? el("span", { class: "tag tag-moved", text: one.place ? "comes in" : "drops out" }) : null,
        this.feedbackTag(memory)
      ),
      why ? quoted(why, "row-reason") : null
    );
    const details = el("details", { "data-index": candidate.index }, summary);
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(this.facts(one));
    });
    return el("li", { class: one.place ? "row" : "row row-dropped" }, details);
  }

  feedbackTag(memory) {
    const found = this.traces.head.feedback.find(
      ([id, namespace, key]) =>
        id === this.turn.id && namespace === memory.namespace && key === memory.key
    );
    if (!found) return null;
    return el("span", { class: found[3] ? "tag tag-good" : "tag tag-bad", text: found[3] ? "good" : "bad" });
  }

  facts(one) {
    const { candidate, signals } = one;
    const { memory, usage } = candidate;
    const pairs = [
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
    ];
    return el(
      "dl",
      { class: "facts" },
      ...pairs.map(([name, value]) =>
        el("div", {}, el("dt", { text: name }), el("dd", {}, quoted(value)))
      )
    );
  }

  footParts(turn) {
    const timings = Object.entries(turn.timings);
    const sum = timings.reduce((all, [, ms]) => all + ms, 0);
    const told = timings.map(([stage, ms]) => `${stage} ${fixed(ms, 1)} ms`).join(", ");
    const spent =
      turn.budget === null ? "" : `${turn.tokens.toLocaleString("en")} of ${turn.budget.toLocaleString("en")} tokens`;
    return [
      el("h3", { text: "The block as the model saw it" }),
      turn.block === null
        ? el("p", { class: "quiet", text: "Not recorded; the memories are listed above in its order." })
        : el("pre", { class: "block", tabindex: "0", text: turn.block }),
      el("p", { class: "quiet", text: [spent, `recall ${turn.id}`].filter(Boolean).join(" · ") }),
      timings.length
        ? el("p", { class: "quiet" }, quoted(`${fixed(sum, 1)} ms: ${told}`))
        : null,
    ];
  }
}

const total = (parts) => parts.reduce((sum, [, part]) => sum + Math.max(0, part), 0);

function bar(parts, largest) {
  const told = parts.map(([name, part]) => `${PART_WORDS[name]} ${fixed(part, 3)}`).join(", ");
  return el(
    "span",
    { class: "bar", role: "img", "aria-label": told || "not scored", title: told || "not scored" },
    ...parts.map(([name, part]) =>
      el("span", { class: `part part-${name}`, width: `${(100 * Math.max(0, part)) / largest}%` })
    )
  );
}

function legend(outcomes) {
  const names = new Set();
  for (const one of outcomes.values()) {
    for (const [name, part] of one.parts) if (part > 0) names.add(name);
  }
  return el(
    "p",
    { class: "legend quiet" },
    ...[...names].map((name) =>
      el("span", {}, el("i", { class: `swatch part-${name}` }), el("span", { text: PART_WORDS[name] }))
    )
  );
}

function temporalWords([mode, start, end]) {
  if (start === null && end === null) return mode;
  return `${mode}, ${moment(start).slice(0, 10)} to ${moment(end).slice(0, 10)}`;
}
