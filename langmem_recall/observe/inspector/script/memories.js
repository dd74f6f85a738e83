// All memories that were stored or ever candidates: search, life and history.

const MEMORY_ROW = 58;
const LINKS = 30;

class MemoriesView {
  constructor(traces, showTurn) {
    Object.assign(this, { traces, showTurn });
    this.node = el("section", { class: "split", id: "memories" });
  }

  // Made when it is first looked at: it goes through every candidate of every turn.
  start() {
    const { traces } = this;
    this.entries = entriesOf(traces);
    const latest = traces.memories.reduce((most, one) => Math.max(most, one.written_at ?? 0), 0);
    this.now = traces.turns.at(-1)?.at ?? latest;
    this.list = new LongList("Memories", MEMORY_ROW, (one) => this.row(one), (one) => this.show(one));
    this.search = el("input", {
      type: "search",
      placeholder: "Search memories  ( / )",
      "aria-label": "Search memories",
      on: { input: () => this.filter() },
    });
    const chosen = (label, name) => {
      const values = [...new Set(this.entries.map((one) => one.memory[name]))].sort();
      const options = [["", `All ${label}`], ...values.map((value) => [value, value])];
      return select(label, options, () => this.filter());
    };
    this.kind = chosen("kinds", "kind");
    this.source = chosen("sources", "source");
    this.status = chosen("statuses", "status");
    const orders = [
      ["recalled", "Most recalled"],
      ["newest", "Newest"],
      ["oldest", "Oldest"],
      ["used", "Most used"],
    ];
    this.order = select("Order", orders, () => this.filter());
    this.count = el("p", { class: "quiet", "aria-live": "polite" });
    this.detail = el("div", { class: "detail" });
    const filters = el("div", { class: "filters" }, this.search, this.kind, this.source, this.status, this.order);
    const side = el("div", { class: "side" }, filters, this.count, this.list.node);
    fillSplit(this.node, side, this.list, this.detail);
    this.filter();
  }

  // More traces have come.
  refresh(traces) {
    this.traces = traces;
    if (!this.entries) return;
    this.entries = entriesOf(traces);
    this.now = traces.turns.at(-1)?.at ?? this.now;
    this.filter(this.list.items[this.list.selected]?.name);
  }

  filter(kept = null) {
    const words = this.search.value.toLowerCase();
    const wanted = { kind: this.kind.value, source: this.source.value, status: this.status.value };
    const found = this.entries.filter(({ memory, told }) => {
      const isWanted = Object.entries(wanted).every(([name, value]) => !value || memory[name] === value);
      return isWanted && told.includes(words);
    });
    const orders = {
      recalled: (a, b) => b.recalled.length - a.recalled.length,
      newest: (a, b) => (b.memory.written_at ?? 0) - (a.memory.written_at ?? 0),
      oldest: (a, b) => (a.memory.written_at ?? 0) - (b.memory.written_at ?? 0),
      used: (a, b) => b.usage.uses - a.usage.uses,
    };
    found.sort(orders[this.order.value || "recalled"]);
    this.count.textContent = plural(found.length, "memory", "memories");
    const place = kept === null ? 0 : found.findIndex((one) => one.name === kept);
    this.list.show(found, found.length ? Math.max(0, place) : -1);
    if (!found.length) replaced(this.detail);
  }

  row(entry) {
    const { memory, usage } = entry;
    const facts = [
      `recalled in ${plural(entry.recalled.length, "turn")}`,
      plural(usage.uses, "use"),
      ago(this.now - (memory.written_at ?? NaN)),
      memory.kind,
      memory.source,
    ];
    return el(
      "div",
      { class: "turn-row" },
      quoted(memory.text ?? memory.key, "one-line"),
      el(
        "div",
        { class: "turn-head" },
        el("span", { class: "quiet one-line", text: facts.join(" · ") }),
        ...statusTags(memory)
      )
    );
  }

  show(entry) {
    const { memory, usage } = entry;
    const facts = [
      ["key", memory.key],
      ["namespace", this.traces.namespace(memory.namespace)],
      ["kind", memory.kind],
      ["source", `${memory.source}, trust ${fixed(memory.trust)}`],
      ["status", memory.status],
      ["salience", fixed(memory.salience)],
      ["confidence", fixed(memory.confidence)],
      ["written", `${moment(memory.written_at)} (${ago(this.now - (memory.written_at ?? NaN))})`],
      ["confirmed", memory.confirmed_at && moment(memory.confirmed_at)],
      ["valid from", memory.valid_from && moment(memory.valid_from)],
      ["valid until", memory.valid_until && moment(memory.valid_until)],
      ["uses", `${usage.uses}, last ${moment(usage.lastUsed)}`],
      ["feedback", String(usage.merit)],
      ["speaker", memory.speaker],
      ["thread", memory.thread_id && `${memory.thread_id}, turn ${memory.turn ?? "–"}`],
      ["tags", (memory.tags || []).join(", ")],
      ["derived from", (memory.derived_from || []).join(", ")],
    ].filter(([, value]) => value);
    replaced(
      this.detail,
      el("h2", {}, quoted(memory.text ?? "(text not recorded)")),
      el("p", { class: "chips" }, ...statusTags(memory).filter(Boolean)),
      factList(facts),
      ...this.history(entry),
      el(
        "div",
        { class: "links" },
        this.turnLinks(`Recalled in ${plural(entry.recalled.length, "turn")}`, entry.recalled),
        this.turnLinks(`Candidate but not recalled in ${plural(entry.dropped.length, "turn")}`, entry.dropped)
      )
    );
  }

  // What this memory took the place of, what took its place, and its earlier wordings.
  history(entry) {
    const { memory } = entry;
    const isHere = (one) => one.memory.namespace === memory.namespace;
    const older = (memory.supersedes || []).map(
      (key) => this.entries.find((one) => isHere(one) && one.memory.key === key) || key
    );
    const newer = this.entries.filter(
      (one) => isHere(one) && (one.memory.supersedes || []).includes(memory.key)
    );
    const line = (words, one) => {
      const text = typeof one === "string" ? one : (one.memory.text ?? one.memory.key);
      return el("li", {}, el("span", { class: "quiet", text: `${words} ` }), quoted(text));
    };
    const lines = [
      ...newer.map((one) => line("superseded by", one)),
      ...older.map((one) => line("supersedes", one)),
      ...entry.versions
        .filter((one) => one !== memory && one.text !== memory.text)
        .map((one) => line("formerly", { memory: one })),
    ];
    return lines.length ? [el("h3", { text: "History" }), el("ul", {}, ...lines)] : [];
  }

  // The latest turns it was a candidate in, how relevant it was there and which gate it met.
  turnLinks(title, places) {
    const { traces } = this;
    const shown = places.slice(-LINKS).reverse();
    const links = shown.map((at) => {
      const turn = traces.turns.findLast((one) => one.start <= at && one.count);
      const link = el("button", { type: "button", class: "link", on: { click: () => this.showTurn(turn.number) } });
      link.append(quoted(`${turn.number + 1}: ${turn.text || turn.parts.join(" | ")}`));
      const gate = traces.gateAt(at);
      const why = [fixed(traces.columns.relevance.value(at)), gate && traces.words(gate)];
      return el("li", {}, link, el("span", { class: "quiet", text: why.filter(Boolean).join(", ") }));
    });
    const more = places.length - shown.length;
    return el(
      "div",
      {},
      el("h3", { text: title }),
      el("ul", {}, ...links, more ? el("li", { class: "quiet", text: `and ${more} earlier` }) : null)
    );
  }
}

// One entry a memory, as it was last seen, with the turns it was a candidate in.
function entriesOf(traces) {
  const found = new Map();
  const byNumber = [];
  const entryOf = (memory) => {
    const known = byNumber[memory.number];
    if (known) return known;
    const name = JSON.stringify([memory.namespace, memory.key]);
    const entry = found.get(name) || { name, versions: [], recalled: [], dropped: [], last: null };
    found.set(name, entry);
    entry.versions.push(memory);
    byNumber[memory.number] = entry;
    return entry;
  };
  const { place } = traces.columns;
  for (const turn of traces.turns) {
    for (let at = turn.start; at < turn.start + turn.count; at += 1) {
      const entry = entryOf(traces.memoryAt(at));
      (place.whole(at) ? entry.recalled : entry.dropped).push(at);
      entry.last = at;
    }
  }
  for (const entry of found.values()) {
    entry.memory = traces.memoryAt(entry.last);
    entry.usage = traces.usage(entry.last);
  }
  for (const [number, usage] of traces.stored) {
    const stored = traces.memories[number];
    Object.assign(entryOf(stored), { memory: stored, usage: usageOf(traces.head.usages[usage]) });
  }
  for (const entry of found.values()) {
    const { text, key, speaker, tags } = entry.memory;
    entry.told = `${text ?? ""} ${key} ${speaker ?? ""} ${(tags || []).join(" ")}`.toLowerCase();
  }
  return [...found.values()];
}
