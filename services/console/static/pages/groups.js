import { ask, badge, empty, link, path, table } from "/static/lib.js";

const KIND = { Stable: "good", Dead: "bad" };

export async function groups() {
  const found = (await ask("/api/groups")).groups;
  const columns = [
    { head: "Group", key: (each) => each.group, cell: (each) => link(`/groups${path(each.group)}`, each.group || "(empty name)") },
    { head: "State", key: (each) => each.state, cell: (each) => badge(each.state, KIND[each.state]) },
    { head: "Protocol", key: (each) => each.protocol_type, cell: (each) => each.protocol_type || "none: only commits" },
    { head: "Coordinator", key: (each) => each.coordinator, cell: (each) => each.coordinator || "in this process" },
  ];
  return { title: "Groups", content: [table("groups", columns, found, empty("There are no consumer groups. A consumer with a group.id creates one."))] };
}
