import { ask, badge, empty, h, table } from "/static/lib.js";

export async function access() {
  const content = [];
  const { users } = await ask("/api/users");
  content.push(h("h2", {}, "Users"), table("users", [
    { head: "User", key: (each) => each.name, cell: (each) => each.name },
    { head: "Credentials", key: (each) => each.credentials.map((one) => one.mechanism).join(" "), cell: (each) => each.credentials.map((one) => h("div", {}, `${one.mechanism}, ${one.iterations} iterations`)) },
  ], users, empty("There are no users with passwords. ", h("code", {}, "kafscale user create NAME"), " creates one.")));
  content.push(h("h2", {}, "ACLs"));
  try {
    const { acls } = await ask("/api/acls");
    content.push(table("ACLs", [
      { head: "Principal", key: (each) => each.principal, cell: (each) => each.principal },
      { head: "Permission", key: (each) => each.permission, cell: (each) => badge(each.permission.toLowerCase(), each.permission === "DENY" ? "bad" : "good") },
      { head: "Operation", key: (each) => each.operation, cell: (each) => each.operation },
      { head: "Resource", key: (each) => `${each.resource_type} ${each.name}`, cell: (each) => `${each.resource_type} ${each.pattern_type === "PREFIXED" ? `${each.name}*` : each.name}` },
      { head: "Host", key: (each) => each.host, cell: (each) => each.host },
    ], acls, empty("There are no ACLs, so only super users may do anything. ", h("code", {}, "kafscale acl create"), " creates some.")));
  } catch (error) {
    if (error.status !== 409) throw error;
    content.push(empty("ACLs are not enforced: whoever reaches a port may do everything. The setting is ", h("code", {}, "KAFSCALE_ACLS"), "."));
  }
  return { title: "Access", content };
}
