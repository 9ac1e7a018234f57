import { badge, collator, count, dialog, empty, h, health, live, path, svg, time } from "/static/lib.js";

const CELL = 12, ACROSS = 60, MOST_CELLS = 20_000, COLORS = 8, DRAWN_EVERY = 100;

// One cell for each partition that has an owner, in the colour of the owner. A cell whose owner changes is only recoloured.
function ownerMap() {
  const cells = new Map(), element = svg("svg", { class: "owners", role: "img" });
  const blank = svg("rect", { width: CELL - 2, height: CELL - 2, rx: 2 }, svg("title"));
  let painted = "";
  function paint(cell, each, colors) {
    cell.setAttribute("class", colors.has(each.owner_run) ? `color-${colors.get(each.owner_run)}` : "gone");
    cell.firstChild.textContent = `${each.topic}-${each.partition}: ${each.owner || each.owner_run}, epoch ${each.epoch}`;
  }
  function place(owners) {
    const shown = [...owners].sort(([, a], [, b]) => collator.compare(a.topic, b.topic) || a.partition - b.partition).slice(0, MOST_CELLS);
    const rows = Math.max(1, Math.ceil(shown.length / ACROSS));
    element.setAttribute("viewBox", `0 0 ${ACROSS * CELL} ${rows * CELL}`);
    element.setAttribute("aria-label", `Owners of ${shown.length} partitions`);
    cells.clear();
    shown.forEach(([key], index) => {
      const cell = blank.cloneNode(true);
      cell.setAttribute("x", (index % ACROSS) * CELL + 1);
      cell.setAttribute("y", Math.floor(index / ACROSS) * CELL + 1);
      cells.set(key, cell);
    });
    element.replaceChildren(...cells.values());
  }
  // changed: the keys of partitions whose owners have changed since the last call.
  function draw(owners, colors, changed) {
    const legend = [...colors].join(), moved = Math.min(owners.size, MOST_CELLS) !== cells.size || [...cells.keys()].some((key) => !owners.has(key));
    if (moved) place(owners);
    const due = moved || legend !== painted ? cells.keys() : changed;
    for (const key of due) if (cells.has(key)) paint(cells.get(key), owners.get(key), colors);
    painted = legend;
  }
  return { element, draw };
}

export async function instances(_, { say, mayChange, change }) {
  const members = new Map(), owners = new Map(), colors = new Map();
  const cards = h("div", { class: "cards" }), drawn = h("div"), events = h("ol", { class: "events", "aria-label": "Latest changes" });
  const owned = new Map(), changed = new Set(), map = ownerMap();
  let due = false, known = false;
  const drain = (each) => {
    const way = each.draining ? ["Cancel the drain", "DELETE"] : ["Drain", "POST"];
    dialog(`${way[0]}: ${each.service} ${each.address || each.run_id}`, [], way[0], () => change(`/api/instances${path(each.run_id)}/drain`, way[1]));
  };
  const moves = (each) => mayChange && (each.service === "storage" || each.service === "coordinator") && (each.draining || !each.leaving);
  function draw() {
    due = false;
    const sorted = [...members.values()].sort((a, b) => a.service.localeCompare(b.service) || a.address.localeCompare(b.address));
    for (const run of colors.keys()) if (!members.has(run)) colors.delete(run);
    for (const each of sorted) {
      if (each.service !== "storage" || colors.has(each.run_id)) continue;
      const used = new Set(colors.values()), free = [...Array(COLORS).keys()].find((color) => !used.has(color));
      colors.set(each.run_id, free ?? colors.size % COLORS);
    }
    owned.clear();
    for (const each of owners.values()) owned.set(each.owner_run, (owned.get(each.owner_run) ?? 0) + 1);
    cards.replaceChildren(...sorted.map((each) => h("section", { class: "card" }, h("h3", {}, each.service, " ", h("small", {}, each.address || "in this process")), h("p", {}, health(each), each.draining ? badge("draining") : each.leaving ? badge("stopping") : "", each.service === "storage" ? [" ", h("span", { class: `swatch color-${colors.get(each.run_id)}` }), ` ${count(owned.get(each.run_id) ?? 0)} partitions`] : ""), each.detail ? h("p", { class: "wrong" }, each.detail) : "", h("p", {}, h("small", {}, each.version, " since ", time(each.started_ms))), moves(each) ? h("button", { type: "button", onclick: () => drain(each) }, each.draining ? "Cancel the drain" : "Drain") : "")));
    map.draw(owners, colors, changed);
    changed.clear();
    const content = owners.size ? map.element : empty("No partition has an owner yet. A partition gets one when it is used for the first time.");
    // To put the same map there again would lay out all of its cells.
    if (content !== drawn.firstChild) drawn.replaceChildren(content);
  }
  const soon = () => { if (!due) { due = true; setTimeout(draw, DRAWN_EVERY); } };
  function note(text) {
    events.prepend(h("li", {}, time(Date.now()), " ", text));
    while (events.children.length > 50) events.lastChild.remove();
  }
  function take(message) {
    if (message.members) {
      members.clear();
      owners.clear();
      for (const each of message.members) members.set(each.run_id, each);
      known = !message.fault;
      if (message.too_slow) note("This page was too slow and has missed changes.");
    }
    // The first owners come with the members, the others in messages of their own.
    for (const each of message.owners ?? []) {
      owners.set(`${each.partition} ${each.topic}`, each);
      changed.add(`${each.partition} ${each.topic}`);
    }
    if (message.fault !== undefined) say(message.fault ? `No changes: ${message.fault}` : "");
    const { member, owner } = message.change ?? {};
    if (member) {
      member.kind === "LEFT" ? members.delete(member.member.run_id) : members.set(member.member.run_id, member.member);
      if (known && member.kind !== "PRESENT") note(`${member.member.service} ${member.member.address || "in this process"}: ${member.kind === "HEALTH" ? member.member.health.replace("_", " ").toLowerCase() : member.kind.toLowerCase()}`);
    }
    if (owner) {
      const key = `${owner.partition} ${owner.topic}`;
      changed.add(key);
      owner.owner_run ? owners.set(key, owner) : owners.delete(key);
      if (known) note(`${owner.topic}-${owner.partition}: ${owner.owner_run ? `epoch ${owner.epoch} at ${owner.owner || "this process"}` : "no owner"}`);
    }
    soon();
  }
  const leave = live(() => "/live/cluster", take, (connected, reason) => say(connected ? "" : reason));
  return { title: "Instances", content: [h("h2", {}, "Processes"), cards, h("h2", {}, "Owners of partitions"), drawn, h("h2", {}, "Changes"), events], leave };
}
