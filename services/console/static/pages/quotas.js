import { ask, count, dialog, empty, h, table } from "/static/lib.js";
import { tabs } from "/static/pages/users.js";

const KEYS = {
  producer_byte_rate: "bytes/s produced", consumer_byte_rate: "bytes/s fetched", request_percentage: "% of an event loop",
  controller_mutation_rate: "partitions/s created or deleted", connection_creation_rate: "connections/s of an address",
};

const shown = (entity) => entity.map((part) => `${part.type} ${part.name === undefined ? "(default)" : part.name}`).join(", ");

// A part of an entity from a text field: empty, a name, or * for the default.
const part = (type, text) => (text === "" ? [] : [text === "*" ? { type } : { type, name: text }]);

export async function quotas(_, { mayChange, change, again }) {
  const { quotas: found } = await ask("/api/quotas");
  const rows = found.flatMap((each) => Object.entries(each.limits).map(([key, value]) => ({ entity: each.entity, key, value })));
  const set = (entity, key, value) => change("/api/quotas", "POST", { entity, set: { [key]: Number(value) } });
  const create = () => dialog("Set a quota", [
    { name: "user", label: "User", help: "* for the default of all users" },
    { name: "client", label: "Client id", help: "* for the default of all client ids" },
    { name: "ip", label: "Address", help: "* for the default of all addresses. Only for connections, and without user and client id." },
    { name: "key", label: "Quota", options: Object.entries(KEYS).map(([key, text]) => [key, `${key}: ${text}`]) },
    { name: "value", label: "Value", type: "number", step: "any", required: true },
  ], "Set", async ({ user, client, ip, key, value }) => {
    const entity = [...part("user", user), ...part("client-id", client), ...part("ip", ip)];
    if (!entity.length) throw new Error("There is no user, client id or address.");
    await set(entity, key, value);
    again();
  });
  const edit = (each) => dialog(`${each.key} of ${shown(each.entity)}`, [{ name: "value", label: "Value", type: "number", step: "any", value: String(each.value), required: true, help: KEYS[each.key] }], "Set", async ({ value }) => {
    await set(each.entity, each.key, value);
    again();
  });
  const remove = (each) => dialog(`Remove ${each.key} of ${shown(each.entity)}`, [], "Remove", async () => {
    await change("/api/quotas", "POST", { entity: each.entity, remove: [each.key] });
    again();
  }, { danger: true });
  const columns = [
    { head: "Of", key: (each) => shown(each.entity), cell: (each) => shown(each.entity) },
    { head: "Quota", key: (each) => each.key, cell: (each) => [h("code", {}, each.key), h("small", {}, ` ${KEYS[each.key] ?? ""}`)] },
    { head: "Value", key: (each) => String(each.value), cell: (each) => (Number.isInteger(each.value) ? count(each.value) : String(each.value)) },
    ...(mayChange ? [{ head: "Action", cell: (each) => h("div", { class: "tools" }, h("button", { type: "button", "aria-label": `Change ${each.key} of ${shown(each.entity)}`, onclick: () => edit(each) }, "Change"), h("button", { type: "button", class: "danger", "aria-label": `Remove ${each.key} of ${shown(each.entity)}`, onclick: () => remove(each) }, "Remove")) }] : []),
  ];
  return {
    title: "Quotas",
    content: [tabs("/access/quotas"), mayChange ? h("p", { class: "tools" }, h("button", { type: "button", onclick: create }, "Set a quota")) : "", h("p", {}, "Each gateway enforces an equal share of a quota. The most specific quota applies: user and client id, user, client id, then defaults."), table("quotas", columns, rows, empty("There are no quotas: clients are not limited."))],
  };
}
