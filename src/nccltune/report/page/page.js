// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const DASHES = { ll: "dot", ll128: "dash", simple: "solid" };
  const PAPER = { width: 680, height: 240, row: 21 };
  // Minimum width in pixels of a cell of the choice map, so that its number can be read.
  const CELL = { screen: 26, paper: 22 };
  const state = { condition: null, metric: "busbw", shown: new Map(), finding: null, paper: false };

  // ---- text of numbers, in the format of report/words.py ----
  const significant = (value) => {
    if (value === 0) return "0";
    const rounded = Number(value.toPrecision(3));
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(rounded))));
    return rounded.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };
  const timeText = (us) => us >= 0.9995e6 ? `${significant(us / 1e6)} s`
    : us >= 0.9995e3 ? `${significant(us / 1e3)} ms` : `${significant(us)} µs`;
  const rateText = (value) => `${significant(value)} GB/s`;
  const sizeText = (bytes) => {
    for (const [power, unit] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]]) {
      const value = bytes / 2 ** power;
      if (value >= 1) return `${value >= 99.95 ? value.toFixed(0) : Number(value.toPrecision(3))} ${unit}`;
    }
    return `${bytes} B`;
  };
  const rangeText = (low, high) => low === high ? sizeText(low) : `${sizeText(low)} – ${sizeText(high)}`;
  const percentText = (share) => `${100 * share >= 9.95 ? (100 * share).toFixed(0) : Number((100 * share).toPrecision(2))} %`;

  // ---- colours: taken from the style sheet, so that there is only one palette ----
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const font = () => ({ family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("muted") });
  function look(series) {
    if (series.role === "default") return { colour: colour("default"), width: 2.4, dash: "solid", symbol: "circle" };
    if (series.role === "tuned") return { colour: colour("tuned"), width: 4.5, dash: "solid", symbol: "diamond" };
    if (series.role === "measured") return { colour: colour("tuned"), width: 2, dash: "dash", symbol: "square" };
    const [algorithm, protocol] = series.label.split("/");
    const hue = { ring: "ring", tree: "tree", nvls: "nvls", nvls_tree: "nvls" }[algorithm] || "other";
    return { colour: colour(hue), width: 1.3, dash: DASHES[protocol] || "solid", symbol: "circle" };
  }
  const isShown = (series) => {
    const key = series.label;
    if (state.shown.has(key)) return state.shown.get(key);
    // Lines of choices are hidden at first. Without a default line, they are shown.
    return series.role !== "choice" || !state.condition.series.some((other) => other.role === "default");
  };

  // ---- the S-curve ----
  const timed = () => state.metric === "time" || !(state.condition.bus_factor > 0);
  const metric = (series, column, index) => {
    const us = series[column][index];
    if (us === null) return null;
    return timed() ? us : series.bytes[index] / (us * 1e3) * state.condition.bus_factor;
  };
  const valueText = (value) => timed() ? timeText(value) : rateText(value);

  function hoverText(series, index, reference) {
    const us = series.time_us[index];
    if (us === null) return "";
    const name = series.choice ? `${series.label}: ${series.choice[index]}` : series.label;
    const lines = [`<b>${sizeText(series.bytes[index])}</b>  ${name}`,
      timeText(us) + (series.busbw_gb_per_s[index] > 0 ? ` · ${rateText(series.busbw_gb_per_s[index])}` : "")];
    const low = series.low_us[index];
    const high = series.high_us[index];
    lines.push(series.n[index] > 1 ? `95 % CI ${timeText(low)} – ${timeText(high)} · n = ${series.n[index]}` : series.n[index] ? "n = 1" : "not measured");
    if (reference && reference !== series) {
      const at = reference.bytes.indexOf(series.bytes[index]);
      if (at >= 0 && reference.time_us[at] !== null) lines.push(`${(reference.time_us[at] / us).toFixed(2)}× the default's speed`);
    }
    return lines.join("<br>");
  }

  function curveTraces(condition) {
    const strongest = condition.series.find((series) => series.role === "default");
    const measured = condition.series.find((series) => series.label === "default");
    const bands = [];
    const lines = [];
    for (const series of condition.series) {
      const style = look(series);
      const strong = series.role === "default" || series.role === "tuned";
      const visible = isShown(series);
      const indices = series.bytes.map((_, index) => index);
      if (strong) {
        const known = indices.filter((index) => series.low_us[index] !== null);
        const back = [...known].reverse();
        bands.push({
          type: "scatter", mode: "lines", hoverinfo: "skip", visible, meta: { band: series.label },
          x: [...known, ...back].map((index) => series.bytes[index]),
          y: [...known.map((index) => metric(series, "low_us", index)), ...back.map((index) => metric(series, "high_us", index))],
          fill: "toself", fillcolor: colour(`${series.role}-soft`), line: { width: 0 },
        });
      }
      lines.push({
        type: "scatter", mode: strong ? "lines+markers" : "lines", name: series.label, visible, meta: { series: series.label, role: series.role },
        x: series.bytes, y: indices.map((index) => metric(series, "time_us", index)),
        text: indices.map((index) => hoverText(series, index, strong ? strongest : measured)), hovertemplate: "%{text}<extra></extra>",
        line: { color: style.colour, width: style.width, dash: style.dash },
        marker: { color: style.colour, size: series.role === "tuned" ? 9 : 6, symbol: style.symbol },
        connectgaps: false,
      });
    }
    // The default is drawn last, on top of the wider tuned line. Both have the same points at sizes
    // without a rule.
    const rank = (trace) => ({ default: 2, tuned: 1 }[trace.meta.role] || 0);
    lines.sort((a, b) => rank(a) - rank(b));
    return [...bands, ...lineRate(condition), ...lines];
  }

  function lineRate(condition) {
    const rate = report.line_rate_gb_per_s;
    if (rate === null || !(condition.bus_factor > 0)) return [];
    const sizes = condition.map.bytes;
    const ends = [sizes[0], sizes[sizes.length - 1]];
    return [{
      type: "scatter", mode: "lines", name: "line rate", meta: { series: "line rate" }, x: ends,
      y: ends.map((bytes) => timed() ? bytes * condition.bus_factor / (rate * 1e3) : rate),
      hovertemplate: `line rate ${rateText(rate)}<extra></extra>`,
      line: { color: colour("muted"), width: 1.4, dash: "longdash" },
    }];
  }

  // Ticks are only at powers of two, because measured sizes may be any numbers. There are as many
  // ticks as their labels have room for.
  const LABEL = 60;
  const isPower = (bytes) => Number.isInteger(Math.log2(bytes));
  function sizeTicks(low, high, sizes, width) {
    const octave = width / Math.log2(high / low);
    const step = [1, 2, 3, 4, 5, 6, 8].find((octaves) => octaves * octave >= LABEL) || 10;
    const ticks = [];
    for (let power = Math.ceil(Math.log2(low)); power <= Math.log2(high); power += 1) {
      if ((power - 10) % step === 0) ticks.push(2 ** power);
    }
    return ticks.length ? ticks : sizes.slice(0, 1);
  }

  function columnTicks(sizes, cell) {
    const powers = sizes.some(isPower);
    let last = -Infinity;
    return sizes.map((_, index) => index).filter((index) => {
      if ((powers && !isPower(sizes[index])) || (index - last) * cell < LABEL) return false;
      last = index;
      return true;
    });
  }

  // Powers of ten and steps between them; where the values span too little for three of these, equal
  // steps.
  function valueTicks(low, high) {
    const decades = Math.log10(high / low);
    const steps = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      ticks.push(...steps.map((step) => Number(`${step}e${power}`)).filter((value) => value >= low && value <= high));
    }
    if (ticks.length >= 3) return ticks;
    const power = 10 ** Math.floor(Math.log10((high - low) / 3));
    const step = [5, 2, 1].map((factor) => factor * power).find((size) => (high - low) / size >= 3) || power;
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => (first + index) * step);
  }
  const plain = (value) => String(Number(value.toPrecision(6)));
  const tickText = (value) => {
    if (!timed()) return plain(value);
    return value >= 1e6 ? `${plain(value / 1e6)} s` : value >= 1e3 ? `${plain(value / 1e3)} ms` : `${plain(value)} µs`;
  };

  // The marks of findings are placed in several rows (lanes) above the plot, so that overlapping
  // ranges do not collide.
  function lanes(marks, spread) {
    const ends = [];
    return marks.map((mark) => {
      let lane = ends.findIndex((end) => end < mark.min_bytes / spread);
      if (lane < 0) { lane = ends.length; ends.push(0); }
      ends[lane] = mark.max_bytes * spread;
      return lane;
    });
  }
  const markColour = (finding) => colour(
    ["not_a_tuning_problem", "below_expected", "wrong_results", "suspect_run"].includes(finding.kind) ? "bad"
      : ["noisy", "not_saturated", "no_default", "single_samples"].includes(finding.kind) ? "muted" : "mark");

  function curveMarks(condition, low, high) {
    const marks = [...condition.marks].sort((a, b) => a.min_bytes - b.min_bytes || b.max_bytes - a.max_bytes);
    const half = Math.pow(high / low, 0.006);
    const lane = lanes(marks, Math.pow(high / low, 0.018));
    const shapes = [];
    const annotations = [];
    marks.forEach((mark, index) => {
      const finding = report.findings[mark.finding - 1];
      const tint = markColour(finding);
      const chosen = state.finding === mark.finding;
      const x0 = Math.max(low, mark.min_bytes / half);
      const x1 = Math.min(high, mark.max_bytes * half);
      const top = { yref: "paper", ysizemode: "pixel", yanchor: 1 };
      const at = 10 + 22 * lane[index];
      shapes.push({ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "below",
        line: { width: 0 }, fillcolor: tint, opacity: chosen ? 0.22 : 0.07 });
      shapes.push({ type: "line", xref: "x", ...top, x0, x1, y0: at, y1: at, line: { color: tint, width: chosen ? 4 : 2.5 } });
      annotations.push({ xref: "x", yref: "paper", x: (Math.log10(x0) + Math.log10(x1)) / 2, y: 1, yshift: at, yanchor: "middle",
        text: `<b>${mark.finding}</b>`, showarrow: false, captureevents: true, name: finding.id,
        hovertext: finding.heading, bgcolor: tint, borderpad: 2, font: { size: 11, color: colour("card") } });
    });
    return { shapes, annotations, margin: marks.length ? 10 + 22 * (Math.max(...lane) + 1) : 12 };
  }

  function drawCurve(chart = byId("curve-chart")) {
    const condition = state.condition;
    const width = state.paper ? PAPER.width : chart.clientWidth;
    for (const input of document.querySelectorAll('input[name="metric"]')) {
      input.disabled = !(condition.bus_factor > 0);
      input.checked = (input.value === "time") === timed();
    }
    const sizes = condition.map.bytes;
    const values = condition.series.flatMap((series) => series.bytes.flatMap((_, index) =>
      [metric(series, "low_us", index), metric(series, "high_us", index)])).filter((value) => value > 0);
    if (report.line_rate_gb_per_s !== null && !timed()) values.push(report.line_rate_gb_per_s);
    const low = Math.min(...values) / 1.2;
    const high = Math.max(...values) * 1.2;
    const left = sizes[0] / 1.25;
    const right = sizes[sizes.length - 1] * 1.25;
    const ticks = sizeTicks(left, right, sizes, width - 92);
    const steps = valueTicks(low, high);
    const marks = curveMarks(condition, left, right);
    const axis = { type: "log", gridcolor: colour("line"), zeroline: false, linecolor: colour("line"), ticks: "" };
    return Plotly.react(chart, curveTraces(condition), {
      autosize: !state.paper, width: state.paper ? PAPER.width : undefined,
      height: state.paper ? PAPER.height : chart.clientHeight,
      margin: { l: 62, r: 30, t: marks.margin, b: 34 }, showlegend: false, font: font(),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", hoverdistance: 30,
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      uirevision: `${condition.id} ${timed()} ${state.paper}`,
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("muted"), align: "left", font: { ...font(), color: colour("ink") } },
      xaxis: { ...axis, range: [Math.log10(left), Math.log10(right)], tickvals: ticks, ticktext: ticks.map(sizeText), tickangle: 0, showgrid: false },
      yaxis: { ...axis, range: [Math.log10(low), Math.log10(high)], tickvals: steps, ticktext: steps.map(tickText),
        title: { text: timed() ? "Time of one call" : "Bus bandwidth, GB/s", standoff: 8 } },
      shapes: marks.shapes, annotations: marks.annotations,
    }, { displayModeBar: false, responsive: true, displaylogo: false });
  }

  // ---- the choice map ----
  // On a phone, on paper and with many sizes, the map is split into several maps below each other.
  // So the number in every cell can be read.
  function drawMaps(first = byId("map-chart"), more = byId("map-more")) {
    // A map of one choice compares nothing.
    const single = state.condition.map.choices.length < 2;
    first.closest(".together, section").hidden = single;
    if (single) return Promise.resolve();
    const sizes = state.condition.map.bytes.length;
    const width = state.paper ? PAPER.width : first.clientWidth;
    const fit = Math.max(1, Math.floor((width - MAP_LEFT - 12) / (state.paper ? CELL.paper : CELL.screen)));
    const parts = Math.ceil(sizes / fit);
    const length = Math.ceil(sizes / parts);
    for (const chart of more.children) Plotly.purge(chart);
    more.replaceChildren();
    return Promise.all(Array.from({ length: parts }, (_, part) => {
      const chart = part === 0 ? first : more.appendChild(document.createElement("div"));
      chart.classList.add("chart", "map-part");
      return drawMap(chart, width, part * length, length);
    }));
  }

  const MAP_LEFT = 104;
  function drawMap(chart, width, from, length) {
    const condition = state.condition;
    const part = (list) => list.slice(from, from + length);
    const map = { bytes: part(condition.map.bytes), choices: condition.map.choices,
      relative: condition.map.relative.map(part), path: part(condition.map.path), ran: part(condition.map.ran) };
    const left = MAP_LEFT;
    // The cells of all parts have the same width.
    const cell = (width - left - 12) / length;
    const row = state.paper ? PAPER.row : Math.max(28, Math.min(40, 460 / map.choices.length));
    const height = row * map.choices.length + 40;
    chart.style.height = `${height}px`;
    const columns = map.bytes.map((_, index) => index);
    const rows = map.choices.map((_, index) => index);
    const right = 12 + cell * (length - map.bytes.length);
    const times = new Map(condition.series.map((series) => [series.label, series]));
    const hover = map.choices.map((choice, row) => map.bytes.map((bytes, column) => {
      const ratio = map.relative[row][column];
      if (ratio === null) return "";
      const series = times.get(choice);
      const at = series.bytes.indexOf(bytes);
      const taken = map.path[column] === row ? (choice === "default" ? "<br>NCCL's default is kept" : "<br>chosen by the rules") : "";
      const ran = choice === "default" && series.choice ? ` (${series.choice[at]})` : map.ran[column] === row ? " (what the default ran)" : "";
      return `<b>${sizeText(bytes)}</b>  ${choice}${ran}<br>${ratio.toFixed(2)}× the fastest · ${timeText(series.time_us[at])} · n = ${series.n[at]}${taken}`;
    }));
    const heat = [0, 1, 2, 3, 4].map((step) => [step / 4, colour(`heat-${step}`)]);
    const traces = [{
      type: "heatmap", x: columns, y: rows, xgap: 2, ygap: 2, hoverongaps: false, showscale: false, colorscale: heat, zmin: 0, zmax: 1,
      z: map.relative.map((row) => row.map((ratio) => (ratio === null ? null : Math.min(1, Math.log2(ratio))))),
      text: map.relative.map((row) => row.map((ratio) => (ratio === null ? "" : ratio >= 9.95 ? ratio.toFixed(0) : ratio.toFixed(2)))),
      texttemplate: "%{text}", textfont: { size: Math.max(7, Math.min(11, cell / 3)) }, customdata: hover, hovertemplate: "%{customdata}<extra></extra>",
    }];
    const tuned = condition.series.some((series) => series.role === "tuned");
    for (const item of document.querySelectorAll("[data-path]")) item.hidden = !tuned;
    for (const item of document.querySelectorAll("[data-default]")) item.hidden = !map.choices.includes("default");
    for (const item of document.querySelectorAll("[data-blank]")) item.hidden = !condition.map.relative.flat().includes(null);
    if (tuned) {
      // The path (the choices that the rules select) is drawn below the numbers of the cells, from
      // edge to edge of the map.
      const way = map.path.map((row) => (row === null ? null : row + 0.36));
      const path = { type: "scatter", mode: "lines", hoverinfo: "skip", connectgaps: false,
        x: [-0.5, ...columns, columns.length - 0.5], y: [way[0], ...way, way[way.length - 1]] };
      traces.push({ ...path, line: { color: colour("bg"), width: 6, shape: "hvh" } },
        { ...path, name: "path", line: { color: colour("tuned"), width: 3, shape: "hvh" } });
    }
    const ran = columns.filter((column) => map.ran[column] !== null);
    for (const item of document.querySelectorAll("[data-ran]")) item.hidden = !condition.map.ran.some((row) => row !== null);
    traces.push({ type: "scatter", mode: "markers", name: "ran", hoverinfo: "skip", x: ran, y: ran.map((column) => map.ran[column] - 0.34),
      // The outline keeps the dot visible on cells of its own colour.
      marker: { symbol: "circle", size: 6, color: colour("ink"), line: { color: colour("bg"), width: 1.5 } } });
    const ticks = columnTicks(map.bytes, cell);
    const axis = { zeroline: false, showgrid: false, ticks: "", fixedrange: true, linecolor: "rgba(0,0,0,0)" };
    return Plotly.react(chart, traces, {
      autosize: !state.paper, width: state.paper ? PAPER.width : undefined, height,
      margin: { l: left, r: right, t: 6, b: 34 }, showlegend: false, font: font(), dragmode: false, hovermode: "closest",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("muted"), align: "left", font: { ...font(), color: colour("ink") } },
      xaxis: { ...axis, range: [-0.5, columns.length - 0.5], tickvals: ticks,
        ticktext: ticks.map((index) => sizeText(map.bytes[index])), tickangle: 0 },
      yaxis: { ...axis, range: [rows.length - 0.5, -0.5], tickvals: rows,
        ticktext: map.choices.map((choice) => (choice === "default" ? "<b>default</b>" : choice)) },
    }, { displayModeBar: false, responsive: true });
  }

  // ---- legend, marks and text around the charts ----
  function lineSample(series) {
    const style = look(series);
    const dash = { dot: "2 3", dash: "6 4", solid: "" }[style.dash];
    const sample = document.createElement("span");
    sample.innerHTML = `<svg width="24" height="8" aria-hidden="true"><line x1="0" y1="4" x2="24" y2="4" stroke-width="${style.width}" stroke-dasharray="${dash}"/></svg>`;
    sample.firstChild.firstChild.setAttribute("stroke", style.colour);
    return sample.firstChild;
  }

  const legendText = (series) => series.label === "default" && series.role === "choice" ? "default, in the sweep" : series.label;

  function drawLegend() {
    const legend = byId("legend");
    const focused = legend.contains(document.activeElement) ? document.activeElement.dataset.series : null;
    legend.replaceChildren(...state.condition.series.map((series) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.series = series.label;
      button.setAttribute("aria-pressed", String(isShown(series)));
      button.className = series.role === "choice" ? "" : "strong";
      button.append(lineSample(series), legendText(series));
      button.addEventListener("click", () => {
        state.shown.set(series.label, !isShown(series));
        drawLegend();
        drawCurve();
      });
      return button;
    }));
    if (focused !== null) [...legend.children].find((button) => button.dataset.series === focused)?.focus();
  }

  function aboutText() {
    const condition = state.condition;
    const noise = condition.noise;
    return [
      `· ${condition.samples.toLocaleString("en-US")} timings`, condition.rounds > 1 ? `in ${condition.rounds} rounds` : "",
      noise.known ? `· noise ${percentText(noise.typical)} typical, ${percentText(noise.high)} high (${noise.words}).`
        : `· noise unknown, ${percentText(noise.typical)} is assumed.`,
      condition.saturation || "", condition.ran ? `The default ${condition.ran}.` : "", condition.model ? `${condition.model}.` : ""].filter(Boolean).join(" ");
  }

  function drawWords() {
    const condition = state.condition;
    document.querySelector('[data-text="title"]').textContent = condition.title;
    document.querySelector('[data-text="about"]').textContent = aboutText();
    drawMarks(byId("marks"));
    for (const [id, what] of [["curve-chart", "S-curve"], ["map-chart", "Choice map"]]) {
      byId(id).setAttribute("aria-label", `${what} of ${condition.title}. The numbers are in the table "Every size in numbers" and in the CSV.`);
    }
  }

  function drawMarks(list) {
    list.replaceChildren(...state.condition.marks.map((mark) => {
      const finding = report.findings[mark.finding - 1];
      const item = document.createElement("li");
      item.className = `kind-${finding.kind}`;
      const link = document.createElement("a");
      link.href = `#${finding.id}`;
      const badge = document.createElement("span");
      badge.className = "badge";
      badge.textContent = finding.number;
      link.append(badge, `${finding.heading}, ${rangeText(mark.min_bytes, mark.max_bytes)}`);
      item.append(link);
      return item;
    }));
  }

  function draw() {
    drawLegend();
    drawWords();
    return Promise.all([drawCurve(), drawMaps()]);
  }

  function choose(id) {
    const found = report.conditions.find((condition) => condition.id === id);
    if (!found) return;
    state.condition = found;
    for (const details of document.querySelectorAll("details[data-for]")) details.hidden = details.dataset.for !== id;
    for (const input of document.querySelectorAll('input[name="condition"]')) input.checked = input.value === id;
    if (byId("condition")) byId("condition").value = id;
  }

  // ---- theme, print ----
  function setTheme(theme) {
    root.dataset.theme = theme;
    const button = byId("theme");
    button.hidden = false;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${theme === "dark" ? "light" : "dark"} theme`);
    button.setAttribute("aria-pressed", String(theme === "dark"));
  }

  // A printed page has no tabs, so it shows the charts of every condition, one after the other.
  function printing(on) {
    if (on === state.paper || !state.condition) return;
    const paper = byId("paper");
    state.paper = on;
    if (on) {
      state.theme = root.dataset.theme;
      root.dataset.theme = "light";
      root.dataset.paper = "true";
      const { condition, finding } = state;
      state.finding = null;
      for (const id of paper.dataset.order.split(" ")) {
        state.condition = report.conditions.find((item) => item.id === id);
        drawOnPaper(paper);
      }
      Object.assign(state, { condition, finding });
    } else {
      root.dataset.theme = state.theme;
      delete root.dataset.paper;
      for (const chart of paper.querySelectorAll(".js-plotly-plot")) Plotly.purge(chart);
      paper.replaceChildren();
      draw();
    }
  }

  function drawOnPaper(paper) {
    const sheet = byId("sheet").content.cloneNode(true).firstElementChild;
    paper.append(sheet);
    for (const element of sheet.querySelectorAll("[data-sheet]")) {
      element.textContent = { label: state.condition.label, title: state.condition.title, about: aboutText() }[element.dataset.sheet];
    }
    sheet.querySelector(".legend").replaceChildren(...state.condition.series.filter(isShown).map((series) => {
      const item = document.createElement("span");
      item.append(lineSample(series), legendText(series));
      return item;
    }));
    drawMarks(sheet.querySelector(".marks"));
    drawCurve(sheet.querySelector(".curve-chart"));
    drawMaps(sheet.querySelector(".map-chart"), sheet.querySelector(".map-more"));
  }

  // ---- copy, download ----
  const say = (text) => { byId("status").textContent = text; };

  async function copy(button) {
    const source = byId(button.dataset.copy);
    let done = false;
    try {
      await navigator.clipboard.writeText(source.textContent);
      done = true;
    } catch {
      // Without the clipboard API (file://, an old browser, no permission), copying the selection
      // still works.
      window.getSelection().selectAllChildren(source);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    say(done ? "Copied to the clipboard" : "The command is selected: press Ctrl+C");
    window.setTimeout(() => { button.textContent = "Copy"; }, 2500);
  }

  function csv() {
    const cell = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const fixed = ["collective", "nodes", "ranks", "in_place", "registered", "graph", "group_calls", "pipe_ops", "dtype", "redop", "root"];
    const columns = ["bytes", "n", "time_us", "low_us", "high_us", "busbw_gb_per_s"];
    const rows = [[...fixed, "choice", ...columns]];
    for (const condition of report.conditions) {
      for (const series of condition.series) {
        if (["tuned, expected", "candidates"].includes(series.label)) continue;
        series.bytes.forEach((_, index) => rows.push([...fixed.map((name) => condition[name]),
          series.role === "measured" ? "tuned" : series.label, ...columns.map((name) => series[name][index])]));
      }
    }
    return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  function download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = `${report.study.replace(/[^\w.-]+/g, "-") || "study"}-curves.csv`;
    document.body.append(link);
    link.click();
    link.remove();
    window.setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say("The CSV file was downloaded");
  }

  // ---- start ----
  async function unpackPlotly() {
    const packed = byId("plotly-packed");
    const bytes = Uint8Array.from(atob(packed.textContent), (char) => char.charCodeAt(0));
    packed.remove();
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  function listen() {
    for (const input of document.querySelectorAll('input[name="condition"], #condition')) {
      input.addEventListener("change", () => { state.finding = null; choose(input.value); draw(); });
    }
    for (const input of document.querySelectorAll('input[name="metric"]')) {
      input.addEventListener("change", () => { state.metric = input.value; drawCurve(); });
    }
    for (const link of document.querySelectorAll("a.show")) {
      link.addEventListener("click", () => {
        choose(link.dataset.condition);
        state.finding = link.dataset.finding ? Number(link.dataset.finding) : null;
        draw();
      });
    }
    byId("curve-chart").on("plotly_clickannotation", (event) => { window.location.hash = event.annotation.name; });
    window.addEventListener("beforeprint", () => printing(true));
    window.addEventListener("afterprint", () => printing(false));
    window.matchMedia("print").addEventListener("change", (event) => printing(event.matches));
    // The charts are redrawn when the width changes: ticks and cell numbers depend on it, and
    // Plotly only stretches a chart.
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth !== width && !state.paper) { width = window.innerWidth; draw(); }
    });
  }

  async function start() {
    setTheme(prefersDark.matches ? "dark" : "light");
    const redraw = () => (state.condition && window.Plotly ? draw() : null);
    byId("theme").addEventListener("click", () => { setTheme(root.dataset.theme === "dark" ? "light" : "dark"); redraw(); });
    prefersDark.addEventListener("change", (event) => { setTheme(event.matches ? "dark" : "light"); redraw(); });
    for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
    byId("csv").addEventListener("click", download);
    if (!report.conditions.length) return;
    const chosen = document.querySelector('input[name="condition"]:checked') || byId("condition");
    choose(chosen ? chosen.value : report.conditions[0].id);
    try {
      await unpackPlotly();
      await draw();
      listen();
      root.dataset.ready = "true";
    } catch (error) {
      byId("chart-error").textContent = `The charts could not be drawn (${error.message}); every number is in the tables of this page.`;
      byId("chart-error").hidden = false;
    }
  }
  start();
})();
