// Plots of the last hour.
import { bytes, count, h, svg, time } from "/static/lib.js";

const WIDTH = 360, HEIGHT = 70, LONGEST = 3_600_000, SHORTEST = 300_000;
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

export function amount(value, unit) {
  if (unit === "B/s") return `${bytes(value)}/s`;
  return `${value && value < 100 ? few.format(value) : count(Math.round(value))} ${unit}`;
}

// times: milliseconds at which an interval ends. An interval without a value is a gap in the line.
export function plot(title, unit, times, values, every) {
  const end = Math.max(Date.now(), times.at(-1) ?? 0), most = Math.max(...values, 0), last = values.at(-1) ?? 0;
  const mean = values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : 0;
  // The time of the first value is at the left, unless the line would be very short.
  const span = Math.min(LONGEST, Math.max(SHORTEST, end - (times[0] ?? end) + every));
  const x = (at) => Math.max(0, WIDTH - ((end - at) / span) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 2 - (most ? value / most : 0) * (HEIGHT - 6)).toFixed(1);
  const lines = [];
  times.forEach((at, index) => {
    const begin = Math.max(at - every, index ? times[index - 1] : 0);
    if (!index || at - times[index - 1] > 2.5 * every) lines.push([`${x(begin)},${y(values[index])}`]);
    lines.at(-1).push(`${x(at)},${y(values[index])}`);
  });
  const numbers = `now ${amount(last, unit)}, at most ${amount(most, unit)}, ${amount(mean, unit)} on average`;
  const gaps = lines.length > 1 ? `, with ${lines.length - 1} gaps` : "";
  return h("figure", { class: "plot" },
    h("figcaption", {}, h("strong", {}, title), h("span", {}, numbers)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": `${title} in the last hour: ${numbers}${gaps}` }, lines.map((points) => svg("polyline", { points: points.join(" ") }))),
    h("small", {}, times.length ? ["from ", time(end - span), " until now", gaps] : "nothing was measured yet"));
}
