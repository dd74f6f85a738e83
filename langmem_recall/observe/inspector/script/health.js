// The vital signs: the monitor's report on the latest turns, and how each sign went over time.

const LEAST_SLICE = 5;
const MOST_SLICES = 48;
const HEALTHY_INJECTION = [0.4, 0.55];

class HealthView {
  constructor(traces, showTurn) {
    Object.assign(this, { traces, showTurn });
    this.node = el("section.health#health");
  }

  refresh(traces) {
    this.traces = traces;
    if (this.isStarted) this.start();
  }

  start() {
    const { turns, head } = this.traces;
    const { health } = head;
    this.slices = slices(turns, Math.max(1, Math.min(MOST_SLICES, Math.floor(turns.length / LEAST_SLICE))));
    const signs = this.slices.map((some) => signsOf(this.traces, some));
    const over = (name) => signs.map((one) => one[name]);
    const range = health.injection_interval?.map(percent).join(" to ");
    const ms = (value) => `${fixed(value, value < 10 ? 1 : 0)} ms`;
    const { p50, p95, p99 } = health.latency_ms;
    const degraded = turns.length ? sumOf(turns, (one) => one.degraded.length > 0) / turns.length : null;
    const card = (sign, title, words, ...chart) => {
      const level = health.warnings.find((one) => one.name === sign)?.level;
      return el("div.card", { class: level && `card card-${level}` }, el("b", title), el("span.quiet", words), this.spark(title, ...chart));
    };
    replaced(
      this.node,
      el("h2", `The latest ${plural(health.recalls, "recall")}`),
      el(
        "div.cards",
        card("injection", `${percent(health.injection_rate)} injected`, `40 to 55 % is healthy${range ? `, 95 % in ${range}` : ""}`, [over("injected")], percent, 1, HEALTHY_INJECTION),
        card("blindness", `${percent(health.blindness_rate)} blind`, "empty with memories stored; not what is in the prompt already", [over("blind")], percent, 1),
        card("latency", p50 === null ? "–" : `${ms(p50)} median`, p50 === null ? "" : `p95 ${ms(p95)}, p99 ${ms(p99)}`, [over("p50"), over("p95")], ms),
        card("degradation", `${percent(degraded)} degraded`, "something did not work, the turn went on", [over("degraded")], percent, 1),
        card("budget", `${percent(health.budget_pressure)} pressed`, "the budget shortened or dropped memories", [over("pressed")], percent, 1),
        card("redundancy", `${percent(health.redundancy)} redundant`, "of what fits says the same twice", [over("duplicates")], percent, 1),
        card("drift", `${percent(health.drift)} drift`, "of topic changes brought the same memories"),
        card("feedback", `${health.good} good, ${health.bad} bad`, "citations and reported outcomes")
      ),
      turns.length && this.outcomes(),
      verdictsOf(head),
      el("h3", health.warnings.length ? "What to change" : "Nothing to change"),
      health.warnings.map(({ level, message }) =>
        el("p.note", { class: level === "alarm" ? "note note-bad" : "note" }, el("b", `${level}: `), quoted(message))
      ),
      Object.entries(health.degraded).map(([note, count]) => el("p.note.note-bad", quoted(`${plural(count, "time")}: ${note}`)))
    );
  }

  // Each series as a line from the oldest turns to the latest; the first is filled.
  spark(title, series, format, most, band) {
    if (!series?.flat().some(Boolean) || this.slices.length < 2) return null;
    const [width, height] = [240, 56];
    // One slow start does not flatten the rest.
    const known = series.flat().filter((value) => value !== null).sort((a, b) => a - b);
    const top = most ?? 1.2 * known[Math.ceil(0.95 * known.length) - 1];
    const x = (i) => (i * width) / (this.slices.length - 1);
    const y = (value) => 2 + (height - 4) * (1 - Math.min(value, top) / top);
    const parts = band ? [svg("rect.chart-band", { x: 0, y: y(band[1]), width, height: y(band[0]) - y(band[1]) })] : [];
    series.forEach((values, k) => {
      const points = values.map((value, i) => [x(i).toFixed(1), value]).filter(([, value]) => value !== null);
      if (!points.length) return;
      const path = points.map(([at, value]) => `${at},${y(value).toFixed(1)}`);
      const area = [...path, `${points.at(-1)[0]},${height}`, `${points[0][0]},${height}`];
      if (k === 0) parts.push(svg("polygon.chart-area", { points: area.join(" ") }));
      parts.push(svg(`polyline.chart-line.chart-${k}`, { points: path.join(" ") }));
    });
    const says = (i) => series.map((values) => (values[i] === null ? "–" : format(values[i]))).join(", ");
    return el("figure", this.timeline(title, width, height, says, parts), ends(says(0), says(this.slices.length - 1)));
  }

  // What came of all turns, a column for each stretch of them.
  outcomes() {
    const { traces } = this;
    const { turns } = traces;
    const [width, height] = [960, 120];
    const step = width / this.slices.length;
    const shares = this.slices.map((some) => outcomeShares(traces, some));
    const parts = shares.flatMap((column, i) => {
      let at = height;
      return column.map((share, k) => {
        at -= share * height;
        return svg("rect", { x: i * step, y: at, width: Math.max(step - 1, 0.5), height: share * height, style: { fill: `var(--${OUTCOMES[k][0]})` } });
      });
    });
    const says = (i) => OUTCOMES.flatMap(([, words], k) => (shares[i][k] ? `${percent(shares[i][k])} ${words}` : [])).join(", ");
    const legend = OUTCOMES.map(([name, words]) => {
      const count = sumOf(turns, (one) => traces.outcome(one) === name);
      return count > 0 && el("span", el("i.swatch", { style: { background: `var(--${name})` } }), el("span", `${thousands(count)} ${words}`));
    });
    return el(
      "figure.outcomes",
      el("h3", `All ${plural(turns.length, "turn")}, from first to last`),
      this.timeline("Outcomes over time", width, height, says, parts),
      ends(moment(turns[0].at, 0, 16), moment(turns.at(-1).at, 0, 16)),
      el("p.legend.quiet", legend)
    );
  }

  // A drawing over time: a stretch of it says its numbers, and leads to its first turn.
  timeline(title, width, height, says, parts) {
    const step = width / this.slices.length;
    const targets = this.slices.map(([first, ...more], i) => {
      const words = `${moment(first.at, 0, 16)}, ${plural(1 + more.length, "turn")} from ${first.number + 1}: ${says(i)}`;
      const click = () => this.showTurn(first.number);
      return svg("rect.target", { x: i * step, y: 0, width: step, height, click }, svg("title", words));
    });
    const label = `${title}: from ${says(0)} to ${says(this.slices.length - 1)}`;
    const given = { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label };
    return svg("svg", given, parts, targets);
  }
}

const ends = (first, last) => el("figcaption.ends.quiet", el("span", first), el("span", last));

function signsOf(traces, turns) {
  const ratio = (part, whole) => (whole ? part / whole : null);
  const outcomes = (...names) => sumOf(turns, (turn) => names.includes(traces.outcome(turn)));
  const gates = turns.map((turn) => traces.gateCounts(turn));
  const duplicates = sumOf(gates, (counts) => counts.get("duplicate") || 0);
  const pressed = turns.filter((turn, i) => turn.compacted.length || gates[i].has("budget"));
  const timed = turns.map((turn) => Object.values(turn.timings)).filter((stages) => stages.length);
  const times = timed.map((stages) => sumOf(stages, (ms) => ms)).sort((a, b) => a - b);
  const rank = (share) => (times.length ? times[Math.ceil(share * times.length) - 1] : null);
  const [recalled, blind] = [outcomes("recalled"), outcomes("blind")];
  return {
    injected: ratio(recalled, turns.length - outcomes("prompt", "tool")),
    blind: ratio(blind, recalled + blind),
    duplicates: ratio(duplicates, duplicates + sumOf(turns, (turn) => traces.chosen(turn))),
    pressed: ratio(pressed.length, turns.length),
    degraded: ratio(sumOf(turns, (turn) => turn.degraded.length > 0), turns.length),
    p50: rank(0.5),
    p95: rank(0.95),
  };
}

// What the guard withheld, without the words it withheld.
function verdictsOf({ health, verdicts }) {
  const counts = Object.entries(health.verdicts || {}).map(([name, count]) => `${count} ${name}`);
  return counts.length > 0 && [
    el("h3", "Withheld by the guard"),
    el("p.quiet", counts.join(" · ")),
    ...verdicts.map(([namespace, key, source, action, rules]) =>
      el("p.note", el("b", `${action}: `), quoted(`${namespace.join("/")} ${key} (${source}) ${rules.join(", ")}`))
    ),
  ];
}
