import { ask, badge, count, empty, h, link, path, table, time } from "/static/lib.js";

export async function topics() {
  const found = (await ask("/api/topics")).topics;
  const columns = [
    { head: "Topic", key: (each) => each.name, cell: (each) => [link(`/topics${path(each.name)}`, each.name), each.deleting ? badge("being deleted") : ""] },
    { head: "Partitions", numeric: true, key: (each) => each.partitions, cell: (each) => count(each.partitions) },
    { head: "Cleanup", key: (each) => each.cleanup_policy, cell: (each) => each.cleanup_policy },
    { head: "Created", numeric: true, key: (each) => each.created_ms, cell: (each) => time(each.created_ms) },
    { head: "Own configs", key: (each) => Object.keys(each.configs).sort().join(" "), cell: (each) => Object.entries(each.configs).sort().map(([name, value]) => h("div", {}, h("code", {}, `${name}=${value}`))) },
  ];
  const nothing = empty("There are no topics. A client that produces to a new name creates one, and so does ", h("code", {}, "kafscale topic create NAME"), ".");
  return { title: "Topics", content: [table("topics", columns, found, nothing)] };
}
