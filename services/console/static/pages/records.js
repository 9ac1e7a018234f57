// The records of a topic: read and searched by what the address says, followed live, and written.
import { ask, badge, bytes, count, dialog, empty, h, link, live, path, time } from "/static/lib.js";

const MOST_ROWS = 500, RATES = [1, 5, 20, 50, 100, 200, 500, 1000];
const FORMS = [["auto", "by schema, JSON or text"], ["text", "as text"], ["json", "as JSON"], ["hex", "as hexadecimal"]];
const STARTS = [["newest", "the newest"], ["beginning", "the beginning"], ["offset", "an offset"], ["time", "a time"]];

// A key, value or header as the console decoded it. What it contains becomes text only.
export function part(shown) {
  if (shown.size < 0) return badge("null");
  const notes = [];
  if (shown.fault) notes.push(h("div", { class: "wrong" }, `Schema ${shown.schema}: ${shown.fault}`));
  if (!["text", "json"].includes(shown.form)) notes.push(badge(shown.schema !== undefined && !shown.fault ? `${shown.form}, schema ${shown.schema}` : shown.form), " ");
  return [...notes, h("code", { class: "data" }, shown.text), shown.cut ? h("small", {}, ` cut; ${bytes(shown.size)} in all`) : ""];
}

const when = (each) => (each.timestamp === "-1" ? "none" : [time(each.timestamp), each.appended ? h("div", {}, h("small", {}, "when appended")) : ""]);

function entry(name, each) {
  const headers = each.headers.map((one) => h("div", {}, h("small", {}, one.name, ": "), part(one)));
  const size = Math.max(0, each.key.size) + Math.max(0, each.value.size);
  return h("tr", {}, h("td", {}, when(each)), h("td", { class: "number" }, each.partition), h("th", { scope: "row", class: "number" }, link(`/topics${path(name)}/records${path(each.partition, each.offset)}`, count(each.offset))), h("td", {}, part(each.key)), h("td", {}, part(each.value)), h("td", {}, headers, each.more_headers ? h("small", {}, `and ${each.more_headers} more`) : ""), h("td", { class: "number" }, bytes(size)));
}

const HEADS = [["Time"], ["Partition", "number"], ["Offset", "number"], ["Key"], ["Value"], ["Headers"], ["Size", "number"]];

function list(body) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "records" }, h("table", { class: "records" }, h("caption", {}, "records"), h("thead", {}, h("tr", {}, HEADS.map(([head, kind]) => h("th", { scope: "col", class: kind }, head)))), body));
}

function labelled(label, input) {
  input.id = `field-${input.name}`;
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input);
}

const choice = (name, options, value) => h("select", { name }, options.map(([each, text]) => h("option", { value: each, selected: String(each) === String(value) }, text)));

// The value of a field for local time, with milliseconds.
function localTime(milliseconds) {
  const at = new Date(Number(milliseconds) || Date.now());
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, -1);
}

// A kcat command to copy. The note says what it does not do as the page does.
export function command(text, note = "") {
  const field = h("textarea", { readonly: true, rows: 3, "aria-label": "kcat command" }, text);
  const copy = h("button", { type: "button", onclick: async () => {
    field.select();
    await navigator.clipboard?.writeText(text).catch(() => {});
    copy.textContent = "Copied";
  } }, "Copy");
  return h("div", { class: "command" }, field, h("p", { class: "tools" }, copy, h("small", {}, `${note}Add your login with -X if the listener needs one.`)));
}

export async function records([name], { say, mayChange, change, go }) {
  const at = `/topics${path(name)}/records`, wanted = new URLSearchParams(location.search);
  const found = await ask(`/api${at}?${wanted}`);
  const follows = wanted.get("follow") === "1";
  const asked = (other) => { const next = new URLSearchParams(wanted); for (const [key, value] of Object.entries(other)) value === "" ? next.delete(key) : next.set(key, value); return next; };
  const body = h("tbody"), state = h("p", { role: "status" }), left = h("ol", { class: "events", "aria-label": "What was left out" });
  const table = list(body), nothing = h("div");

  const start = choice("start", STARTS, wanted.get("start") ?? "newest");
  const number = h("input", { name: "number", inputmode: "numeric", pattern: "[0-9]*", autocomplete: "off", size: 10, value: wanted.get("newest") ?? wanted.get("offset") ?? "" });
  const moment = h("input", { name: "time", type: "datetime-local", step: "0.001", value: localTime(wanted.get("time")) });
  const byNumber = labelled("Number", number), byTime = labelled("Time", moment);
  const fit = () => {
    byNumber.hidden = !["newest", "offset"].includes(start.value);
    byTime.hidden = start.value !== "time";
    byNumber.firstChild.textContent = start.value === "offset" ? "Offset" : "How many of each partition";
  };
  start.addEventListener("change", fit);
  fit();
  const field = (key, placeholder) => h("input", { name: key, value: wanted.get(key) ?? "", placeholder, autocomplete: "off" });
  function submit(event) {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target)), next = new URLSearchParams();
    for (const key of ["partition", "key", "value", "path", "limit"]) if (given[key]) next.set(key, given[key]);
    for (const key of ["key_form", "value_form"]) if (given[key] !== "auto") next.set(key, given[key]);
    next.set("start", given.start);
    if (given.start === "time") next.set("time", String(new Date(given.time).getTime()));
    if (["newest", "offset"].includes(given.start) && given.number) next.set(given.start, given.number);
    go(`${at}?${next}`);
  }
  const form = h("form", { class: "query", onsubmit: submit },
    labelled("Partition", h("input", { name: "partition", inputmode: "numeric", pattern: "[0-9]*", size: 6, placeholder: "all", value: wanted.get("partition") ?? "", autocomplete: "off" })),
    labelled("From", start), byNumber, byTime,
    labelled("Key contains", field("key", "")), labelled("Value contains", field("value", "")),
    labelled("JSON path", field("path", "$.order.id == 17")),
    labelled("Keys", choice("key_form", FORMS, wanted.get("key_form") ?? "auto")), labelled("Values", choice("value_form", FORMS, wanted.get("value_form") ?? "auto")),
    labelled("At most", h("input", { name: "limit", type: "number", min: 1, max: found.most_rows, value: wanted.get("limit") ?? Math.min(100, found.most_rows) })),
    h("button", {}, "Read"));

  const faults = h("div");
  const fault = (texts) => { for (const text of texts) { faults.prepend(h("p", { class: "wrong" }, text)); if (faults.children.length > 20) faults.lastChild.remove(); } };
  function draw(answer) {
    body.append(...answer.records.map((each) => entry(name, each)));
    table.hidden = !body.children.length;
    nothing.replaceChildren(body.children.length ? "" : empty(answer.next ? "No record was found so far. Continue, or choose another start." : answer.scanned ? "No record meets the conditions." : "There are no records here. Choose another start, or follow new ones."));
    state.textContent = `${count(body.children.length)} shown; ${count(answer.scanned)} records and ${bytes(answer.bytes)} were read.${answer.next ? ` ${count(answer.left)} offsets follow.` : ""}${answer.in_time ? "" : " The time for a read was over."}`;
    fault(answer.faults);
  }

  // Further records by a later request, or by a live tail.
  let next = found.next, leave = () => {}, pending = [], due = false;
  const more = h("button", { type: "button", onclick: async () => {
    more.disabled = true;
    try {
      const answer = await ask(`/api${at}?${asked({ at: next, start: "", offset: "", time: "", newest: "" })}`);
      next = answer.next;
      draw(answer);
      more.hidden = !next;
    } catch (error) {
      say(error.message);
    } finally {
      more.disabled = false;
    }
  } }, "Continue");
  more.hidden = !next;

  const rate = h("select", { "aria-label": "Records in a second", onchange: () => { if (following) follow(); } }, RATES.filter((each) => each <= found.most_rate).concat(RATES.includes(found.most_rate) ? [] : [found.most_rate]).map((each) => h("option", { value: each, selected: String(each) === (wanted.get("rate") ?? "20") }, `${each} records/s`)));
  let following = false, begun = false, total = 0;
  const known = {};
  const toggle = h("button", { type: "button", onclick: () => (following ? pause() : follow()) }, "Follow new records");
  const jump = h("button", { type: "button", hidden: true, onclick: () => { for (const key of Object.keys(known)) delete known[key]; from.value = "end"; follow(); } }, "Go to the end");
  const from = h("select", { "aria-label": "Where following begins" }, [["end", "from the end"], ["start", "from the start above"]].map(([value, text]) => h("option", { value, selected: value === wanted.get("from") }, text)));
  function rows() {
    due = false;
    const added = pending.splice(0).slice(-MOST_ROWS).reverse().map((each) => entry(name, each));
    body.prepend(...added);
    while (body.children.length > MOST_ROWS) body.lastChild.remove();
    table.hidden = !body.children.length;
    nothing.replaceChildren(body.children.length ? "" : empty("Waiting for records."));
    state.textContent = `${following ? "Following" : "Paused"}: ${count(total)} records came, and the latest ${count(body.children.length)} are shown, newest first.`;
  }
  const soon = () => { if (!due) { due = true; requestAnimationFrame(rows); } };
  function take(message) {
    if (message.fault !== undefined) say(message.fault ? `No records: ${message.fault} The console tries again.` : "");
    Object.assign(known, message.positions ?? {});
    for (const each of message.left_out ?? []) {
      const number = BigInt(each.to) - BigInt(each.from);
      left.prepend(h("li", {}, time(Date.now()), ` Left out ${count(number)} offsets of partition ${each.partition}, from ${count(each.from)} to ${count(BigInt(each.to) - 1n)}.`));
      while (left.children.length > 50) left.lastChild.remove();
    }
    fault(message.faults ?? []);
    total += message.records?.length ?? 0;
    pending.push(...(message.records ?? []));
    if (pending.length > MOST_ROWS) pending.splice(0, pending.length - MOST_ROWS);
    soon();
  }
  // Where the tail was, so that it goes on there after a pause or a lost connection.
  function address() {
    const positions = Object.entries(known).map((each) => each.join(":")).join(",");
    const fresh = positions || from.value === "end" ? { start: "end", newest: "", offset: "", time: "" } : {};
    return `/live${at}?${asked({ ...fresh, at: positions, limit: rate.value, follow: "", rate: "", from: "" })}`;
  }
  function follow() {
    leave();
    if (!begun) { body.replaceChildren(); more.hidden = true; }
    begun = following = true;
    toggle.textContent = "Pause";
    jump.hidden = false;
    leave = live(address, take, (connected, reason) => { if (!connected) say(`${reason} This page goes on where it was.`); });
    const next = asked({ follow: "1", rate: rate.value, from: from.value });
    history.replaceState(null, "", `${location.pathname}?${next}`);
    rows();
  }
  function pause() {
    following = false;
    leave();
    leave = () => {};
    toggle.textContent = "Go on";
    rows();
  }

  const written = h("p", { role: "status", class: "fine" }), kcat = h("div", { hidden: true });
  const showKcat = h("button", { type: "button", "aria-expanded": "false", onclick: () => {
    kcat.hidden = !kcat.hidden;
    showKcat.setAttribute("aria-expanded", String(!kcat.hidden));
    kcat.replaceChildren(command(following ? found.kcat_tail : found.kcat, "The command shows all records from this start on: kcat has no conditions. "));
  } }, "kcat command");
  draw(found);
  if (follows) follow();
  return {
    title: `Records of ${name}`,
    content: [
      h("p", {}, link(`/topics${path(name)}`, `Topic ${name}`)),
      form,
      h("p", { class: "tools" }, toggle, from, rate, jump, showKcat, mayChange ? h("button", { type: "button", onclick: () => produce(name, wanted.get("partition") ?? "", change, written) }, "Produce a record") : ""),
      written, kcat, state, faults, left, nothing, table, more,
    ],
    leave: () => { following = false; leave(); },
  };
}

function produce(name, partition, change, written) {
  const at = `/api/topics${path(name)}/records`;
  const forms = [["text", "text"], ["json", "JSON"], ["hex", "hexadecimal"], ["null", "null (for a value: a tombstone)"]];
  const done = h("p", { role: "status" }), made = h("div");
  function body(given) {
    const headers = given.headers.split("\n").filter(Boolean).map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`"${line}" is not name=value.`);
      return { name: line.slice(0, at), value: line.slice(at + 1) };
    });
    if (given.partition && !/^[0-9]{1,10}$/.test(given.partition)) throw new Error("The partition is not a number.");
    return { partition: given.partition ? Number(given.partition) : null, key: { form: given.key_form, text: given.key }, value: { form: given.value_form, text: given.value }, headers };
  }
  const shown = dialog(`Produce to ${name}`, [
    { name: "partition", label: "Partition", value: partition, help: "Empty: by the key, as librdkafka does, or any without a key" },
    { name: "key_form", label: "The key is", options: [["null", "null"], ...forms.slice(0, 3)] },
    { name: "key", label: "Key", type: "textarea" },
    { name: "value_form", label: "The value is", options: forms },
    { name: "value", label: "Value", type: "textarea" },
    { name: "headers", label: "Headers", type: "textarea", help: "One line for each, as name=value" },
  ], "Produce", async (given) => {
    const stored = await change(at, "POST", body(given));
    written.replaceChildren("Stored in partition ", stored.partition, " at ", link(`/topics${path(name)}/records${path(stored.partition, stored.offset)}`, `offset ${count(stored.offset)}`), ".");
  });
  shown.querySelector(".tools").append(h("button", { type: "button", onclick: async () => {
    try {
      const { kcat } = await change(`${at}/kcat`, "POST", body(Object.fromEntries(new FormData(shown.querySelector("form")))));
      made.replaceChildren(command(kcat));
      done.textContent = "";
    } catch (error) {
      done.textContent = error.message;
    }
  } }, "kcat command"));
  shown.querySelector("form").append(done, made);
}
