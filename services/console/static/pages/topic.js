import { ask, badge, bytes, count, empty, facts, h, link, path, table, time } from "/static/lib.js";

const EVERY = 5000;

export async function topic([name], { say }) {
  const at = `/api/topics${path(name)}`;
  const [described, configs] = await Promise.all([ask(at), ask(`${at}/configs`)]);
  const about = described.topic;
  let former, rate = h("span", {}, "measuring"), first = await ask(`${at}/partitions`);
  const size = h("span"), records = h("span");
  const columns = [
    { head: "Partition", numeric: true, key: (each) => each.partition, cell: (each) => link(`/topics${path(name)}/${each.partition}`, each.partition) },
    { head: "Owner", key: (each) => each.owner, cell: (each) => each.owner || (each.owner_run ? "in this process" : "none") },
    { head: "Epoch", numeric: true, key: (each) => each.epoch, cell: (each) => (each.epoch < 0 ? "none" : each.epoch) },
    { head: "Log start", numeric: true, key: (each) => each.log_start, cell: (each) => count(each.log_start) },
    { head: "High watermark", numeric: true, key: (each) => each.high_watermark, cell: (each) => count(each.high_watermark) },
    { head: "Segments", numeric: true, key: (each) => each.segments, cell: (each) => count(each.segments) },
    { head: "Size", numeric: true, key: (each) => each.bytes, cell: (each) => [bytes(each.bytes), each.error ? badge(each.error, "bad") : ""] },
  ];
  const list = table("partitions", columns, first.partitions, empty("The topic has no partitions."));
  function draw({ partitions }) {
    const known = partitions.filter((each) => BigInt(each.high_watermark) >= 0n);
    const end = known.reduce((sum, each) => sum + BigInt(each.high_watermark), 0n);
    const now = performance.now();
    if (former) rate.textContent = `${count(Math.max(0, Math.round(Number(end - former.end) / ((now - former.now) / 1000))))} records/s`;
    former = { end, now };
    size.textContent = bytes(known.reduce((sum, each) => sum + BigInt(each.bytes), 0n));
    records.textContent = count(known.reduce((sum, each) => sum + BigInt(each.high_watermark) - BigInt(each.log_start), 0n));
    list.update(partitions);
    say("");
  }
  draw(first);
  const timer = setInterval(() => ask(`${at}/partitions`).then(draw).catch((error) => say(error.message)), EVERY);
  const settings = table("configs", [
    { head: "Config", key: (each) => each.name, cell: (each) => h("code", { title: each.documentation }, each.name) },
    { head: "Value", key: (each) => each.value, cell: (each) => h("code", {}, each.value) },
    { head: "From", key: (each) => each.source, cell: (each) => badge(each.source, each.source === "topic" ? "good" : "") },
    { head: "Meaning", cell: (each) => h("small", {}, each.documentation) },
  ], configs.configs, empty("none"));
  return {
    title: name,
    content: [
      facts(["Id", h("code", {}, about.id)], ["Created", time(about.created_ms)], ["Partitions", count(about.partitions)], ["Offsets in the log", records], ["In segments", size], ["Produced", rate]),
      h("h2", {}, "Partitions"), list, h("h2", {}, "Configs"), settings,
    ],
    leave: () => clearInterval(timer),
  };
}
