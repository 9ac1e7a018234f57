import { ask, bytes, count, empty, every, facts, h, link, path, svg, table } from "/static/lib.js";

const EVERY = 2000, WIDTH = 900, HEIGHT = 90;

// Segments by offset, as wide as their offsets, as high as their bytes.
function map(segments, end) {
  const start = BigInt(segments[0].base_offset), length = Number(BigInt(end) - start) || 1;
  const largest = Math.max(...segments.map((each) => Number(each.bytes)), 1);
  const place = (offset) => (Number(BigInt(offset) - start) / length) * WIDTH;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "segments", role: "img", "aria-label": `${segments.length} segments from offset ${start} to ${end}` }, segments.map((each) => {
    const x = place(each.base_offset), tall = each.object ? Math.max(3, (Number(each.bytes) / largest) * HEIGHT) : HEIGHT;
    return svg("rect", { x, y: HEIGHT - tall, width: Math.max(1, place(each.end_offset) - x - 0.5), height: tall, class: each.object ? (each.faults.length ? "bad" : "segment") : "hole" }, svg("title", {}, `offsets ${each.base_offset} to ${BigInt(each.end_offset) - 1n}, ${each.object ? bytes(each.bytes) : "a hole"}`));
  }));
}

export async function segments([name, partition], { again, say }) {
  const start = new URLSearchParams(location.search).get("start") ?? "0";
  const verify = new URLSearchParams(location.search).has("verify");
  const at = `/topics${path(name)}/${partition}`;
  const asked = `/api/topics${path(name)}/partitions/${partition}/segments?start=${encodeURIComponent(start)}${verify ? "&verify=true" : ""}`;
  const found = await ask(asked);
  const columns = [
    { head: "First offset", numeric: true, key: (each) => each.base_offset, cell: (each) => (each.object ? link(`${at}/${each.base_offset}`, count(each.base_offset)) : count(each.base_offset)) },
    { head: "Offsets", numeric: true, key: (each) => BigInt(each.end_offset) - BigInt(each.base_offset), cell: (each) => count(BigInt(each.end_offset) - BigInt(each.base_offset)) },
    { head: "Size", numeric: true, key: (each) => each.bytes, cell: (each) => bytes(each.bytes) },
    { head: "Epoch", numeric: true, key: (each) => each.epoch, cell: (each) => each.epoch },
    { head: "Object", key: (each) => each.object, cell: (each) => (each.object ? h("code", {}, each.object) : "none: these offsets are missing") },
    { head: "Defects", key: (each) => each.faults.join(" "), cell: (each) => each.faults.map((fault) => h("div", { class: "wrong" }, fault)) },
  ];
  const more = BigInt(found.next_offset) < BigInt(found.high_watermark);
  return {
    title: `${name}, partition ${partition}`,
    content: [
      h("p", { class: "tools" }, link(`/topics${path(name)}`, `Topic ${name}`), link(`/topics${path(name)}/records?partition=${partition}`, "Records")),
      facts(["High watermark", count(found.high_watermark)], ["Segments on this page", count(found.segments.length)]),
      ...(found.segments.length ? [map(found.segments, found.next_offset)] : []),
      table("segments", columns, found.segments, empty("No record of this partition is in a segment yet.")),
      h("p", { class: "tools" }, more ? link(`${at}?start=${found.next_offset}${verify ? "&verify" : ""}`, "Next segments") : "", verify ? link(`${at}?start=${start}`, "Without verification") : link(`${at}?start=${start}&verify`, "Read and verify these segments")),
    ],
    // Acknowledged records are in a segment some time later.
    leave: found.segments.length ? undefined : every(EVERY, () => ask(asked).then(({ segments }) => { say(""); if (segments.length) again(); }).catch((error) => say(error.message))),
  };
}
