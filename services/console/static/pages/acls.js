import { ask, badge, dialog, empty, h, table } from "/static/lib.js";
import { tabs } from "/static/pages/users.js";

const ALL = "ALL", CLUSTER = "kafka-cluster", MOST_LISTED = 20;
const OPERATIONS = {
  TOPIC: ["READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  GROUP: ["READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  CLUSTER: ["CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"],
  TRANSACTIONAL_ID: ["WRITE", "DESCRIBE", "TWO_PHASE_COMMIT"],
};
const NAMES = { TOPIC: "topic", GROUP: "group", CLUSTER: "cluster", TRANSACTIONAL_ID: "transactional id", DELEGATION_TOKEN: "delegation token", USER: "user" };
// What an allowed operation includes, as in Kafka. A denied one includes nothing.
const INCLUDED = { READ: "DESCRIBE", WRITE: "DESCRIBE", DELETE: "DESCRIBE", ALTER: "DESCRIBE", ALTER_CONFIGS: "DESCRIBE_CONFIGS" };

function operations(acl) {
  if (acl.operation === ALL) return OPERATIONS[acl.resource_type] ?? [ALL];
  const included = acl.permission === "ALLOW" ? INCLUDED[acl.operation] : undefined;
  return included && OPERATIONS[acl.resource_type]?.includes(included) ? [acl.operation, included] : [acl.operation];
}

const whom = (acl) => (acl.principal === "User:*" ? "everybody" : acl.principal);
const where = (acl) => (acl.host === "*" ? "from every address" : `from ${acl.host}`);

function resource(acl) {
  if (acl.resource_type === "CLUSTER") return "the cluster";
  const name = NAMES[acl.resource_type] ?? acl.resource_type;
  if (acl.pattern_type === "PREFIXED") return `every ${name} whose name begins with ${acl.name}`;
  return acl.name === "*" ? `every ${name}` : `the ${name} ${acl.name}`;
}

const meaning = (acl) => `${whom(acl)} ${acl.permission === "ALLOW" ? "may" : "may not"} ${operations(acl).join(", ")} on ${resource(acl)} ${where(acl)}`;

// The names that an ACL is for: those that begin with a prefix, or one.
function names(acl) {
  if (acl.pattern_type === "PREFIXED") return { prefix: true, name: acl.name };
  return acl.name === "*" ? { prefix: true, name: "" } : { prefix: false, name: acl.name };
}

// Whether one ACL is for all resources that another one is for.
function covers(acl, other) {
  if (acl.resource_type !== other.resource_type) return false;
  const all = names(acl), some = names(other);
  return all.prefix ? some.name.startsWith(all.name) : !some.prefix && all.name === some.name;
}

// Whether the resources of two ACLs have one in common.
const overlap = (a, b) => covers(a, b) || covers(b, a);

// What a setting of the gateways, which is not known here, means for resources that only this ACL is for.
function ifNoAclFound(acl, all) {
  const others = all.filter((each) => each !== acl && overlap(acl, each));
  if (others.some((each) => covers(each, acl))) return [];
  const only = others.length ? `Other ACLs are not for ${resource(acl)}, only for some of them` : "No other ACL is for this resource";
  return [h("p", {}, `${only}. If the gateways have `, h("code", {}, "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND"), ", everybody may use what no ACL is for. So without this ACL everybody may, and with it only those whom an ACL allows it.")];
}

// The other ACLs about something that this one is about too.
function related(acl, all) {
  const own = operations(acl), any = (one, other, star) => one === star || other === star || one === other;
  return all.filter((each) => each !== acl && overlap(acl, each) && any(each.principal, acl.principal, "User:*") && any(each.host, acl.host, "*") && operations(each).some((operation) => own.includes(operation)));
}

function listed(text, found) {
  return found.length ? [h("p", {}, text), h("ul", {}, found.slice(0, MOST_LISTED).map((each) => h("li", {}, meaning(each))), found.length > MOST_LISTED ? h("li", {}, `and ${found.length - MOST_LISTED} more`) : "")] : [];
}

function consequences(acl, all, title) {
  const found = related(acl, all), allows = found.filter((each) => each.permission === "ALLOW"), denies = found.filter((each) => each.permission !== "ALLOW");
  return [h("h2", {}, title), h("p", {}, `${meaning(acl)}.`), ...listed("These ACLs deny some of it. They have precedence:", denies), ...listed("These ACLs allow some of it:", allows), ...ifNoAclFound(acl, all)];
}

export async function acls(_, { mayChange, change, again, say }) {
  let found;
  try {
    found = (await ask("/api/acls")).acls;
  } catch (error) {
    if (error.status !== 409) throw error;
    return { title: "ACLs", content: [tabs("/access/acls"), empty("ACLs are not enforced: whoever reaches a port may do everything. The setting is ", h("code", {}, "KAFSCALE_ACLS"), ".")] };
  }
  const preview = h("div", { role: "region", "aria-label": "Preview", tabindex: "-1" });
  function show(title, acl, button, act) {
    async function apply(event) {
      event.target.disabled = true;
      try {
        await act();
        again();
      } catch (error) {
        event.target.disabled = false;
        say(error.message);
      }
    }
    preview.replaceChildren(...consequences(acl, found, title), h("p", { class: "tools" }, h("button", { type: "button", class: "danger", onclick: apply }, button), h("button", { type: "button", onclick: () => preview.replaceChildren() }, "Cancel")));
    preview.focus();
  }
  const kinds = Object.keys(OPERATIONS).map((kind) => [kind, NAMES[kind]]);
  const all = [ALL, ...new Set(Object.values(OPERATIONS).flat())].map((each) => [each, each]);
  const create = () => dialog("Add an ACL", [
    { name: "principal", label: "Principal", value: "User:", required: true, help: "As User:name, or User:* for everybody" },
    { name: "permission", label: "Permission", options: [["ALLOW", "allow"], ["DENY", "deny"]] },
    { name: "operation", label: "Operation", options: all },
    { name: "resource_type", label: "Resource", options: kinds },
    { name: "name", label: "Name of the resource", help: "* for all. Not needed for the cluster." },
    { name: "pattern_type", label: "The name is", options: [["LITERAL", "the whole name"], ["PREFIXED", "the beginning of names"]] },
    { name: "host", label: "From address", value: "*", required: true, help: "* for all" },
  ], "Preview", (values) => {
    const acl = values.resource_type === "CLUSTER" ? { ...values, name: CLUSTER, pattern_type: "LITERAL" } : values;
    if (!acl.name) throw new Error("The name of the resource is missing.");
    if (acl.operation !== ALL && !OPERATIONS[acl.resource_type].includes(acl.operation)) throw new Error(`${acl.operation} does not exist for a ${NAMES[acl.resource_type]}. There are ${OPERATIONS[acl.resource_type].join(", ")}.`);
    show("This ACL would be added", acl, "Add this ACL", () => change("/api/acls", "POST", { acls: [acl] }));
  });
  const remove = (acl) => show("This ACL would be deleted", acl, "Delete this ACL", () => change("/api/acls", "DELETE", { filter: acl }));
  const columns = [
    { head: "Principal", key: (each) => each.principal, cell: (each) => each.principal },
    { head: "Permission", key: (each) => each.permission, cell: (each) => badge(each.permission.toLowerCase(), each.permission === "DENY" ? "bad" : "good") },
    { head: "Operation", key: (each) => each.operation, cell: (each) => each.operation },
    { head: "Resource", key: (each) => `${each.resource_type} ${each.name}`, cell: (each) => `${each.resource_type} ${each.pattern_type === "PREFIXED" ? `${each.name}*` : each.name}` },
    { head: "Host", key: (each) => each.host, cell: (each) => each.host },
    ...(mayChange ? [{ head: "Action", cell: (each) => h("button", { type: "button", class: "danger", "aria-label": `Delete: ${meaning(each)}`, onclick: () => remove(each) }, "Delete") }] : []),
  ];
  return {
    title: "ACLs",
    content: [tabs("/access/acls"), mayChange ? h("p", { class: "tools" }, h("button", { type: "button", onclick: create }, "Add an ACL")) : "", preview, table("ACLs", columns, found, empty("There are no ACLs, so only super users may do anything, unless ", h("code", {}, "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND"), " is set."))],
  };
}
