import { ask, count, facts, h, health, link, time } from "/static/lib.js";

const EVERY = 5000;

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

export async function overview(_, { say }) {
  const body = h("div");
  const update = async () => {
    body.replaceChildren(...draw(await ask("/api/cluster")));
    say("");
  };
  await update();
  const timer = setInterval(() => update().catch((error) => say(error.message)), EVERY);
  return { title: "Overview", content: [body], leave: () => clearInterval(timer) };
}
