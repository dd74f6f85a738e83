// What would have been recalled under other knobs: the arithmetic of `ranking/` and of
// `pipeline.select` on the recorded signals. The tests compare the two, candidate by candidate.

const NEUTRAL = 0.5;
const LRU2_SECONDS = 86400;
const RRF_K = 60;
const LEAST_SPREAD = 1e-4;
const MOMENT_HOURS = 1 / 60;
const DIVERSITY_REACH = 4;
const LEAST_TEXT_TOKENS = 10;
const MARGIN = Math.E;
const SURE = 0.9;
const MOST_ALONE = 4;
const SIGNAL_NAMES = ["similarity", "recency", "importance", "strength", "trust"];

// Six digits, ties to the even digit, as they are recorded.
function sixDigits(number) {
  const scaled = number * 1e6;
  let whole = Math.round(scaled);
  if (whole - scaled === 0.5 && whole % 2 !== 0) whole -= 1;
  return whole / 1e6;
}

function refreshedAt(usage, lru2) {
  if (!lru2) return usage.lastUsed;
  if (usage.lastUsed === null || usage.before === null) return null;
  return usage.lastUsed - usage.before <= LRU2_SECONDS ? usage.lastUsed : null;
}

function ageHours(candidate, at, knobs) {
  const used = refreshedAt(candidate.usage, knobs.lru2);
  const seen = used ?? candidate.memory.written_at;
  return seen === null ? NaN : (at - seen) / 3600;
}

function usesNow(usage, at, knobs) {
  const idle = usage.lastUsed === null ? 0 : Math.max(at - usage.lastUsed, 0) / 86400;
  return usage.decayed * knobs.count_fade_per_day ** idle;
}

function isLasting({ memory }, knobs) {
  return memory.pinned || knobs.durable_kinds.includes(memory.kind);
}

function halved(age, halfLife) {
  return Number.isNaN(age) ? NEUTRAL : 2 ** (-Math.max(age, 0) / halfLife);
}

function recencyOf(candidate, at, knobs) {
  if (isLasting(candidate, knobs)) return 1;
  const uses = knobs.ebbinghaus ? usesNow(candidate.usage, at, knobs) : 0;
  return sixDigits(halved(ageHours(candidate, at, knobs), knobs.half_life_hours * (1 + uses)));
}

// What holds now was said last, not read last.
function recencyOfWriting(candidate, at, knobs) {
  if (isLasting(candidate, knobs)) return 1;
  const written = candidate.memory.written_at ?? NaN;
  const seen = refreshedAt(candidate.usage, knobs.lru2) ?? written;
  return halved((at - seen) / 3600 + (seen - written) / 3600, knobs.half_life_hours);
}

// Recorded signals; recency anew where the half-life is another than the recorded one.
function signalsUnder(candidate, at, knobs, recorded) {
  const isSame = recorded === null || recorded.half_life_hours === knobs.half_life_hours;
  if (isSame) return candidate.signals;
  return { ...candidate.signals, recency: recencyOf(candidate, at, knobs) };
}

function isWithin(candidate, temporal) {
  const [, start, end] = temporal;
  const written = candidate.memory.written_at;
  if (written === null || (start === null && end === null)) return false;
  return (start === null || written >= start) && (end === null || written < end);
}

function reciprocalRanks(candidates) {
  const ranks = candidates.map(({ denseRank, lexicalRank, entity }) => [
    denseRank,
    lexicalRank,
    entity > 0 ? 1 + candidates.filter((other) => other.entity > entity).length : null,
  ]);
  const channels = [0, 1, 2].filter((channel) => ranks.some((one) => one[channel] !== null));
  const best = channels.length / (RRF_K + 1);
  return ranks.map((one) => {
    let sum = 0;
    for (const channel of channels) if (one[channel] !== null) sum += 1 / (RRF_K + one[channel]);
    return channels.length ? sum / best : 0;
  });
}

// Every blend gives the parts that a score is made of; the score is their sum in its own order.
const BLENDS = {
  bounded(candidates, signals, knobs, turn) {
    const bases =
      knobs.ordering === "relevance"
        ? signals.map((one) => one.relevance)
        : reciprocalRanks(candidates);
    return candidates.map((candidate, i) => {
      const weights = weightsOf(candidate, knobs);
      const boosts = SIGNAL_NAMES.slice(1).map((name) => weights[name] * signals[i][name]);
      if (turn.temporal !== null) boosts[0] = timedBoost(candidate, signals[i], weights, knobs, turn);
      const lift = boosts[0] + boosts[1] + boosts[2] + boosts[3];
      const parts = [["relevance", bases[i]]];
      SIGNAL_NAMES.slice(1).forEach((name, k) => parts.push([name, bases[i] * boosts[k]]));
      return { score: bases[i] * (1 + lift), parts };
    });
  },
  linear(candidates, signals, knobs) {
    return candidates.map((candidate, i) => {
      const weights = weightsOf(candidate, knobs);
      const parts = SIGNAL_NAMES.map((name) => [name, weights[name] * signals[i][name]]);
      return { score: parts.reduce((sum, [, part]) => sum + part, 0), parts };
    });
  },
  minmax(candidates, signals, knobs) {
    const stretched = signals.map(() => ({}));
    for (const name of SIGNAL_NAMES) {
      const values = signals.map((one) => one[name]);
      const low = Math.min(...values);
      const spread = Math.max(...values) - low;
      const moment = name === "recency" ? 1 - 0.5 ** (MOMENT_HOURS / knobs.half_life_hours) : 0;
      const isFlat = spread <= Math.max(LEAST_SPREAD, moment);
      values.forEach((value, i) => (stretched[i][name] = isFlat ? 0.5 : (value - low) / spread));
    }
    return BLENDS.linear(candidates, stretched, knobs);
  },
  product(candidates, signals) {
    return signals.map((one) => {
      const boost = one.importance * one.recency;
      return {
        score: one.similarity + boost,
        parts: [["similarity", one.similarity], ["importance", boost]],
      };
    });
  },
  interpolated(candidates, signals, knobs, turn) {
    const w = knobs.interpolation;
    const ranks = reciprocalRanks(candidates);
    const uses = candidates.map((one) => usesNow(one.usage, turn.judged_at, knobs));
    const most = Math.log1p(Math.max(0, ...uses));
    return candidates.map((candidate, i) => {
      const age = ageHours(candidate, turn.judged_at, knobs);
      const days = Math.max(age, 0) / 24;
      const decay = Number.isNaN(age) ? NEUTRAL : Math.exp(-days / (1 + uses[i]));
      const frequency = most > 0 ? Math.log1p(uses[i]) / most : 0;
      const parts = [
        ["relevance", (0.7 - 0.3 * w) * ranks[i]],
        ["recency", 0.4 * w * decay],
        ["importance", (0.2 - 0.1 * w) * signals[i].importance * decay],
        ["strength", 0.1 * frequency],
      ];
      return { score: parts.reduce((sum, [, part]) => sum + part, 0), parts };
    });
  },
  similarity(candidates, signals) {
    return candidates.map((candidate, i) => {
      const score = candidate.dense === null ? signals[i].relevance - 3 : candidate.dense;
      return { score, parts: [["similarity", Math.max(score, 0)]] };
    });
  },
};

// Good outcomes are a part of their own; bad ones make all others smaller.
function withFeedback({ score, parts }, candidate, knobs) {
  const merit = knobs.blend === "similarity" ? 1 : 1 + knobs.feedback_step * candidate.usage.merit;
  const shares = parts.map(([name, part]) => [name, part * Math.min(merit, 1)]);
  return { score: score * merit, parts: [...shares, ["feedback", score * Math.max(merit - 1, 0)]] };
}

function weightsOf(candidate, knobs) {
  return Object.hasOwn(knobs.tiers, candidate.memory.kind)
    ? knobs.tiers[candidate.memory.kind]
    : knobs.weights;
}

function timedBoost(candidate, signals, weights, knobs, turn) {
  const [mode] = turn.temporal;
  if (mode !== "current" && mode !== "first") {
    return knobs.window_boost * (isWithin(candidate, turn.temporal) ? 1 : 0);
  }
  const isNow = mode === "current";
  const fresh = isNow ? recencyOfWriting(candidate, turn.judged_at, knobs) : 1 - signals.recency;
  return knobs.current_recency * weights.recency * fresh;
}

// Whether a relevance is sure, or not far behind the best by their odds.
function isNear(own, best) {
  return own >= SURE || own * (1 - best) * MARGIN >= best * (1 - own);
}

// Trigger, floor, composite floor, already visible; pinned memories need not be relevant.
function softRejection(one, best, knobs) {
  const { relevance } = one.signals;
  if (!one.candidate.memory.pinned) {
    if (best < knobs.trigger) {
      return ["trigger", `best relevance ${best.toFixed(2)} is below the trigger ${knobs.trigger}`];
    }
    if (relevance < knobs.floor) {
      return ["floor", `relevance ${relevance.toFixed(2)} is below the floor ${knobs.floor}`];
    }
    if (knobs.trigger && one.candidate.alone && !isNear(relevance, best)) {
      const [own, most] = [relevance.toFixed(2), best.toFixed(2)];
      return ["floor", `relevance ${own} is far behind the best, ${most}`];
    }
    if (one.score < knobs.composite_floor) {
      return ["composite", `score ${one.score.toFixed(2)} is below ${knobs.composite_floor}`];
    }
  }
  return one.candidate.gate === "visible" ? ["visible", one.candidate.reason] : null;
}

// Two memories are alike where the trace says so: likeness as such is not recorded.
function alikePairs(candidates) {
  const pairs = new Set();
  for (const { index, gate, twin } of candidates) {
    if (gate === "duplicate" && twin >= 0) {
      pairs.add(`${index} ${twin}`);
      pairs.add(`${twin} ${index}`);
    }
  }
  return pairs;
}

function withoutDuplicates(near, pairs) {
  const kept = [];
  const dropped = [];
  for (const one of near) {
    const { index, memory } = one.candidate;
    const twin = kept.find((other) => pairs.has(`${index} ${other.candidate.index}`));
    if (twin === undefined || memory.pinned) kept.push(one);
    else dropped.push([one, "duplicate", `like ${twin.candidate.memory.key}`]);
  }
  return [kept, dropped];
}

// Lines that fit the budget, the best first: `agents.block.pack` on tokens that are estimated.
function packed(lines, budget, lineTokens) {
  const whole = lines.map((one) => one.candidate.memory.tokens);
  const kept = new Set();
  const shortened = new Set();
  let left = budget;
  whole.forEach((tokens, i) => {
    const least = Math.min(tokens, lineTokens + LEAST_TEXT_TOKENS);
    if (least > left) return;
    kept.add(i);
    if (tokens > left) shortened.add(i);
    left -= tokens > left ? least : tokens;
  });
  return { kept, shortened };
}

const NO_AUTHORITY = new Set(["external", "agent_inferred"]);

function lacksAuthority({ candidate: { memory } }) {
  return NO_AUTHORITY.has(memory.source) && !Number.isFinite(memory.confirmed_at);
}

// A memory without authority does not lead where a trusted one is as relevant.
function deferring(ranked) {
  if (!ranked.length || !lacksAuthority(ranked[0])) return ranked;
  const least = ranked[0].signals.relevance;
  const place = ranked.findIndex((one) => one.signals.relevance >= least && !lacksAuthority(one));
  return place < 0 ? ranked : [ranked[place], ...ranked.filter((_, i) => i !== place)];
}

// The best unverified memories up to their share of the places, the best few that stand alone for
// each part of the cue; pinned ones are exempt.
function limited(varied, knobs, drop) {
  const most = Math.floor((knobs.unverified_share ?? 1) * knobs.top_k);
  const alone = {};
  let unverified = 0;
  return varied.filter((one) => {
    const { memory, alone: part } = one.candidate;
    if (memory.pinned) return true;
    if (lacksAuthority(one)) {
      unverified += 1;
      if (unverified > most && knobs.blend !== "similarity") {
        drop(one, "authority", `unverified memories may take ${most} of ${knobs.top_k} places`);
        return false;
      }
    }
    alone[part] = (alone[part] || 0) + 1;
    if (!knobs.trigger || !part || alone[part] <= MOST_ALONE) return true;
    if (one.signals.relevance >= SURE) return true;
    drop(one, "top_k", `beyond the best ${MOST_ALONE} that stand alone and are not sure`);
    return false;
  });
}

function cut(varied, knobs) {
  const isPinned = (one) => one.candidate.memory.pinned;
  const ordered = [...varied.filter(isPinned), ...varied.filter((one) => !isPinned(one))];
  const count = Math.max(knobs.top_k, varied.filter(isPinned).length);
  return [ordered.slice(0, count), ordered.slice(count)];
}

function scored(turn, candidates, knobs, recorded) {
  const signals = candidates.map((one) => signalsUnder(one, turn.judged_at, knobs, recorded));
  const blended = BLENDS[knobs.blend](candidates, signals, knobs, turn);
  const ranked = candidates
    .map((candidate, i) => ({
      candidate,
      signals: signals[i],
      ...withFeedback(blended[i], candidate, knobs),
    }))
    .sort((a, b) => b.score - a.score || b.signals.relevance - a.signals.relevance);
  return knobs.blend === "similarity" ? ranked : deferring(ranked);
}

// The outcome of every candidate under the knobs: a place, or a gate and a reason.
function whatIf(traces, turn, candidates, knobs, budget) {
  const recorded = traces.policy(turn).knobs;
  const admitted = candidates.filter((one) => !traces.unranked.has(one.gate));
  const ranked = scored(turn, admitted, knobs, recorded);
  const best = {};
  for (const { candidate, signals } of ranked) {
    best[candidate.alone] = Math.max(best[candidate.alone] || 0, signals.relevance);
  }
  const outcomes = new Map();
  const drop = (one, gate, reason) => outcomes.set(one.candidate.index, { ...one, gate, reason });
  const passed = [];
  for (const one of ranked) {
    const rejection = softRejection(one, best[one.candidate.alone], knobs);
    if (rejection) drop(one, ...rejection);
    else passed.push(one);
  }
  const reach = DIVERSITY_REACH * knobs.top_k;
  const [kept, duplicates] = withoutDuplicates(passed.slice(0, reach), alikePairs(candidates));
  duplicates.forEach(([one, gate, reason]) => drop(one, gate, reason));
  const varied = [...kept, ...passed.slice(reach)];
  const [chosen, beyond] = cut(limited(varied, knobs, drop), knobs);
  beyond.forEach((one) => drop(one, "top_k", `beyond the best ${knobs.top_k}`));
  const fit = budget === null ? null : packed(chosen, budget, traces.head.lineTokens);
  let place = 0;
  chosen.forEach((one, i) => {
    if (fit && !fit.kept.has(i)) {
      drop(one, "budget", `no room in about ${budget} tokens`);
    } else {
      place += 1;
      const isShortened = fit !== null && fit.shortened.has(i);
      outcomes.set(one.candidate.index, { ...one, place, isShortened });
    }
  });
  for (const one of candidates) {
    if (!outcomes.has(one.index)) {
      const { gate, reason, signals } = one;
      outcomes.set(one.index, { candidate: one, signals, score: 0, parts: [], gate, reason });
    }
  }
  return outcomes;
}

// What happened, with the parts that each recorded score was made of.
function recordedOutcomes(traces, turn, candidates) {
  const knobs = traces.policy(turn).knobs;
  const admitted = candidates.filter((one) => !traces.unranked.has(one.gate));
  const parts = new Map(
    knobs === null
      ? []
      : scored(turn, admitted, knobs, knobs).map((one) => [one.candidate.index, one.parts])
  );
  return new Map(
    candidates.map((candidate) => {
      const { index, signals, score, gate, reason, place } = candidate;
      const made = parts.get(index) || [["relevance", signals.relevance]];
      const told = place ? { place, isShortened: turn.compacted.includes(index) } : { gate, reason };
      return [index, { candidate, signals, score, parts: traces.unranked.has(gate) ? [] : made, ...told }];
    })
  );
}

// Whether a turn brings anything under the knobs; where no score is gated, relevance decides.
function isInjected(traces, turn, knobs) {
  if (knobs.composite_floor > 0) {
    const outcomes = whatIf(traces, turn, traces.candidates(turn), knobs, null);
    return [...outcomes.values()].some((outcome) => outcome.place);
  }
  const best = {};
  const fit = {};
  for (let place = turn.start; place < turn.start + turn.count; place += 1) {
    const gate = traces.gateAt(place);
    if (!traces.unranked.has(gate)) {
      const relevance = traces.columns.relevance.value(place);
      const alone = traces.columns.alone.whole(place);
      best[alone] = Math.max(best[alone] || 0, relevance);
      if (gate !== "visible") {
        if (traces.memoryAt(place).pinned) return true;
        fit[alone] = Math.max(fit[alone] || 0, relevance);
      }
    }
  }
  return Object.keys(fit).some(
    (alone) =>
      fit[alone] >= knobs.floor &&
      best[alone] >= knobs.trigger &&
      (!knobs.trigger || alone === "0" || isNear(fit[alone], best[alone]))
  );
}
