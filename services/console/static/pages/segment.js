import { ask, badge, bytes, count, empty, facts, h, link, path, table, time } from "/static/lib.js";

const PAGE = 200;
const hex = (number) => `0x${number.toString(16).padStart(8, "0")}`;
const stamp = (at) => (BigInt(at) < 0n ? "none" : time(at));

function producer(each) {
  const marks = [each.transactional ? "transactional" : "", each.control ? "control" : "", each.horizon ? "delete horizon" : ""].filter(Boolean);
  const who = BigInt(each.producer_id) < 0n ? "none" : `${each.producer_id}, epoch ${each.producer_epoch}, sequence ${each.base_sequence}`;
  return [who, ...marks.map((mark) => [" ", badge(mark)])];
}

export async function segment([name, partition, offset]) {
  const first = Number(new URLSearchParams(location.search).get("batch") ?? "0");
  const up = `/topics${path(name)}/${partition}`, at = `${up}/${offset}`;
  const { contents } = await ask(`/api/topics${path(name)}/partitions/${partition}/segments/${offset}?batch=${encodeURIComponent(first)}`);
  const { header, footer } = contents, last = first + contents.batches.length;
  const batches = table("batches", [
    { head: "Position", numeric: true, key: (each) => each.position, cell: (each) => count(each.position) },
    { head: "Size", numeric: true, key: (each) => each.bytes, cell: (each) => bytes(each.bytes) },
    { head: "First offset", numeric: true, key: (each) => each.base_offset, cell: (each) => count(each.base_offset) },
    { head: "Last offset", numeric: true, key: (each) => each.last_offset, cell: (each) => count(each.last_offset) },
    { head: "Records", numeric: true, key: (each) => each.records, cell: (each) => count(each.records) },
    { head: "Codec", key: (each) => each.codec, cell: (each) => badge(each.codec) },
    { head: "Epoch", numeric: true, key: (each) => each.epoch, cell: (each) => each.epoch },
    { head: "Producer", key: (each) => each.producer_id, cell: producer },
    { head: "First timestamp", numeric: true, key: (each) => each.base_timestamp, cell: (each) => (each.horizon ? "" : stamp(each.base_timestamp)) },
    { head: "Latest timestamp", numeric: true, key: (each) => each.max_timestamp, cell: (each) => [stamp(each.max_timestamp), each.log_append_time ? " (append time)" : ""] },
  ], contents.batches, empty("There are no batches."));
  const index = table("index entries", [
    { head: "Offset", numeric: true, key: (each) => each.offset, cell: (each) => count(each.offset) },
    { head: "Position", numeric: true, key: (each) => each.position, cell: (each) => count(each.position) },
  ], contents.index_entries, empty("No entry of the index is about these batches."));
  return {
    title: `${contents.rewritten ? "Rewritten object" : "Segment"} with offset ${offset}`,
    content: [
      h("p", {}, link(up, `${name}, partition ${partition}`)),
      facts(["Object", h("code", {}, contents.object)], ["Size", bytes(contents.bytes)], ["Batches", count(contents.batch_count)], ["Index", contents.has_index ? h("code", {}, contents.index_object) : badge("missing", "bad")]),
      h("h2", {}, "Damage"),
      contents.faults.length ? h("ul", { class: "concerns" }, contents.faults.map((fault) => h("li", { class: "bad" }, fault))) : h("p", { class: "fine" }, "None. All checksums are correct."),
      h("h2", {}, "Header"),
      header ? facts(["First offset", count(header.base_offset)], ["Messages", count(header.messages)], ["Created", time(header.created_ms)], ["Epoch", header.epoch || "0: imported from KafScale 1"], ["Flags", hex(header.flags)]) : empty("The header is damaged."),
      h("h2", {}, "Batches"),
      contents.batch_count > contents.batches.length ? h("p", {}, `Batches ${count(first + 1)} to ${count(last)} of ${count(contents.batch_count)}`) : "",
      batches,
      h("p", { class: "tools" }, first ? link(`${at}?batch=${Math.max(0, first - PAGE)}`, "Previous batches") : "", last < contents.batch_count ? link(`${at}?batch=${last}`, "Next batches") : ""),
      h("h2", {}, "Footer"),
      footer ? facts(["Last offset", count(footer.last_offset)], ["Checksum", [h("code", {}, hex(footer.crc)), " ", footer.crc_correct ? badge("correct", "good") : badge("wrong", "bad")]]) : empty("The footer is damaged."),
      h("h2", {}, "Index"),
      h("p", {}, `${count(contents.index_entry_count)} ${contents.index_entry_count === 1 ? "entry" : "entries"}${contents.index_interval ? `, one for at least ${count(contents.index_interval)} messages` : ""}. Those of the batches above:`),
      index,
    ],
  };
}
