import { ask, dialog, empty, h, path, table } from "/static/lib.js";

const TABS = [["/access", "Users"], ["/access/acls", "ACLs"], ["/access/quotas", "Quotas"]];

// The links between the pages about access. `here` is the address of the page that shows them.
export const tabs = (here) => h("nav", { "aria-label": "Access", class: "tabs" }, h("ul", {}, TABS.map(([href, text]) => h("li", {}, h("a", { href, "aria-current": href === here ? "page" : null }, text)))));

export async function users(_, { mayChange, change, again }) {
  const { users: found } = await ask("/api/users");
  const password = { name: "password", label: "Password", type: "password", required: true, help: "The console sends only what SCRAM makes of it to the gateway, and does not keep it." };
  const repeated = { name: "repeated", label: "The same password again", type: "password", required: true };
  async function set(name, values) {
    if (values.password !== values.repeated) throw new Error("The passwords differ.");
    await change(`/api/users${path(name)}`, "POST", { password: values.password });
    again();
  }
  const create = () => dialog("Create a user", [{ name: "name", label: "Name", required: true }, password, repeated], "Create", async (values) => {
    if (found.some((each) => each.name === values.name)) throw new Error("This user exists already.");
    await set(values.name, values);
  });
  const renew = (each) => dialog(`New password of ${each.name}`, [password, repeated], "Set", (values) => set(each.name, values));
  const remove = (each) => dialog(`Delete ${each.name}`, [
    { name: "typed", label: "Type the name of the user to delete it with its passwords", required: true, help: "Open connections of the user stay open. ACLs and quotas of the user stay." },
  ], "Delete", async ({ typed }) => {
    if (typed !== each.name) throw new Error("This is not the name of the user.");
    await change(`/api/users${path(each.name)}`, "DELETE");
    again();
  }, { danger: true });
  const columns = [
    { head: "User", key: (each) => each.name, cell: (each) => each.name },
    { head: "Credentials", key: (each) => each.credentials.map((one) => one.mechanism).join(" "), cell: (each) => each.credentials.map((one) => h("div", {}, `${one.mechanism}, ${one.iterations} iterations`)) },
    ...(mayChange ? [{ head: "Action", cell: (each) => h("div", { class: "tools" }, h("button", { type: "button", "aria-label": `New password of ${each.name}`, onclick: () => renew(each) }, "New password"), h("button", { type: "button", class: "danger", "aria-label": `Delete ${each.name}`, onclick: () => remove(each) }, "Delete")) }] : []),
  ];
  return {
    title: "Users",
    content: [tabs("/access"), mayChange ? h("p", { class: "tools" }, h("button", { type: "button", onclick: create }, "Create a user")) : "", table("users", columns, found, empty("There are no users with passwords. ", h("code", {}, "kafscale user set NAME"), " creates one."))],
  };
}
