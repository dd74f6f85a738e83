// The vital signs: the monitor's report on the latest turns, and how each sign went over time.

const LEAST_SLICE = 5;
const MOST_SLICES = 48;
const SPARK = { width: 240, height: 56 };
const HEALTHY_INJECTION = [0.4, 0.55];

class HealthView {
  constructor(traces, showTurn) {
    Object.assign(this, { traces, showTurn });
    this.node = el("section", { class: "health", id: "health" });
  }

  refresh(traces) {
    this.traces = traces;
    if (this.isStarted) this.start();
  }

  start() {
    const { traces } = this;
    const { health } = traces.head;
    this.slices = slices(traces.turns, Math.max(1, Math.min(MOST_SLICES, Math.floor(traces.turns.length / LEAST_SLICE))));
    const signs = this.slices.map((turns) => signsOf(traces, turns));
    const over = (name) => signs.map((one) => one[name]);
    const interval = health.injection_interval ? `, 95 % in ${health.injection_interval.map(percent).join(" to ")}` : "";
    const ms = (value) => `${fixed(value, value < 10 ? 1 : 0)} ms`;
    const { p50, p95, p99 } = health.latency_ms;
    const card = (sign, ...rest) => this.card(health.warnings, sign, ...rest);
    replaced(
      this.node,
      el("h2", { text: `The latest ${plural(health.recalls, "recall")}` }),
      el(
        "div",
        { class: "cards" },
        card("injection", `${percent(health.injection_rate)} injected`, `40 to 55 % is healthy${interval}`, [over("injected")], percent, 1, HEALTHY_INJECTION),
        card("blindness", `${percent(health.blindness_rate)} blind`, "empty with memories stored; not what is in the prompt already", [over("blind")], percent, 1),
        card("latency", p50 === null ? "–" : `${ms(p50)} median`, p50 === null ? "" : `p95 ${ms(p95)}, p99 ${ms(p99)}`, [over("p50"), over("p95")], ms),
        card("degradation", `${percent(signs.length ? ratio(sumOf(traces.turns, (one) => one.degraded.length > 0), traces.turns.length) : null)} degraded`, "something did not work, the turn went on", [over("degraded")], percent, 1),
        card("budget", `${percent(health.budget_pressure)} pressed`, "the budget shortened or dropped memories", [over("pressed")], percent, 1),
        card("redundancy", `${percent(health.redundancy)} redundant`, "of what fits says the same twice", [over("duplicates")], percent, 1),
        card("drift", `${percent(health.drift)} drift`, "of topic changes brought the same memories", null),
        card("feedback", `${health.good} good, ${health.bad} bad`, "citations and reported outcomes", null)
      ),
      this.outcomes(),
      ...verdictsOf(traces.head),
      el("h3", { text: health.warnings.length ? "What to change" : "Nothing to change" }),
      ...health.warnings.map(({ level, message }) =>
        el("p", { class: level === "alarm" ? "note note-bad" : "note" }, el("b", { text: `${level}: ` }), quoted(message))
      ),
      ...Object.entries(health.degraded).map(([note, count]) =>
        el("p", { class: "note note-bad" }, quoted(`${plural(count, "time")}: ${note}`))
      )
    );
  }

  card(warnings, sign, title, words, series, format, top = null, band = null) {
    const level = warnings.find((one) => one.name === sign)?.level;
    return el(
      "div",
      { class: `card${level ? ` card-${level}` : ""}` },
      el("b", { text: title }),
      el("span", { class: "quiet", text: words }),
      series?.flat().some(Boolean) && this.slices.length > 1 ? this.spark(title, series, format, top, band) : null
    );
  }

  // Each series as a line from the oldest turns to the latest; the first is filled.
  spark(title, series, format, most, band) {
    const { width, height } = SPARK;
    // One slow start does not flatten the rest.
    const known = series.flat().filter((value) => value !== null).sort((a, b) => a - b);
    const top = most ?? 1.2 * known[Math.ceil(0.95 * known.length) - 1];
    const x = (i) => (i * width) / Math.max(1, this.slices.length - 1);
    const y = (value) => 2 + (height - 4) * (1 - Math.min(value, top) / top);
    const parts = [];
    if (band) {
      parts.push(svg("rect", { x: 0, y: y(band[1]), width, height: y(band[0]) - y(band[1]), class: "chart-band" }));
    }
    series.forEach((values, k) => {
      const points = values.map((value, i) => (value === null ? null : `${x(i).toFixed(1)},${y(value).toFixed(1)}`));
      const path = points.filter((point) => point !== null);
      if (!path.length) return;
      const ends = [path.at(-1).split(",")[0], path[0].split(",")[0]];
      if (k === 0) parts.push(svg("polygon", { points: [...path, `${ends[0]},${height}`, `${ends[1]},${height}`].join(" "), class: "chart-area" }));
      parts.push(svg("polyline", { points: path.join(" "), class: `chart-line chart-${k}` }));
    });
    const says = (i) => series.map((values) => (values[i] === null ? "–" : format(values[i]))).join(", ");
    return el(
      "figure",
      {},
      this.timeline(title, width, height, says, parts),
      el("figcaption", { class: "ends quiet" }, el("span", { text: says(0) }), el("span", { text: says(this.slices.length - 1) }))
    );
  }

  // What came of all turns, a column for each stretch of them.
  outcomes() {
    const { traces } = this;
    if (!traces.turns.length) return null;
    const [width, height] = [960, 120];
    const step = width / this.slices.length;
    const shares = this.slices.map((turns) => outcomeShares(traces, turns));
    const parts = shares.flatMap((column, i) => {
      let at = height;
      return column.map((share, k) => {
        at -= share * height;
        return svg("rect", { x: i * step, y: at, width: Math.max(step - 1, 0.5), height: share * height, class: `fill-${OUTCOMES[k][0]}` });
      });
    });
    const counts = OUTCOMES.map(([name, words]) => [name, words, sumOf(traces.turns, (one) => traces.outcome(one) === name)]);
    const says = (i) => OUTCOMES.map(([, words], k) => [shares[i][k], words]).filter(([share]) => share).map(([share, words]) => `${percent(share)} ${words}`).join(", ");
    return el(
      "figure",
      { class: "outcomes" },
      el("h3", { text: `All ${plural(traces.turns.length, "turn")}, from first to last` }),
      this.timeline("Outcomes over time", width, height, says, parts),
      el("figcaption", { class: "ends quiet" }, el("span", { text: moment(traces.turns[0].at).slice(0, 16) }), el("span", { text: moment(traces.turns.at(-1).at).slice(0, 16) })),
      el(
        "p",
        { class: "legend quiet" },
        ...counts.filter(([, , count]) => count).map(([name, words, count]) =>
          el("span", {}, el("i", { class: `swatch fill-${name}` }), el("span", { text: `${count.toLocaleString("en")} ${words}` }))
        )
      )
    );
  }

  // A drawing over time: a stretch of it says its numbers, and leads to its first turn.
  timeline(title, width, height, says, parts) {
    const step = width / this.slices.length;
    const targets = this.slices.map((turns, i) => {
      const words = `${moment(turns[0].at).slice(0, 16)}, ${plural(turns.length, "turn")} from ${turns[0].number + 1}: ${says(i)}`;
      const target = svg("rect", { x: i * step, y: 0, width: step, height, class: "target" }, svg("title", { text: words }));
      target.addEventListener("click", () => this.showTurn(turns[0].number));
      return target;
    });
    const given = { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: from ${says(0)} to ${says(this.slices.length - 1)}` };
    return svg("svg", given, ...parts, ...targets);
  }
}

const ratio = (part, whole) => (whole ? part / whole : null);
const sumOf = (some, count) => some.reduce((sum, one) => sum + Number(count(one)), 0);

function signsOf(traces, turns) {
  const outcomes = (...names) => sumOf(turns, (turn) => names.includes(traces.outcome(turn)));
  const gates = turns.map((turn) => traces.gateCounts(turn));
  const chosen = sumOf(turns, (turn) => traces.chosen(turn));
  const duplicates = sumOf(gates, (counts) => counts.get("duplicate") || 0);
  const pressed = turns.filter((turn, i) => turn.compacted.length || gates[i].has("budget"));
  const timed = turns.map((turn) => Object.values(turn.timings)).filter((stages) => stages.length);
  const times = timed.map((stages) => sumOf(stages, (ms) => ms)).sort((a, b) => a - b);
  const rank = (share) => (times.length ? times[Math.ceil(share * times.length) - 1] : null);
  const recalled = outcomes("recalled");
  return {
    injected: ratio(recalled, turns.length - outcomes("prompt", "tool")),
    blind: ratio(outcomes("blind"), recalled + outcomes("blind")),
    duplicates: ratio(duplicates, duplicates + chosen),
    pressed: ratio(pressed.length, turns.length),
    degraded: ratio(sumOf(turns, (turn) => turn.degraded.length > 0), turns.length),
    p50: rank(0.5),
    p95: rank(0.95),
  };
}

// What the guard withheld, without the words it withheld.
function verdictsOf({ health, verdicts }) {
  const counts = Object.entries(health.verdicts || {});
  if (!counts.length) return [];
  return [
    el("h3", { text: "Withheld by the guard" }),
    el("p", { class: "quiet", text: counts.map(([name, count]) => `${count} ${name}`).join(" · ") }),
    ...verdicts.map(([namespace, key, source, action, rules]) =>
      el("p", { class: "note" }, el("b", { text: `${action}: ` }), quoted(`${namespace.join("/")} ${key} (${source}) ${rules.join(", ")}`))
    ),
  ];
}
