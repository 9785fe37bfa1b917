"use strict";
// Ties the page together: decompresses plotly.js, hands it what the report's charts are, in the colours of the
// theme, and answers to buttons and lists. It computes nothing.
(() => {
  const byChart = (kind, id) => document.querySelector(`${kind}[data-chart="${id}"]`);
  const root = document.documentElement;
  // Pixels that a chart has on A4 and on Letter.
  const PRINTED = 620;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const charts = new Map();
  for (const spec of document.querySelectorAll("script.spec")) {
    charts.set(spec.dataset.chart, { spec, shown: 0, hidden: new Set(), drawn: false });
  }

  // `$series0` becomes the style's --series0, `$series0-soft` the same with most of it transparent.
  const colour = (name, style) => {
    const [, base, soft] = /^\$([a-z0-9]+)(-soft)?$/.exec(name) ?? [];
    if (!base) return name;
    const value = style.getPropertyValue(`--${base}`).trim();
    return soft ? `${value.slice(0, 7)}${["client", "proxy", "server"].includes(base) ? "8c" : "33"}` : value;
  };
  const themed = (value, style, key) => {
    if (Array.isArray(value)) return value.map((each) => themed(each, style, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, each]) => [k, themed(each, style, k)]));
    }
    return typeof value === "string" && /color$/.test(key) ? colour(value, style) : value;
  };

  // A narrow axis has every second of many ticks; 1, no difference, stays.
  const thinned = (of) => {
    if (!(of.tickvals?.length > 6)) return of;
    const odd = Math.max(0, of.tickvals.indexOf(1)) % 2;
    const keep = (_, index) => index % 2 === odd;
    return { ...of, tickvals: of.tickvals.filter(keep), ticktext: of.ticktext.filter(keep) };
  };
  const axis = (of, style, narrow) => ({
    automargin: true, fixedrange: true, zeroline: false, gridcolor: style.getPropertyValue("--rule").trim(),
    linecolor: style.getPropertyValue("--soft").trim(), ticks: "outside", ...of,
    tickfont: { size: narrow ? 11 : 12 }, title: { ...of.title, standoff: 8, font: { size: narrow ? 12 : 13 } },
  });

  const draw = (id) => {
    const chart = charts.get(id);
    const plot = document.getElementById(id);
    chart.views ??= JSON.parse(chart.spec.textContent).views;
    const style = getComputedStyle(root);
    const printing = "print" in root.dataset;
    const narrow = !printing && plot.clientWidth < 480;
    const { traces, layout } = themed(chart.views[chart.shown], style, "");
    const data = traces.map((trace) => ({ ...trace, showlegend: false, visible: !chart.hidden.has(trace.legendgroup) }));
    const ink = style.getPropertyValue("--ink").trim();
    const full = {
      ...layout, width: printing ? PRINTED : undefined, autosize: !printing, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: getComputedStyle(document.body).fontFamily },
      margin: { l: narrow ? 48 : 64, r: narrow ? 10 : 24, t: 16, b: 48 }, hovermode: "closest", dragmode: false,
      hoverlabel: { align: "left", bgcolor: style.getPropertyValue("--paper").trim(), bordercolor: ink, font: { color: ink } },
      xaxis: axis(narrow ? thinned(layout.xaxis) : layout.xaxis, style, narrow), yaxis: axis(layout.yaxis, style, narrow),
    };
    plot.style.minHeight = `${layout.height}px`;
    chart.drawn = true;
    return Plotly.react(plot, data, full, { displayModeBar: false, responsive: true, doubleClick: false, showTips: false });
  };
  const drawAll = (only) => Promise.all([...charts.keys()].filter((id) => only(charts.get(id))).map(draw));

  for (const button of document.querySelectorAll("button[data-series]")) {
    button.addEventListener("click", () => {
      const { hidden } = charts.get(button.dataset.chart);
      const hide = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!hide));
      hidden[hide ? "add" : "delete"](button.dataset.series);
      draw(button.dataset.chart);
    });
  }
  for (const list of document.querySelectorAll("select[data-chart]")) {
    list.addEventListener("change", () => {
      charts.get(list.dataset.chart).shown = Number(list.value);
      draw(list.dataset.chart);
    });
  }
  for (const button of document.querySelectorAll("button.download")) {
    button.addEventListener("click", () => {
      const text = document.querySelector(`script.report[data-report="${button.dataset.report}"]`).textContent;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text, "\n"], { type: "application/json" }));
      link.download = `samehost-${JSON.parse(text).workload.name.replace(/[^a-z0-9-]/gi, "")}.json`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  const load = async () => {
    const text = atob(document.getElementById("plotly").textContent);
    const packed = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  };
  // What is in sight is drawn at once, the rest whenever the browser has nothing else to do.
  const begin = async () => {
    const inSight = (id) => document.getElementById(id).getBoundingClientRect().top < innerHeight;
    await drawAll((chart) => inSight(chart.spec.dataset.chart));
    root.dataset.ready = "first";
    for (const [id, chart] of charts) {
      if (chart.drawn) continue;
      await new Promise((resume) => setTimeout(resume));
      await draw(id);
    }
    root.dataset.ready = "all";
    const again = () => drawAll(() => true);
    dark.addEventListener("change", again);
    addEventListener("beforeprint", () => {
      root.dataset.print = "";
      again();
    });
    addEventListener("afterprint", () => {
      delete root.dataset.print;
      again();
    });
  };
  load().then(begin).catch((error) => {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = `The charts could not be drawn (${error.message}); every value stands in the tables.`;
    document.querySelector("main").prepend(note);
    console.error(error);
  });
})();
