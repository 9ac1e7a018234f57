import { ask, badge, bytes, count, dialog, empty, every, facts, h, link, path, table, time } from "/static/lib.js";

const EVERY = 5000;

export async function topic([name], { say, mayChange, change, again, go }) {
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
  const stop = every(EVERY, () => ask(`${at}/partitions`).then(draw).catch((error) => say(error.message)));
  const grow = () => dialog("Add partitions", [
    { name: "partitions", label: "New number of partitions", type: "number", value: String(about.partitions + 1), required: true, help: "Records of a key may then go to another partition. The number cannot be reduced." },
  ], "Add", async ({ partitions }) => { await change(`${at}/partitions`, "POST", { partitions: Number(partitions) }); again(); });
  const edit = (each) => dialog(`Change ${each.name}`, [
    { name: "value", label: "Value", value: each.value, help: each.documentation },
    { name: "how", label: "Set", options: [["set", "to this value"], ["unset", "to the default"]] },
  ], "Change", async ({ value, how }) => { await change(`${at}/configs`, "POST", how === "set" ? { set: { [each.name]: value } } : { unset: [each.name] }); again(); });
  const remove = () => dialog(`Delete ${name}`, [
    { name: "typed", label: "Type the name of the topic to delete it with all its records", required: true },
  ], "Delete", async ({ typed }) => {
    if (typed !== name) throw new Error("This is not the name of the topic.");
    await change(at, "DELETE");
    go("/topics");
  }, { danger: true });
  const settings = table("configs", [
    { head: "Config", key: (each) => each.name, cell: (each) => h("code", { title: each.documentation }, each.name) },
    { head: "Value", key: (each) => each.value, cell: (each) => h("code", {}, each.value) },
    { head: "From", key: (each) => each.source, cell: (each) => badge(each.source, each.source === "topic" ? "good" : "") },
    { head: "Meaning", cell: (each) => h("small", {}, each.documentation) },
    ...(mayChange ? [{ head: "Action", cell: (each) => h("button", { type: "button", "aria-label": `Change ${each.name}`, onclick: () => edit(each) }, "Change") }] : []),
  ], configs.configs, empty("none"));
  return {
    title: name,
    content: [
      facts(["Id", h("code", {}, about.id)], ["Created", time(about.created_ms)], ["Partitions", count(about.partitions)], ["Offsets in the log", records], ["In segments", size], ["Produced", rate]),
      h("p", {}, link(`/topics${path(name)}/records`, "Records")),
      mayChange ? h("p", { class: "tools" }, h("button", { type: "button", onclick: grow }, "Add partitions"), h("button", { type: "button", class: "danger", onclick: remove }, "Delete the topic")) : "",
      h("h2", {}, "Partitions"), list, h("h2", {}, "Configs"), settings,
    ],
    leave: stop,
  };
}
