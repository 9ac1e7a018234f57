// Plots of the last hour.
import { bytes, count, h, svg, time } from "/static/lib.js";

const WIDTH = 360, HEIGHT = 70, LONGEST = 3_600_000, SHORTEST = 300_000;
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

export function amount(value, unit) {
  if (unit === "B/s") return `${bytes(value)}/s`;
  return `${value && value < 100 ? few.format(value) : count(Math.round(value))} ${unit}`;
}

// times: milliseconds at which intervals end. seconds: their lengths. now: the console's time in milliseconds.
// An interval without a value is a gap in the line.
export function plot(title, unit, values, { times, now, every, seconds = times.map(() => every / 1000) }) {
  const end = Math.max(now, times.at(-1) ?? 0), most = Math.max(...values, 0);
  const total = (each) => each.reduce((sum, one) => sum + one, 0);
  const mean = values.length ? total(values.map((each, at) => each * seconds[at])) / total(seconds) : 0;
  const current = times.length && end - times.at(-1) < 3 * every ? `now ${amount(values.at(-1), unit)}` : "not known now";
  // The time of the first value is at the left, unless the line would be very short.
  const span = Math.min(LONGEST, Math.max(SHORTEST, end - (times[0] ?? end) + every));
  const x = (at) => Math.max(0, WIDTH - ((end - at) / span) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 2 - (most ? value / most : 0) * (HEIGHT - 6)).toFixed(1);
  const lines = [];
  times.forEach((at, index) => {
    const former = index ? times[index - 1] : 0, begin = Math.max(at - 1000 * seconds[index], former);
    if (begin - former > 1.5 * every) lines.push([`${x(begin)},${y(values[index])}`]);
    lines.at(-1).push(`${x(at)},${y(values[index])}`);
  });
  const numbers = `${current}, at most ${amount(most, unit)}, ${amount(mean, unit)} on average`;
  const gaps = lines.length > 1 ? `, with ${lines.length - 1} gaps` : "";
  return h("figure", { class: "plot" },
    h("figcaption", {}, h("strong", {}, title), h("span", {}, numbers)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": `${title} in the last hour: ${numbers}${gaps}` }, lines.map((points) => svg("polyline", { points: points.join(" ") }))),
    h("small", {}, times.length ? ["from ", time(end - span), " until now", gaps] : "nothing was measured yet"));
}
