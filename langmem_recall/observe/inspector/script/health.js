// The vital signs: the monitor's report on the latest turns, and how they came about.

const POINTS = 60;
const CHART = { width: 320, height: 90, left: 34, bottom: 14 };

class HealthView {
  constructor(traces) {
    this.traces = traces;
    this.node = el("section", { class: "health", id: "health" });
  }

  start() {
    const { health } = this.traces.head;
    const buckets = bucketsOf(this.traces);
    const interval = health.injection_interval ? `[${health.injection_interval.map(percent).join(", ")}] ` : "";
    const cards = [
      ["injected", health.injection_rate, `${interval}of recalls bring memories; 40-55 % is healthy`],
      ["blind", health.blindness_rate, "were empty with memories stored"],
      ["drift", health.drift, "of topic changes brought the same memories"],
      ["redundant", health.redundancy, "of what fits says the same twice"],
      ["pressed", health.budget_pressure, "of recalls met the budget"],
    ];
    const latency = ["p50", "p95", "p99"].map((name) => `${name} ${fixed(health.latency_ms[name], 1)} ms`);
    replaced(
      this.node,
      el("h2", { text: `The latest ${plural(health.recalls, "recall")}` }),
      el(
        "div",
        { class: "cards" },
        ...cards.map(([name, share, words]) =>
          el("div", { class: "card" }, el("b", { text: `${percent(share)} ${name}` }), el("span", { class: "quiet", text: words }))
        )
      ),
      el("p", { class: "quiet", text: `Latency ${latency.join(", ")} · feedback ${health.good} good, ${health.bad} bad` }),
      el("p", { class: "quiet", text: Object.entries(health.outcomes).map(([name, count]) => `${count} ${name}`).join(" · ") }),
      ...verdictsOf(this.traces.head),
      ...Object.entries(health.degraded).map(([note, count]) =>
        el("p", { class: "note note-bad" }, quoted(`${plural(count, "time")}: ${note}`))
      ),
      el("h3", { text: health.warnings.length ? "What to change" : "Nothing to change" }),
      ...health.warnings.map(({ level, message }) =>
        el("p", { class: level === "alarm" ? "note note-bad" : "note" }, el("b", { text: `${level}: ` }), quoted(message))
      ),
      el("h3", { text: `All ${plural(this.traces.turns.length, "turn")}, from first to last` }),
      el(
        "div",
        { class: "charts" },
        chart("Injection rate", [["injected", buckets.map((one) => one.injected)]], 1, percent, [0.4, 0.55]),
        chart("Empty although memories are stored", [["blind", buckets.map((one) => one.blind)]], 1, percent),
        chart(
          "Latency, ms",
          [["p50", buckets.map((one) => one.p50)], ["p95", buckets.map((one) => one.p95)]],
          null,
          (value) => fixed(value, value < 10 ? 1 : 0)
        ),
        chart("Memories a recall", [["chosen", buckets.map((one) => one.chosen)]], null, (value) => fixed(value, 1)),
        chart("Near-duplicates dropped", [["redundant", buckets.map((one) => one.duplicates)]], 1, percent),
        chart("Budget pressed, degraded", [["pressed", buckets.map((one) => one.pressed)], ["degraded", buckets.map((one) => one.degraded)]], 1, percent)
      )
    );
  }
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

function bucketsOf(traces) {
  const { turns } = traces;
  const count = Math.min(POINTS, turns.length);
  const buckets = [];
  for (let i = 0; i < count; i += 1) {
    const from = Math.floor((i * turns.length) / count);
    const to = Math.floor(((i + 1) * turns.length) / count);
    buckets.push(bucketOf(traces, turns.slice(from, to)));
  }
  return buckets;
}

function bucketOf(traces, turns) {
  const sums = { judged: 0, injected: 0, stored: 0, chosen: 0, duplicates: 0, pressed: 0, degraded: 0 };
  const times = [];
  for (const turn of turns) {
    const counts = traces.gateCounts(turn);
    const chosen = counts.get("") || 0;
    // What a model asked for by tool, and what the prompt shows already, is neither injected nor missed.
    if (!String(traces.policy(turn).name).startsWith(traces.head.asked) && (chosen || !counts.has("visible"))) {
      sums.judged += 1;
      sums.injected += chosen ? 1 : 0;
      sums.stored += turn.count || turn.searched ? 1 : 0;
    }
    sums.chosen += chosen;
    sums.duplicates += counts.get("duplicate") || 0;
    sums.pressed += turn.compacted.length || counts.has("budget") ? 1 : 0;
    sums.degraded += turn.degraded.length ? 1 : 0;
    const stages = Object.values(turn.timings);
    if (stages.length) times.push(stages.reduce((sum, ms) => sum + ms, 0));
  }
  times.sort((a, b) => a - b);
  const ratio = (part, whole) => (whole ? part / whole : null);
  const rank = (share) => (times.length ? times[Math.ceil(share * times.length) - 1] : null);
  return {
    injected: ratio(sums.injected, sums.judged),
    blind: ratio(sums.stored - sums.injected, sums.stored),
    chosen: ratio(sums.chosen, turns.length),
    duplicates: ratio(sums.duplicates, sums.duplicates + sums.chosen),
    pressed: ratio(sums.pressed, turns.length),
    degraded: ratio(sums.degraded, turns.length),
    p50: rank(0.5),
    p95: rank(0.95),
  };
}

function chart(title, series, most, format, band = null) {
  const { width, height, left, bottom } = CHART;
  const known = series.flatMap(([, values]) => values.filter((value) => value !== null));
  const top = most ?? Math.max(1e-9, ...known) * 1.1;
  const across = width - left - 6;
  const up = height - bottom - 6;
  const x = (i, count) => left + (count > 1 ? (i * across) / (count - 1) : across / 2);
  const y = (value) => 6 + up - (Math.min(value, top) / top) * up;
  const parts = [];
  if (band) {
    parts.push(svg("rect", { x: left, y: y(band[1]), width: across, height: y(band[0]) - y(band[1]), class: "chart-band" }));
  }
  for (const share of [0, 0.5, 1]) {
    const at = y(share * top);
    parts.push(svg("line", { x1: left, x2: left + across, y1: at, y2: at, class: "chart-grid" }));
    parts.push(svg("text", { x: left - 4, y: at + 3, class: "chart-label", text: format(share * top) }));
  }
  series.forEach(([, values], k) => {
    const points = values.map((value, i) => [value, i]).filter(([value]) => value !== null);
    const path = points.map(([value, i]) => `${x(i, values.length).toFixed(1)},${y(value).toFixed(1)}`);
    if (path.length === 1) {
      const [cx, cy] = path[0].split(",");
      parts.push(svg("circle", { cx, cy, r: 2.5, class: `chart-dot chart-${k}` }));
    } else parts.push(svg("polyline", { points: path.join(" "), class: `chart-line chart-${k}` }));
  });
  const last = series.map(([name, values]) => `${name} ${format(values.findLast((value) => value !== null) ?? 0)}`);
  return el(
    "figure",
    {},
    el("figcaption", {}, el("b", { text: title }), el("span", { class: "quiet", text: ` ${last.join(", ")}` })),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: last ${last.join(", ")}` }, ...parts)
  );
}
