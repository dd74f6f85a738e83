// What the page holds: columns of numbers and rows of JSON, compressed, in Base64.

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function unzipped(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// One number a candidate. The lowest bytes of all numbers come first, then the next higher ones;
// they are put together when the column is first read.
class Column {
  constructor(bytes, start, count, { scale, base, width }) {
    Object.assign(this, { bytes, start, count, scale, base, width });
  }

  get counted() {
    const numbers = new Uint32Array(this.count);
    for (let plane = 0; plane < this.width; plane += 1) {
      const from = this.start + plane * this.count;
      const shift = 8 * plane;
      for (let i = 0; i < this.count; i += 1) numbers[i] |= this.bytes[from + i] << shift;
    }
    Object.defineProperty(this, "counted", { value: numbers });
    return numbers;
  }

  whole(place) {
    return this.counted[place] + this.base;
  }

  value(place) {
    const counted = this.counted[place];
    return counted === 0 ? null : (counted + this.base) / this.scale;
  }
}

function named(fields, row) {
  const record = {};
  for (let i = 0; i < fields.length; i += 1) record[fields[i]] = row[i];
  return record;
}

async function unpack(base64) {
  const bytes = await unzipped(bytesOf(base64));
  const view = new DataView(bytes.buffer);
  const headEnd = 4 + view.getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, headEnd)));
  const turns = head.turns.map((row) => named(head.turnFields, row));
  let count = 0;
  turns.forEach((turn, i) => {
    turn.number = i;
    turn.start = count;
    count += turn.count;
  });
  const columns = {};
  let start = headEnd;
  for (const column of head.columns) {
    columns[column.name] = new Column(bytes, start, count, column);
    start += column.width * count;
  }
  const memories = head.memories.map((row, i) =>
    Object.assign(named(head.memoryFields, row), { number: i })
  );
  return new Traces(head, turns, memories, columns, count);
}

class Traces {
  constructor(head, turns, memories, columns, count) {
    Object.assign(this, { head, turns, memories, columns, count });
    this.unranked = new Set(head.unrankedGates);
    this.gateWords = new Map(Object.entries(head.gateWords));
    this.stored = new Map(head.stored);
    this.feedback = new Map();
    for (const [id, namespace, key, good] of head.feedback) {
      this.feedback.set(JSON.stringify([id, namespace, key]), good);
    }
  }

  memoryAt(place) {
    return this.memories[this.columns.memory.whole(place)];
  }

  gateAt(place) {
    return this.head.gates[this.columns.gate.whole(place)];
  }

  usage(place) {
    return usageOf(this.head.usages[this.columns.usage.whole(place)]);
  }

  // A candidate of a turn with all that was recorded of it.
  candidate(turn, index) {
    const place = turn.start + index;
    const read = (name) => this.columns[name].value(place);
    const memory = this.memoryAt(place);
    const relevance = read("relevance");
    const dense = read("dense");
    const salience = Math.round(memory.salience * 1e6);
    return {
      index,
      memory,
      usage: this.usage(place),
      place: read("place"),
      gate: this.gateAt(place),
      reason: this.head.reasons[read("reason")],
      twin: read("twin"),
      denseRank: read("dense_rank") || null,
      lexicalRank: read("lexical_rank") || null,
      dense,
      coverage: read("coverage"),
      bm25: read("bm25"),
      entity: read("entity"),
      episode: read("episode"),
      alone: read("alone"),
      score: read("score"),
      signals: {
        relevance,
        similarity: dense === null ? relevance : Math.min(Math.max(dense, 0), 1),
        recency: read("recency"),
        importance: (salience + this.columns.importance_lift.whole(place)) / 1e6,
        strength: read("strength"),
        trust: memory.trust,
      },
    };
  }

  candidates(turn) {
    const found = [];
    for (let i = 0; i < turn.count; i += 1) found.push(this.candidate(turn, i));
    return found;
  }

  policy(turn) {
    return this.head.policies[turn.policy];
  }

  namespace(number) {
    return this.head.namespaces[number].join("/") || "everywhere";
  }

  // How many candidates each gate dropped, in the order of the gates; chosen ones under "".
  gateCounts(turn) {
    const counts = new Map();
    for (let place = turn.start; place < turn.start + turn.count; place += 1) {
      const gate = this.gateAt(place);
      counts.set(gate, (counts.get(gate) || 0) + 1);
    }
    return counts;
  }

  chosen(turn) {
    if (turn.chosen === undefined) turn.chosen = this.gateCounts(turn).get("") || 0;
    return turn.chosen;
  }

  // As the monitor counts them: what the prompt shows already, and what a model asked for by tool,
  // is neither injected nor missed.
  outcome(turn) {
    if (turn.outcome === undefined) turn.outcome = this.findOutcome(turn);
    return turn.outcome;
  }

  findOutcome(turn) {
    if (String(this.policy(turn).name).startsWith(this.head.asked)) return "tool";
    if (this.chosen(turn)) return "recalled";
    if (turn.count) return this.gateCounts(turn).has("visible") ? "prompt" : "blind";
    if (turn.searched) return "blind";
    return turn.degraded.length ? "failed" : "nothing";
  }

  // Turns whose cue, answer or memories in the prompt hold the words.
  search(words) {
    if (!words) return this.turns;
    const told = (one, ...texts) => (one.told ??= texts.join(" ").toLowerCase());
    const named = this.memories.map((one) => told(one, one.text ?? "", one.key).includes(words));
    const isNamed = (turn) => {
      for (let at = turn.start; at < turn.start + turn.count; at += 1) {
        if (!named[this.columns.memory.whole(at)]) continue;
        if (this.columns.place.whole(at) || this.gateAt(at) === "visible") return true;
      }
      return false;
    };
    return this.turns.filter(
      (turn) =>
        told(turn, turn.text, ...turn.parts, turn.answer ?? "").includes(words) || isNamed(turn)
    );
  }

  user(turn) {
    return turn.namespaces.map((number) => this.namespace(number)).join(", ");
  }

  words(gate) {
    return this.gateWords.get(gate) || gate;
  }
}

function usageOf(row) {
  const [uses, decayed, lastUsed, before, merit] = row;
  return { uses: uses || 0, decayed: decayed || 0, lastUsed, before, merit: merit || 0 };
}
