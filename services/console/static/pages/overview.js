import { ask, count, empty, every, facts, h, health, link, time } from "/static/lib.js";
import { plot } from "/static/plot.js";

const EVERY = 5000, MONTH_SECONDS = 30 * 86_400;
const RATES = [
  ["Records produced", "produced_records", "records/s"], ["Bytes produced", "produced_bytes", "B/s"],
  ["Bytes fetched by consumers", "fetched_bytes", "B/s"], ["Bytes scanned by Spark", "scanned_bytes", "B/s"],
  ["PUT requests", "puts", "requests/s"], ["GET requests", "gets", "requests/s"],
  ["LIST requests", "lists", "requests/s"], ["DELETE requests", "deletes", "requests/s"],
  ["Bytes to the object store", "stored_bytes", "B/s"], ["Bytes from the object store", "read_bytes", "B/s"],
];
const whole = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });
const small = new Intl.NumberFormat("en", { style: "currency", currency: "USD", minimumFractionDigits: 4, maximumFractionDigits: 4 });

const usd = (amount) => (amount >= 1 || !amount ? whole.format(amount) : amount < 0.0001 ? "less than $0.0001" : small.format(amount));
const duration = (seconds) => (seconds < 120 ? `${count(Math.round(seconds))} seconds` : `${count(Math.round(seconds / 60))} minutes`);

// What needs attention, the most urgent first.
function concerns(cluster) {
  const found = [];
  for (const member of cluster.members) {
    const name = `${member.service} ${member.address || "in this process"}`;
    if (member.health === "UNREACHABLE") found.push(["bad", `${name} is registered but does not answer.`, member.detail]);
    if (member.health === "NOT_READY") found.push(["bad", `${name} is not ready.`, member.detail]);
    if (member.draining) found.push(["", `${name} is draining: ${count(member.owned)} left.`, ""]);
    else if (member.leaving) found.push(["", `${name} is stopping.`, ""]);
  }
  for (const service of ["gateway", "storage", "coordinator"]) {
    if (!cluster.members.some((member) => member.service === service)) found.unshift(["bad", `No ${service} is registered.`, ""]);
  }
  if (cluster.partitions_without_owner && !cluster.members.some((member) => member.service === "storage" && !member.leaving)) {
    found.unshift(["bad", `${count(cluster.partitions_without_owner)} partitions have no owner, and no storage instance can take them over.`, ""]);
  }
  if (new Set(cluster.members.map((member) => member.version)).size > 1) found.push(["", "The instances have different versions.", ""]);
  return found;
}

function draw(cluster) {
  const found = concerns(cluster), services = new Map();
  for (const member of cluster.members) services.set(member.service, [...(services.get(member.service) ?? []), member]);
  return [
    facts(["Cluster", cluster.cluster_id], ["Namespace", cluster.namespace], ["Topics", link("/topics", count(cluster.topics))], ["Partitions", count(cluster.partitions)], ["Without an owner", count(cluster.partitions_without_owner)], ["State format", cluster.state_format ?? "unknown"]),
    h("h2", {}, "Needs attention"),
    found.length ? h("ul", { class: "concerns" }, found.map(([kind, text, detail]) => h("li", { class: kind }, text, detail ? h("small", {}, ` ${detail}`) : ""))) : h("p", { class: "fine" }, "Nothing. All instances are healthy."),
    h("h2", {}, "Services"),
    h("div", { class: "cards" }, [...services].map(([service, members]) => h("section", { class: "card" }, h("h3", {}, link("/instances", service)), h("ul", {}, members.map((member) => h("li", {}, health(member), " ", member.address || "in this process", " ", h("small", {}, member.version, " since ", time(member.started_ms)))))))),
  ];
}

// The rates of the last hour, and what its requests to the object store cost.
function drawRates({ now_ms, every_ms, fault, put_price, get_price, columns }) {
  const times = columns.time_ms, silent = columns.silent.at(-1);
  if (!times.length) return [empty(fault ? `The console does not know the rates. Its own token, KAFSCALE_ADMIN_TOKEN, is used to ask for them: ${fault}` : "The console has begun to measure. The first rates appear within half a minute.")];
  const total = (name) => columns[name].reduce((sum, each) => sum + each, 0);
  const measured = columns.seconds.reduce((sum, each) => sum + each, 0);
  const kinds = [["PUT", total("puts"), put_price], ["LIST", total("lists"), put_price], ["GET", total("gets"), get_price], ["DELETE", total("deletes"), 0]];
  const cost = kinds.reduce((sum, [, requests, price]) => sum + (requests / 1000) * price, 0);
  return [
    h("p", {}, "Measured every 10 seconds, since ", time(times[0] - 1000 * columns.seconds[0]), "."),
    fault || silent ? h("p", { class: "wrong" }, fault ? `The gateways do not report rates now: ${fault}` : `${count(silent)} processes do not report what they do, so these rates are too low.`) : "",
    h("div", { class: "plots" }, RATES.map(([title, name, unit]) => plot(title, unit, columns[name].map((each, at) => each / (columns.seconds[at] || 1)), { times, now: now_ms, every: every_ms, seconds: columns.seconds }))),
    h("h3", {}, "Cost of these requests"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "cost of requests" }, h("table", {}, h("caption", {}, "cost of requests"), h("thead", {}, h("tr", {}, ["Requests", "Number", "USD for 1000", "USD"].map((head, at) => h("th", { scope: "col", class: at ? "number" : "" }, head)))), h("tbody", {}, kinds.map(([kind, requests, price]) => h("tr", {}, h("th", { scope: "row" }, kind), h("td", { class: "number" }, count(requests)), h("td", { class: "number" }, price), h("td", { class: "number" }, usd((requests / 1000) * price))))))),
    h("p", {}, h("strong", {}, usd(cost)), ` in ${duration(measured)}, which would be ${usd((cost * MONTH_SECONDS) / measured)} in 30 days. Storage and transfer are not included. A local directory instead of S3 costs nothing.`),
  ];
}

export async function overview(_, { say }) {
  const body = h("div"), rates = h("div");
  const update = async () => {
    body.replaceChildren(...draw(await ask("/api/cluster")));
    say("");
  };
  const updateRates = () => ask("/api/rates").then((found) => rates.replaceChildren(...drawRates(found)), (error) => rates.replaceChildren(empty(error.message)));
  await Promise.all([update(), updateRates()]);
  const stops = [every(EVERY, () => update().catch((error) => say(error.message))), every(2 * EVERY, updateRates)];
  return { title: "Overview", content: [body, h("h2", {}, "Rates of the last hour"), rates], leave: () => stops.forEach((stop) => stop()) };
}
