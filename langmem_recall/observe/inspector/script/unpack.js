// What the page holds: columns of numbers and rows of JSON, compressed, in Base64.

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return bytes;
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
      for (let i = 0; i < this.count; i += 1) numbers[i] |= this.bytes[from + i] << (8 * plane);
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

async function unpack(base64) {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let start = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, start)));
  const named = (fields) => (row, number) => {
    const record = { number };
    for (let i = 0; i < fields.length; i += 1) record[fields[i]] = row[i];
    return record;
  };
  const turns = head.turns.map(named(head.turnFields));
  let count = 0;
  for (const turn of turns) {
    turn.start = count;
    count += turn.count;
  }
  const columns = {};
  for (const column of head.columns) {
    columns[column.name] = new Column(bytes, start, count, column);
    start += column.width * count;
  }
  return new Traces({ head, turns, memories: head.memories.map(named(head.memoryFields)), columns, count });
}

class Traces {
  constructor(held) {
    Object.assign(this, held);
    this.unranked = new Set(this.head.unrankedGates);
    this.gateWords = new Map(Object.entries(this.head.gateWords));
    this.feedback = new Map(this.head.feedback.map(([id, namespace, key, good]) => [JSON.stringify([id, namespace, key]), good]));
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

  // The candidates of a turn with all that was recorded of them.
  candidates(turn) {
    return Array.from({ length: turn.count }, (_, index) => this.candidate(turn.start + index, index));
  }

  candidate(at, index) {
    const read = (name) => this.columns[name].value(at);
    const [relevance, dense, memory] = [read("relevance"), read("dense"), this.memoryAt(at)];
    const names = ["place", "twin", "coverage", "bm25", "entity", "episode", "alone", "score"];
    return {
      ...Object.fromEntries(names.map((name) => [name, read(name)])),
      index,
      memory,
      dense,
      usage: this.usage(at),
      gate: this.gateAt(at),
      reason: this.head.reasons[read("reason")],
      denseRank: read("dense_rank") || null,
      lexicalRank: read("lexical_rank") || null,
      signals: {
        relevance,
        similarity: dense === null ? relevance : Math.min(Math.max(dense, 0), 1),
        recency: read("recency"),
        importance: (Math.round(memory.salience * 1e6) + this.columns.importance_lift.whole(at)) / 1e6,
        strength: read("strength"),
        trust: memory.trust,
      },
    };
  }

  policy(turn) {
    return this.head.policies[turn.policy];
  }

  namespace(number) {
    return this.head.namespaces[number].join("/") || "everywhere";
  }

  user(turn) {
    return turn.namespaces.map((number) => this.namespace(number)).join(", ");
  }

  title(turn) {
    return turn.text || turn.parts.join(" | ") || "(no words)";
  }

  words(gate) {
    return this.gateWords.get(gate) || gate;
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
    return (turn.chosen ??= this.gateCounts(turn).get("") || 0);
  }

  // As the monitor counts them: what the prompt shows already, and what a model asked for by tool,
  // is neither injected nor missed.
  outcome(turn) {
    return (turn.outcome ??= this.findOutcome(turn));
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
    const named = this.memories.map((one) => told(one, one.text, one.key).includes(words));
    const isNamed = ({ start, count }) => {
      for (let at = start; at < start + count; at += 1) {
        if (!named[this.columns.memory.whole(at)]) continue;
        if (this.columns.place.whole(at) || this.gateAt(at) === "visible") return true;
      }
      return false;
    };
    return this.turns.filter((turn) => told(turn, turn.text, ...turn.parts, turn.answer).includes(words) || isNamed(turn));
  }
}

function usageOf([uses, decayed, lastUsed, before, merit]) {
  return { uses: uses || 0, decayed: decayed || 0, lastUsed, before, merit: merit || 0 };
}
