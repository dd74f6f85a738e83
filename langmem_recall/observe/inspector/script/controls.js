// The knobs of what-if, as sliders that start where the turn's policy has them.

const WEIGHT_RANGE = { min: 0, max: 1, step: 0.01 };
const SLIDERS = [
  { name: "similarity", label: "similarity", ...WEIGHT_RANGE, isWeight: true },
  { name: "recency", label: "recency", ...WEIGHT_RANGE, isWeight: true },
  { name: "importance", label: "importance", ...WEIGHT_RANGE, isWeight: true },
  { name: "strength", label: "use", ...WEIGHT_RANGE, isWeight: true },
  { name: "trust", label: "trust", ...WEIGHT_RANGE, isWeight: true },
  { name: "half_life_hours", label: "half-life", min: -1, max: 3, step: 0.01, isLog: true },
  { name: "trigger", label: "trigger", min: 0, max: 1, step: 0.01 },
  { name: "floor", label: "floor", min: 0, max: 1, step: 0.01 },
  { name: "composite_floor", label: "composite floor", min: 0, max: 2, step: 0.01 },
  { name: "top_k", label: "memories at most", min: 1, max: 50, step: 1 },
  { name: "budget", label: "budget (about)", min: 50, max: 8000, step: 50 },
];

class WhatIfControls {
  constructor(traces, onChange) {
    Object.assign(this, { traces, onChange, rows: new Map() });
    const rows = (isWeight) =>
      SLIDERS.filter((slider) => Boolean(slider.isWeight) === isWeight).map((one) => this.row(one));
    const group = (title, isWeight) =>
      el("fieldset", {}, el("legend", { text: title }), el("div", { class: "sliders" }, ...rows(isWeight)));
    this.note = el("p", { class: "quiet" });
    this.everywhere = el("p", { class: "quiet", id: "everywhere", "aria-live": "polite" });
    this.resetButton = el("button", {
      type: "button",
      text: "Reset ( r )",
      on: { click: () => this.reset() },
    });
    this.node = el(
      "details",
      { class: "whatif" },
      el("summary", { text: "What if?" }),
      group("Weights", true),
      group("Decay, gates and room", false),
      this.note,
      el("p", { class: "whatif-foot" }, this.resetButton),
      this.everywhere
    );
  }

  row(slider) {
    const input = el("input", {
      type: "range",
      id: `knob-${slider.name}`,
      min: slider.min,
      max: slider.max,
      step: slider.step,
      on: { input: () => this.change(slider) },
    });
    const output = el("output", { for: input.id });
    const row = el("div", { class: "slider" }, el("label", { for: input.id, text: slider.label }), input, output);
    this.rows.set(slider.name, { input, output, row });
    return row;
  }

  // Knobs that were moved stay moved from turn to turn: that is what one wants to compare.
  show(turn) {
    const policy = this.traces.policy(turn);
    this.start = structuredClone(policy.knobs || this.traces.head.defaultKnobs);
    this.startBudget = turn.budget;
    const moved = this.moved || new Map();
    this.knobs = structuredClone(this.start);
    this.budget = turn.budget;
    for (const [name, value] of moved) this.set(name, value);
    const readsSimilarity = this.start.blend === "linear" || this.start.blend === "minmax";
    const readsWeights = readsSimilarity || this.start.blend === "bounded";
    for (const slider of SLIDERS) {
      const { row } = this.rows.get(slider.name);
      if (slider.isWeight) row.hidden = slider.name === "similarity" ? !readsSimilarity : !readsWeights;
      if (slider.name === "composite_floor") row.hidden = !this.start.composite_floor;
      if (slider.name === "budget") row.hidden = turn.budget === null;
    }
    this.note.textContent = noteOn(policy, isReordered(this.traces, turn));
    this.drawAll();
  }

  get(name) {
    if (name === "budget") return this.budget;
    return Object.hasOwn(this.knobs.weights, name) ? this.knobs.weights[name] : this.knobs[name];
  }

  startOf(name) {
    if (name === "budget") return this.startBudget;
    return Object.hasOwn(this.start.weights, name) ? this.start.weights[name] : this.start[name];
  }

  set(name, value) {
    if (name === "budget") {
      if (this.startBudget !== null) this.budget = value;
    } else if (Object.hasOwn(this.knobs.weights, name)) {
      this.knobs.weights[name] = value;
      // A weight moved by hand holds for every kind of memory.
      for (const tier of Object.values(this.knobs.tiers)) tier[name] = value;
    } else this.knobs[name] = value;
  }

  change(slider) {
    const { input } = this.rows.get(slider.name);
    const number = Number(input.value);
    const value = slider.isLog ? Math.round(24e3 * 10 ** number) / 1e3 : number;
    this.moved = this.moved || new Map();
    this.moved.set(slider.name, value);
    this.set(slider.name, value);
    this.drawOne(slider);
    this.onChange();
    this.tellEverywhere();
  }

  reset() {
    if (!this.start) return;
    this.moved = new Map();
    this.knobs = structuredClone(this.start);
    this.budget = this.startBudget;
    this.drawAll();
    this.onChange();
    this.tellEverywhere();
  }

  isChanged() {
    return Boolean(this.moved) && SLIDERS.some(({ name }) => this.get(name) !== this.startOf(name));
  }

  drawAll() {
    SLIDERS.forEach((slider) => {
      const value = this.get(slider.name);
      const { input } = this.rows.get(slider.name);
      if (value > slider.max && !slider.isLog) input.max = value;
      input.value = slider.isLog ? Math.log10(value / 24) : value;
      this.drawOne(slider);
    });
  }

  drawOne(slider) {
    const { output, row } = this.rows.get(slider.name);
    const value = this.get(slider.name);
    output.textContent = knobWords(slider, value);
    row.classList.toggle("slider-moved", value !== this.startOf(slider.name));
  }

  // The same knobs on every recorded turn, a slice at a time.
  tellEverywhere() {
    const run = (this.run = {});
    const { turns } = this.traces;
    if (!this.isChanged()) {
      this.everywhere.textContent = "";
      return;
    }
    const { knobs } = this;
    let place = 0;
    let injected = 0;
    let before = 0;
    const step = () => {
      if (this.run !== run) return;
      const until = performance.now() + 8;
      while (place < turns.length && performance.now() < until) {
        injected += isInjected(this.traces, turns[place], knobs) ? 1 : 0;
        before += (this.traces.gateCounts(turns[place]).get("") || 0) > 0 ? 1 : 0;
        place += 1;
      }
      if (place < turns.length) setTimeout(step);
      else {
        this.everywhere.textContent =
          `Over all ${plural(turns.length, "turn")}: memories in ${percent(injected / turns.length)}` +
          ` of them, recorded ${percent(before / turns.length)}.`;
      }
    };
    setTimeout(step);
  }
}

function knobWords(slider, value) {
  if (value === null) return "–";
  if (slider.isLog) return value < 48 ? `${fixed(value, 1)} h` : `${fixed(value / 24, 1)} d`;
  return slider.step < 1 ? fixed(value) : value.toLocaleString("en");
}

function noteOn(policy, hasOtherOrder) {
  const told = [];
  if (policy.knobs === null) {
    told.push("This turn's policy is not in the record: the sliders start from the default policy.");
  } else told.push(`Blend: ${policy.knobs.blend}.`);
  if (hasOtherOrder) told.push("A reranker or MMR put this turn in order; what-if replays the blend.");
  return told.join(" ");
}

// Whether the chosen memories stand in another order than that of their scores.
function isReordered(traces, turn) {
  const chosen = traces.candidates(turn).filter((one) => one.place && !one.memory.pinned);
  chosen.sort((a, b) => a.place - b.place);
  // Scores are kept to four digits.
  return chosen.some((one, i) => i > 0 && one.score > chosen[i - 1].score + 2e-4);
}
