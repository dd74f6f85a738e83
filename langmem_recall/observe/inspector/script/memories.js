// All memories that were stored or ever candidates: search, life and history.

const MEMORY_ROW = 58;
const LINKS = 30;
const writtenAt = ({ memory }) => memory.written_at ?? 0;
const ORDERS = {
  recalled: ["Most recalled", (a, b) => b.recalled.length - a.recalled.length],
  newest: ["Newest", (a, b) => writtenAt(b) - writtenAt(a)],
  oldest: ["Oldest", (a, b) => writtenAt(a) - writtenAt(b)],
  used: ["Most used", (a, b) => b.usage.uses - a.usage.uses],
};

class MemoriesView {
  constructor(traces, showTurn) {
    Object.assign(this, { traces, showTurn });
    this.node = el("section.split#memories");
  }

  // Made when it is first looked at: it goes through every candidate of every turn.
  start() {
    const { traces } = this;
    this.entries = entriesOf(traces);
    this.now = traces.turns.at(-1)?.at ?? this.entries.reduce((most, one) => Math.max(most, writtenAt(one)), 0);
    this.list = new LongList("Memories", MEMORY_ROW, (one) => this.row(one), (one) => this.show(one));
    this.search = searchField("Search memories", "Search memories", () => this.filter());
    const chosen = (label, name) => {
      const values = [...new Set(this.entries.map((one) => one.memory[name]))].sort();
      return select(label, [["", `All ${label}`], ...values.map((value) => [value, value])], () => this.filter());
    };
    this.wanted = { kind: chosen("kinds", "kind"), source: chosen("sources", "source"), status: chosen("statuses", "status") };
    this.order = select("Order", Object.entries(ORDERS).map(([name, [words]]) => [name, words]), () => this.filter());
    this.count = el("p.quiet", { "aria-live": "polite" });
    this.detail = el("div.detail");
    const filters = el("div.filters", this.search, Object.values(this.wanted), this.order);
    fillSplit(this.node, [filters, this.count], this.list, this.detail);
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
    const wanted = Object.entries(this.wanted).filter(([, { value }]) => value);
    const found = this.entries.filter(
      ({ memory, told }) => told.includes(words) && wanted.every(([name, { value }]) => memory[name] === value)
    );
    found.sort(ORDERS[this.order.value][1]);
    this.count.textContent = plural(found.length, "memory", "memories");
    this.list.show(found, Math.max(0, found.findIndex((one) => one.name === kept)));
    if (!found.length) replaced(this.detail);
  }

  row({ memory, usage, recalled }) {
    const age = ago(this.now - (memory.written_at ?? NaN));
    const facts = [`recalled in ${plural(recalled.length, "turn")}`, plural(usage.uses, "use"), age, memory.kind, memory.source];
    const head = el("div.turn-head", el("span.quiet.one-line", facts.join(" · ")), statusTags(memory));
    return el("div.turn-row", quoted(memory.text || memory.key, "one-line"), head);
  }

  show(entry) {
    const { memory, usage, recalled, dropped } = entry;
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
      ["tags", memory.tags?.join(", ")],
      ["derived from", memory.derived_from?.join(", ")],
    ].filter(([, value]) => value);
    replaced(
      this.detail,
      el("h2", quoted(memory.text || "(text not recorded)")),
      el("p.chips", statusTags(memory)),
      factList(facts),
      this.history(entry),
      el(
        "div.links",
        this.turnLinks(`Recalled in ${plural(recalled.length, "turn")}`, recalled),
        this.turnLinks(`Candidate but not recalled in ${plural(dropped.length, "turn")}`, dropped)
      )
    );
  }

  // What this memory took the place of, what took its place, and its earlier wordings.
  history({ memory, versions }) {
    const near = this.entries.filter((one) => one.memory.namespace === memory.namespace).map((one) => one.memory);
    const line = (words, { text, key }) => el("li", el("span.quiet", `${words} `), quoted(text || key));
    const lines = [
      ...near.filter((one) => one.supersedes?.includes(memory.key)).map((one) => line("superseded by", one)),
      ...(memory.supersedes || []).map((key) => line("supersedes", near.find((one) => one.key === key) || { key })),
      ...versions.filter((one) => one.text !== memory.text).map((one) => line("formerly", one)),
    ];
    return lines.length > 0 && [el("h3", "History"), el("ul", lines)];
  }

  // The latest turns it was a candidate in, how relevant it was there and which gate it met.
  turnLinks(title, places) {
    const { traces } = this;
    const links = places.slice(-LINKS).reverse().map((at) => {
      const turn = traces.turns.findLast((one) => one.start <= at && one.count);
      const gate = traces.gateAt(at);
      const why = [fixed(traces.columns.relevance[at]), gate && traces.words(gate)].filter(Boolean).join(", ");
      const words = quoted(`${turn.number + 1}: ${turn.text || turn.parts.join(" | ")}`);
      return el("li", button({ class: "link", click: () => this.showTurn(turn.number) }, words), el("span.quiet", why));
    });
    const more = places.length - links.length;
    return el("div", el("h3", title), el("ul", links, more > 0 && el("li.quiet", `and ${more} earlier`)));
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
    const entry = found.get(name) || { name, versions: [], recalled: [], dropped: [] };
    found.set(name, entry);
    entry.versions.push(memory);
    byNumber[memory.number] = entry;
    return entry;
  };
  for (let at = 0; at < traces.count; at += 1) {
    const entry = entryOf(traces.memoryAt(at));
    (traces.columns.place[at] ? entry.recalled : entry.dropped).push(at);
    entry.last = at;
  }
  for (const entry of found.values()) {
    Object.assign(entry, { memory: traces.memoryAt(entry.last), usage: traces.usage(entry.last) });
  }
  for (const [number, usage] of traces.head.stored) {
    const memory = traces.memories[number];
    Object.assign(entryOf(memory), { memory, usage: usageOf(traces.head.usages[usage]) });
  }
  for (const entry of found.values()) {
    const { text, key, speaker, tags } = entry.memory;
    entry.told = [text, key, speaker, ...(tags || [])].join(" ").toLowerCase();
  }
  return [...found.values()];
}
