import { ask, badge, count, dialog, empty, h, link, pairs, path, table, time } from "/static/lib.js";

export async function topics(_, { mayChange, change, go }) {
  const found = (await ask("/api/topics")).topics;
  const columns = [
    { head: "Topic", key: (each) => each.name, cell: (each) => [link(`/topics${path(each.name)}`, each.name), each.deleting ? badge("being deleted") : ""] },
    { head: "Partitions", numeric: true, key: (each) => each.partitions, cell: (each) => count(each.partitions) },
    { head: "Cleanup", key: (each) => each.cleanup_policy, cell: (each) => each.cleanup_policy },
    { head: "Created", numeric: true, key: (each) => each.created_ms, cell: (each) => time(each.created_ms) },
    { head: "Own configs", key: (each) => Object.keys(each.configs).sort().join(" "), cell: (each) => Object.entries(each.configs).sort().map(([name, value]) => h("div", {}, h("code", {}, `${name}=${value}`))) },
  ];
  const nothing = empty("There are no topics. A client that produces to a new name creates one, and so does ", h("code", {}, "kafscale topic create NAME"), ".");
  const create = () => dialog("Create a topic", [
    { name: "name", label: "Name", required: true },
    { name: "partitions", label: "Partitions", type: "number", value: "1", required: true },
    { name: "configs", label: "Configs", type: "textarea", help: "One line for each, as retention.ms=86400000" },
  ], "Create", async ({ name, partitions, configs }) => {
    await change("/api/topics", "POST", { name, partitions: Number(partitions), configs: pairs(configs) });
    go(`/topics${path(name)}`);
  });
  return { title: "Topics", content: [mayChange ? h("p", { class: "tools" }, h("button", { type: "button", onclick: create }, "Create a topic")) : "", table("topics", columns, found, nothing)] };
}
