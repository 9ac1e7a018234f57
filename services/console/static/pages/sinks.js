import { ask, badge, count, empty, facts, h, link, path, table, time } from "/static/lib.js";

const state = (sink) => (sink.error ? badge(sink.error, "bad") : sink.remaining.length ? badge(`${sink.remaining.length} partitions left`) : badge("complete", "good"));
const epoch = (sink) => (BigInt(sink.epoch) < 0n ? "none" : count(sink.epoch));

export async function sinks() {
  const { sinks: found } = await ask("/api/sinks");
  const columns = [
    { head: "Sink", key: (each) => each.name, cell: (each) => link(`/sinks${path(each.name)}`, each.name) },
    { head: "Last epoch", numeric: true, key: (each) => each.epoch, cell: epoch },
    { head: "Committed", numeric: true, key: (each) => each.committed_ms, cell: (each) => time(each.committed_ms) || "never" },
    { head: "Kind", key: (each) => (each.once ? "batch" : "stream"), cell: (each) => (each.once ? "batch" : "stream") },
    { head: "In the log", key: (each) => each.remaining.length, cell: state },
  ];
  return { title: "Spark sinks", content: [table("sinks", columns, found, empty("There are no sinks. A Spark job that writes to KafScale creates one with its first epoch."))] };
}

export async function sink([name]) {
  const found = (await ask("/api/sinks")).sinks.find((each) => each.name === name);
  if (!found) return { title: name, content: [h("p", {}, link("/sinks", "Spark sinks")), empty("There is no such sink. The record of a batch job is removed some time after the job.")] };
  const columns = [
    { head: "Topic", key: (each) => each.topic, cell: (each) => link(`/topics${path(each.topic)}`, each.topic) },
    { head: "Partition", numeric: true, key: (each) => each.partition, cell: (each) => link(`/topics${path(each.topic)}/${each.partition}`, each.partition) },
  ];
  return {
    title: name,
    content: [
      h("p", {}, link("/sinks", "Spark sinks")),
      facts(["Last epoch", epoch(found)], ["Committed", time(found.committed_ms) || "never"], ["Kind", found.once ? "batch" : "stream"], ["In the log", state(found)], ["Epochs with discarded stages", count(found.discarded_epochs)]),
      h("h2", {}, "Partitions to which the epoch is not appended yet"),
      table("partitions", columns, found.remaining, empty("None. All records of the last epoch are in the log.")),
    ],
  };
}
