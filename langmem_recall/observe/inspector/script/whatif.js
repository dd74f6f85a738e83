// What would have been recalled under other knobs: the arithmetic of `ranking/` and of
// `pipeline.select` on the recorded signals. The tests compare the two, candidate by candidate.

const NEUTRAL = 0.5;
const LRU2_SECONDS = 86400;
const RRF_K = 60;
const LEAST_SPREAD = 1e-4;
const MOMENT_HOURS = 1 / 60;
const DIVERSITY_REACH = 4;
const LEAST_TEXT_TOKENS = 10;
const SURE = 0.9;
const BREADTH = 3;
const SIGNAL_NAMES = ["similarity", "recency", "importance", "strength", "trust"];

// Six digits, ties to the even digit, as they are recorded.
function sixDigits(number) {
  const scaled = number * 1e6;
  let whole = Math.round(scaled);
  if (whole - scaled === 0.5 && whole % 2 !== 0) whole -= 1;
  return whole / 1e6;
}

// When a memory was last touched; an LRU-2 touch counts only soon after the one before it.
function seenAt({ usage: { lastUsed, before }, memory }, knobs) {
  const isTouch = lastUsed !== null && before !== null && lastUsed - before <= LRU2_SECONDS;
  return (knobs.lru2 && !isTouch ? null : lastUsed) ?? memory.written_at ?? NaN;
}

const ageHours = (candidate, at, knobs) => (at - seenAt(candidate, knobs)) / 3600;

function usesNow({ lastUsed, decayed }, at, knobs) {
  const idle = lastUsed === null ? 0 : Math.max(at - lastUsed, 0) / 86400;
  return decayed * knobs.count_fade_per_day ** idle;
}

const isLasting = ({ memory }, knobs) => memory.pinned || knobs.durable_kinds.includes(memory.kind);
const halved = (age, halfLife) => (Number.isNaN(age) ? NEUTRAL : 2 ** (-Math.max(age, 0) / halfLife));

function recencyOf(candidate, at, knobs) {
  if (isLasting(candidate, knobs)) return 1;
  const uses = knobs.ebbinghaus ? usesNow(candidate.usage, at, knobs) : 0;
  return sixDigits(halved(ageHours(candidate, at, knobs), knobs.half_life_hours * (1 + uses)));
}

// What holds now was said last, not read last.
function recencyOfWriting(candidate, at, knobs) {
  if (isLasting(candidate, knobs)) return 1;
  const seen = seenAt(candidate, knobs);
  const written = candidate.memory.written_at ?? NaN;
  return halved((at - seen) / 3600 + (seen - written) / 3600, knobs.half_life_hours);
}

function isWithin({ memory: { written_at: written } }, [, start, end]) {
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
    const known = channels.filter((channel) => one[channel] !== null);
    return channels.length ? sumOf(known, (channel) => 1 / (RRF_K + one[channel])) / best : 0;
  });
}

// Every blend gives the parts that a score is made of; the score is their sum in its own order.
const BLENDS = {
  bounded(candidates, signals, knobs, turn) {
    const ranks = knobs.ordering === "relevance" ? null : reciprocalRanks(candidates);
    return candidates.map((candidate, i) => {
      const base = ranks ? ranks[i] : signals[i].relevance;
      const weights = weightsOf(candidate, knobs);
      const boosts = SIGNAL_NAMES.slice(1).map((name) => [name, weights[name] * signals[i][name]]);
      if (turn.temporal !== null) boosts[0][1] = timedBoost(candidate, signals[i], weights, knobs, turn);
      const parts = [["relevance", base], ...boosts.map(([name, boost]) => [name, base * boost])];
      return { score: base * (1 + sumOf(boosts, ([, boost]) => boost)), parts };
    });
  },
  linear(candidates, signals, knobs) {
    return candidates.map((candidate, i) => {
      const weights = weightsOf(candidate, knobs);
      return summed(SIGNAL_NAMES.map((name) => [name, weights[name] * signals[i][name]]));
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
    return signals.map((one) => summed([["similarity", one.similarity], ["importance", one.importance * one.recency]]));
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
      return summed([
        ["relevance", (0.7 - 0.3 * w) * ranks[i]],
        ["recency", 0.4 * w * decay],
        ["importance", (0.2 - 0.1 * w) * signals[i].importance * decay],
        ["strength", 0.1 * frequency],
      ]);
    });
  },
  similarity(candidates, signals) {
    return candidates.map((candidate, i) => {
      const score = candidate.dense === null ? signals[i].relevance - 3 : candidate.dense;
      return { score, parts: [["similarity", Math.max(score, 0)]] };
    });
  },
};

const summed = (parts) => ({ score: sumOf(parts, ([, part]) => part), parts });
const weightsOf = ({ memory: { kind } }, { tiers, weights }) => (Object.hasOwn(tiers, kind) ? tiers[kind] : weights);

// Good outcomes are a part of their own; bad ones make all others smaller.
function withFeedback({ score, parts }, candidate, knobs) {
  const merit = knobs.blend === "similarity" ? 1 : 1 + knobs.feedback_step * candidate.usage.merit;
  const shares = parts.map(([name, part]) => [name, part * Math.min(merit, 1)]);
  return { score: score * merit, parts: [...shares, ["feedback", score * Math.max(merit - 1, 0)]] };
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
function isNear(own, best, knobs) {
  const margin = Math.max(0.8 * (knobs.breadth || BREADTH) - 0.6, 1);
  return own >= SURE || own * (1 - best) * margin >= best * (1 - own);
}

// Trigger, floor, composite floor, already visible; pinned memories need not be relevant.
function softRejection({ candidate, signals: { relevance }, score }, best, knobs) {
  const [own, most] = [relevance.toFixed(2), best.toFixed(2)];
  if (!candidate.memory.pinned) {
    if (best < knobs.trigger) return ["trigger", `best relevance ${most} is below the trigger ${knobs.trigger}`];
    if (relevance < knobs.floor) return ["floor", `relevance ${own} is below the floor ${knobs.floor}`];
    if (knobs.trigger && candidate.alone && !isNear(relevance, best, knobs)) return ["floor", `relevance ${own} is far behind the best, ${most}`];
    if (score < knobs.composite_floor) return ["composite", `score ${score.toFixed(2)} is below ${knobs.composite_floor}`];
  }
  return candidate.gate === "visible" ? ["visible", candidate.reason] : null;
}

// Without what is like a better one. Two memories are alike where the trace says so: likeness as such is not recorded.
function withoutDuplicates(near, candidates, drop) {
  const twins = candidates.filter(({ gate, twin }) => gate === "duplicate" && twin !== null).map(({ index, twin }) => [index, twin]);
  const isAlike = (a, b) => twins.some(([one, other]) => (one === a && other === b) || (one === b && other === a));
  const kept = [];
  for (const one of near) {
    const { index, memory } = one.candidate;
    const twin = memory.pinned ? undefined : kept.find((other) => isAlike(index, other.candidate.index));
    if (twin === undefined) kept.push(one);
    else drop(one, "duplicate", `like ${twin.candidate.memory.key}`);
  }
  return kept;
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
  const mostAlone = Math.round(knobs.breadth || BREADTH);
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
    const total = Object.values(alone).reduce((sum, count) => sum + count, 0);
    const isBeyond = alone[part] > 1 && total >= mostAlone + Object.keys(alone).length;
    if (!knobs.trigger || !part || !isBeyond) return true;
    if (one.signals.relevance >= SURE) return true;
    drop(one, "top_k", `beyond the best ${mostAlone} that stand alone and are not sure`);
    return false;
  });
}

// Candidates by their scores; recency anew where the half-life is another than the recorded one.
function scored(turn, candidates, knobs, recorded) {
  const isSame = recorded === null || recorded.half_life_hours === knobs.half_life_hours;
  const signals = candidates.map((one) =>
    isSame ? one.signals : { ...one.signals, recency: recencyOf(one, turn.judged_at, knobs) }
  );
  const blended = BLENDS[knobs.blend](candidates, signals, knobs, turn);
  const ranked = candidates
    .map((candidate, i) => ({ candidate, signals: signals[i], ...withFeedback(blended[i], candidate, knobs) }))
    .sort((a, b) => b.score - a.score || b.signals.relevance - a.signals.relevance);
  return knobs.blend === "similarity" ? ranked : deferring(ranked);
}

// The outcome of every candidate under the knobs: a place, or a gate and a reason.
function whatIf(traces, turn, candidates, knobs, budget) {
  const outcomes = new Map();
  for (const candidate of candidates) {
    const { index, gate, reason, signals } = candidate;
    outcomes.set(index, { candidate, signals, score: 0, parts: [], gate, reason });
  }
  const drop = (one, gate, reason) => outcomes.set(one.candidate.index, { ...one, gate, reason });
  const admitted = candidates.filter((one) => !traces.unranked.has(one.gate));
  const ranked = scored(turn, admitted, knobs, traces.policy(turn).knobs);
  const best = {};
  for (const { candidate, signals } of ranked) {
    best[candidate.alone] = Math.max(best[candidate.alone] || 0, signals.relevance);
  }
  const passed = ranked.filter((one) => {
    const rejection = softRejection(one, best[one.candidate.alone], knobs);
    if (rejection) drop(one, ...rejection);
    return !rejection;
  });
  const reach = DIVERSITY_REACH * knobs.top_k;
  const kept = withoutDuplicates(passed.slice(0, reach), candidates, drop);
  const varied = limited([...kept, ...passed.slice(reach)], knobs, drop);
  const pinned = varied.filter((one) => one.candidate.memory.pinned);
  const ordered = [...pinned, ...varied.filter((one) => !one.candidate.memory.pinned)];
  const count = Math.max(knobs.top_k, pinned.length);
  for (const one of ordered.slice(count)) drop(one, "top_k", `beyond the best ${knobs.top_k}`);
  // Lines that fit the budget, the best first: `agents.block.pack` on tokens that are estimated.
  let [left, place] = [budget ?? Infinity, 0];
  for (const one of ordered.slice(0, count)) {
    const { tokens } = one.candidate.memory;
    const least = Math.min(tokens, traces.head.lineTokens + LEAST_TEXT_TOKENS);
    if (least > left) drop(one, "budget", `no room in about ${budget} tokens`);
    else {
      const isShortened = tokens > left;
      left -= isShortened ? least : tokens;
      place += 1;
      outcomes.set(one.candidate.index, { ...one, place, isShortened });
    }
  }
  return outcomes;
}

// What happened, with the parts that each recorded score was made of.
function recordedOutcomes(traces, turn, candidates) {
  const { knobs } = traces.policy(turn);
  const admitted = candidates.filter((one) => !traces.unranked.has(one.gate));
  const ranked = knobs === null ? [] : scored(turn, admitted, knobs, knobs);
  const made = new Map(ranked.map(({ candidate, parts }) => [candidate.index, parts]));
  return new Map(
    candidates.map((candidate) => {
      const { index, signals, score, gate, reason, place } = candidate;
      const parts = traces.unranked.has(gate) ? [] : made.get(index) || [["relevance", signals.relevance]];
      const told = place ? { place, isShortened: turn.compacted.includes(index) } : { gate, reason };
      return [index, { candidate, signals, score, parts, ...told }];
    })
  );
}

// The knobs of what-if, as sliders that start where the turn's policy has them.

const SHARE = { min: 0, max: 1, step: 0.01 };
const WEIGHTS = { similarity: "similarity", recency: "recency", importance: "importance", strength: "use", trust: "trust" };
const SLIDERS = [
  ...Object.entries(WEIGHTS).map(([name, label]) => ({ name, label, ...SHARE, isWeight: true })),
  { name: "half_life_hours", label: "half-life", min: -1, max: 3, step: 0.01, isLog: true },
  { name: "trigger", label: "trigger", ...SHARE },
  { name: "floor", label: "floor", ...SHARE },
  { name: "composite_floor", label: "composite floor", ...SHARE, max: 2 },
  { name: "top_k", label: "memories at most", min: 1, max: 50, step: 1 },
  { name: "budget", label: "budget (about)", min: 50, max: 8000, step: 50 },
];

class WhatIfControls {
  constructor(traces, onChange) {
    Object.assign(this, { traces, onChange, rows: new Map(), moved: new Map() });
    const group = (title, isWeight) => {
      const sliders = SLIDERS.filter((slider) => Boolean(slider.isWeight) === isWeight);
      return el("fieldset", el("legend", title), el("div.sliders", sliders.map((slider) => this.row(slider))));
    };
    this.note = el("p.quiet");
    const reset = el("p", button({ click: () => this.reset() }, "Reset ( r )"));
    const groups = [group("Weights", true), group("Decay, gates and room", false)];
    this.node = el("details.whatif", el("summary", "What if?"), groups, this.note, reset);
  }

  row(slider) {
    const { name, label, min, max, step } = slider;
    const id = `knob-${name}`;
    const input = el("input", { type: "range", id, min, max, step, input: () => this.change(slider) });
    const output = el("output", { for: id });
    const row = el("div.slider", el("label", { for: id }, label), input, output);
    this.rows.set(name, { input, output, row });
    return row;
  }

  // Knobs that were moved stay moved from turn to turn: that is what one wants to compare.
  show(turn) {
    const policy = this.traces.policy(turn);
    // The budget is the turn's, not the policy's: it stands beside the knobs.
    this.start = { ...structuredClone(policy.knobs || this.traces.head.defaultKnobs), budget: turn.budget };
    this.knobs = structuredClone(this.start);
    for (const [name, value] of this.moved) this.set(name, value);
    const { blend, composite_floor: compositeFloor } = this.start;
    const readsSimilarity = blend === "linear" || blend === "minmax";
    for (const { name, isWeight } of SLIDERS) {
      const { row } = this.rows.get(name);
      if (isWeight) row.hidden = !readsSimilarity && (name === "similarity" || blend !== "bounded");
      if (name === "composite_floor") row.hidden = !compositeFloor;
      if (name === "budget") row.hidden = turn.budget === null;
    }
    const known = policy.knobs ? `Blend: ${blend}.` : "This turn's policy is not in the record: the sliders start from the default policy.";
    const other = " A reranker or MMR put this turn in order; what-if replays the blend.";
    this.note.textContent = known + (isReordered(this.traces, turn) ? other : "");
    this.drawAll();
  }

  set(name, value) {
    const { weights, tiers } = this.knobs;
    if (Object.hasOwn(weights, name)) {
      // A weight moved by hand holds for every kind of memory.
      for (const some of [weights, ...Object.values(tiers)]) some[name] = value;
    } else if (name !== "budget" || this.start.budget !== null) this.knobs[name] = value;
  }

  change(slider) {
    const number = Number(this.rows.get(slider.name).input.value);
    const value = slider.isLog ? Math.round(24e3 * 10 ** number) / 1e3 : number;
    this.moved.set(slider.name, value);
    this.set(slider.name, value);
    this.drawOne(slider);
    this.onChange();
  }

  reset() {
    if (!this.start) return;
    this.moved.clear();
    this.knobs = structuredClone(this.start);
    this.drawAll();
    this.onChange();
  }

  isChanged() {
    return SLIDERS.some(({ name }) => knob(this.knobs, name) !== knob(this.start, name));
  }

  drawAll() {
    for (const slider of SLIDERS) {
      const value = knob(this.knobs, slider.name);
      const { input } = this.rows.get(slider.name);
      if (value > slider.max && !slider.isLog) input.max = value;
      input.value = slider.isLog ? Math.log10(value / 24) : value;
      this.drawOne(slider);
    }
  }

  drawOne(slider) {
    const { output, row } = this.rows.get(slider.name);
    const value = knob(this.knobs, slider.name);
    if (value === null) output.textContent = "–";
    else if (slider.isLog) output.textContent = value < 48 ? `${fixed(value, 1)} h` : `${fixed(value / 24, 1)} d`;
    else output.textContent = slider.step < 1 ? fixed(value) : thousands(value);
    row.classList.toggle("slider-moved", value !== knob(this.start, slider.name));
  }
}

const knob = (knobs, name) => (Object.hasOwn(knobs.weights, name) ? knobs.weights[name] : knobs[name]);

// Whether the chosen memories stand in another order than that of their scores.
function isReordered(traces, turn) {
  const chosen = traces.candidates(turn).filter((one) => one.place && !one.memory.pinned);
  chosen.sort((a, b) => a.place - b.place);
  // Scores are kept to four digits.
  return chosen.some((one, i) => i > 0 && one.score > chosen[i - 1].score + 2e-4);
}
