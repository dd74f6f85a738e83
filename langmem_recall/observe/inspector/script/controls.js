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
