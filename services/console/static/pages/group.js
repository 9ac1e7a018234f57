import { ask, badge, count, dialog, empty, every, facts, h, link, path, table } from "/static/lib.js";
import { plot } from "/static/plot.js";

const EVERY = 5000, HISTORY_EVERY = 10_000;

export async function group([name], { say, mayChange, change, again, go }) {
  const at = `/api/groups${path(name)}`;
  const state = h("span"), lag = h("span"), members = h("span"), drawn = h("div");
  const first = await ask(at);
  const list = table("partitions", [
    { head: "Topic", key: (each) => each.topic, cell: (each) => link(`/topics${path(each.topic)}`, each.topic) },
    { head: "Partition", numeric: true, key: (each) => each.partition, cell: (each) => each.partition },
    { head: "Committed", numeric: true, key: (each) => each.committed, cell: (each) => (BigInt(each.committed) < 0n ? "none" : count(each.committed)) },
    { head: "High watermark", numeric: true, key: (each) => each.high_watermark, cell: (each) => count(each.high_watermark) },
    { head: "Lag", numeric: true, key: (each) => each.lag, cell: (each) => count(each.lag) },
    { head: "Member", key: (each) => each.member_id, cell: (each) => each.member_id },
  ], first.offsets, empty("The group has neither committed offsets nor members."));
  const people = table("members", [
    { head: "Member", key: (each) => each.member_id, cell: (each) => h("code", {}, each.member_id) },
    { head: "Client", key: (each) => each.client_id, cell: (each) => each.client_id },
    { head: "Host", key: (each) => each.client_host, cell: (each) => each.client_host },
    { head: "Static member", key: (each) => each.instance_id, cell: (each) => each.instance_id },
    { head: "Assigned", key: (each) => each.assigned.map((one) => one.topic).join(" "), cell: (each) => each.assigned.map((one) => h("div", {}, `${one.topic}: ${one.partitions.join(", ")}`)) },
  ], first.members, empty("The group has no members."));
  function draw(found) {
    const known = found.offsets.filter((each) => BigInt(each.lag) >= 0n);
    const total = known.reduce((sum, each) => sum + BigInt(each.lag), 0n);
    state.replaceChildren(badge(found.group.state, found.group.state === "Stable" ? "good" : ""));
    lag.textContent = count(total);
    members.textContent = count(found.members.length);
    list.update(found.offsets);
    people.update(found.members);
    say("");
  }
  const preview = h("div");
  const reset = () => dialog("Reset offsets", [
    { name: "to", label: "To", options: [["earliest", "the beginning"], ["latest", "the end"], ["offset", "an offset"], ["timestamp_ms", "a time"], ["shift_by", "the committed offset plus a number"]] },
    { name: "number", label: "Offset or number", type: "number", value: "0" },
    { name: "time", label: "Time", type: "datetime-local" },
  ], "Preview", async ({ to, number, time }) => {
    const value = to === "timestamp_ms" ? new Date(time).getTime() : to === "earliest" || to === "latest" ? true : number || "0";
    if (Number.isNaN(value)) throw new Error("There is no time.");
    const wanted = { [to]: value };
    const { offsets } = await change(`${at}/offsets`, "POST", { ...wanted, validate_only: true });
    preview.replaceChildren(h("h2", {}, "Preview of the reset"), table("new offsets", [
      { head: "Topic", key: (each) => each.topic, cell: (each) => each.topic },
      { head: "Partition", numeric: true, key: (each) => each.partition, cell: (each) => each.partition },
      { head: "Now", numeric: true, key: (each) => each.before, cell: (each) => (BigInt(each.before) < 0n ? "none" : count(each.before)) },
      { head: "Then", numeric: true, key: (each) => each.after, cell: (each) => count(each.after) },
    ], offsets, empty("The group has no committed offsets to reset.")), h("p", { class: "tools" }, h("button", { type: "button", class: "danger", onclick: (event) => apply(event.target, wanted) }, "Reset these offsets"), h("button", { type: "button", onclick: () => preview.replaceChildren() }, "Cancel")));
    preview.scrollIntoView();
  });
  async function apply(button, wanted) {
    button.disabled = true;
    try {
      await change(`${at}/offsets`, "POST", wanted);
      again();
    } catch (error) {
      button.disabled = false;
      say(error.message);
    }
  }
  const remove = () => dialog(`Delete ${name}`, [
    { name: "typed", label: "Type the name of the group to delete it with all its offsets", required: true },
  ], "Delete", async ({ typed }) => {
    if (typed !== name) throw new Error("This is not the name of the group.");
    await change(at, "DELETE");
    go("/groups");
  }, { danger: true });
  draw(first);
  const past = () => ask(`${at}/lag`).then(({ now_ms, every_ms, columns }) => {
    const unknown = columns.unknown.at(-1);
    drawn.replaceChildren(plot("Lag of all partitions", "records", columns.lag, { times: columns.time_ms, now: now_ms, every: every_ms }), h("p", {}, h("small", {}, unknown ? `The lag of ${count(unknown)} partitions is not known and not included. ` : "", "The console remembers the lag of the last hour of groups that somebody watched in that hour.")));
  }).catch((error) => drawn.replaceChildren(empty(error.message)));
  await past();
  const stops = [every(EVERY, () => ask(at).then(draw).catch((error) => say(error.message))), every(HISTORY_EVERY, past)];
  return {
    title: name || "(empty name)",
    content: [facts(["State", state], ["Members", members], ["Lag", lag], ["Protocol", first.protocol || "none"], ["Coordinator", first.group.coordinator || "in this process"]), mayChange ? h("p", { class: "tools" }, h("button", { type: "button", onclick: reset }, "Reset offsets"), h("button", { type: "button", class: "danger", onclick: remove }, "Delete the group")) : "", preview, h("h2", {}, "Lag"), drawn, h("h2", {}, "Partitions"), list, h("h2", {}, "Members"), people],
    leave: () => stops.forEach((stop) => stop()),
  };
}
