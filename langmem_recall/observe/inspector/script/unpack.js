// What the page holds: rows and columns as JSON, compressed, in Base64.

async function unpack(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const head = await new Response(stream).json();
  const named = (fields) => (row, number) => ({ number, ...Object.fromEntries(fields.map((field, i) => [field, row[i]])) });
  const [turns, memories] = [head.turns.map(named(head.turnFields)), head.memories.map(named(head.memoryFields))];
  let count = 0;
  for (const turn of turns) {
    turn.start = count;
    count += turn.count;
  }
  return new Traces({ head, turns, memories, count, columns: head.columns });
}

class Traces {
  constructor(held) {
    Object.assign(this, held);
    this.unranked = new Set(this.head.unrankedGates);
    this.gateWords = new Map(Object.entries(this.head.gateWords));
    this.feedback = new Map(this.head.feedback.map(([id, namespace, key, good]) => [JSON.stringify([id, namespace, key]), good]));
  }

  memoryAt(place) {
    return this.memories[this.columns.memory[place]];
  }

  gateAt(place) {
    return this.head.gates[this.columns.gate[place]];
  }

  usage(place) {
    return usageOf(this.head.usages[this.columns.usage[place]]);
  }

  // The candidates of a turn with all that was recorded of them.
  candidates(turn) {
    return Array.from({ length: turn.count }, (_, index) => this.candidate(turn.start + index, index));
  }

  candidate(at, index) {
    const row = Object.fromEntries(Object.entries(this.columns).map(([name, column]) => [name, column[at]]));
    const { relevance, dense, recency, importance, strength, reason, dense_rank: denseRank, lexical_rank: lexicalRank } = row;
    const memory = this.memoryAt(at);
    const similarity = dense === null ? relevance : Math.min(Math.max(dense, 0), 1);
    const signals = { relevance, similarity, recency, importance, strength, trust: memory.trust };
    const known = { usage: this.usage(at), gate: this.gateAt(at), reason: this.head.reasons[reason] };
    return { ...row, ...known, index, memory, denseRank, lexicalRank, signals };
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
        if (!named[this.columns.memory[at]]) continue;
        if (this.columns.place[at] || this.gateAt(at) === "visible") return true;
      }
      return false;
    };
    return this.turns.filter((turn) => told(turn, turn.text, ...turn.parts, turn.answer).includes(words) || isNamed(turn));
  }
}

function usageOf([uses, decayed, lastUsed, before, merit]) {
  return { uses: uses || 0, decayed: decayed || 0, lastUsed, before, merit: merit || 0 };
}
