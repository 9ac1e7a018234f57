// What all pages share. Text of the cluster becomes text nodes only, never HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== ""));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity));
  return element;
}

export class Failed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, { method = "GET", body, csrf = "" } = {}) {
  let answer;
  try {
    const headers = csrf ? { "x-csrf-token": csrf } : {};
    answer = await fetch(path, { method, body: body && JSON.stringify(body), headers });
  } catch {
    throw new Failed(0, "The console does not answer.");
  }
  const content = await answer.json().catch(() => ({}));
  if (answer.status === 401) dispatchEvent(new Event("signed-out"));
  if (!answer.ok) throw new Failed(answer.status, content.error || `The console answers ${answer.status}.`);
  return content;
}

// Messages of the console as they come. Reconnects, and says whether it is connected, and if not, why. path() is the
// address each time.
export function live(path, take, connected) {
  let socket, timer, closed = false, pause = 500;
  function open() {
    const url = new URL(path(), location.href);
    url.protocol = url.protocol.replace("http", "ws");
    socket = new WebSocket(url);
    socket.onopen = () => { pause = 500; connected(true); };
    socket.onmessage = (event) => take(JSON.parse(event.data));
    socket.onclose = async (event) => {
      if (closed) return;
      connected(false, event.reason || await refusal(path()));
      if (closed) return;
      timer = setTimeout(open, pause);
      pause = Math.min(2 * pause, 10_000);
    };
  }
  open();
  return () => { closed = true; clearTimeout(timer); socket.close(); };
}

// Why a WebSocket is refused. A browser does not tell the page, so the same address is asked by another way.
async function refusal(path) {
  try {
    await ask(path);
    return "The console does not accept this page now. It reconnects automatically.";
  } catch (error) {
    return error.status === 0 ? "The console does not answer. This page reconnects automatically." : error.message;
  }
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// 64-bit numbers arrive as strings.
export const count = (number) => (BigInt(number) < 0n ? "unknown" : whole.format(BigInt(number)));

export function bytes(number) {
  let size = Number(number), unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${size.toFixed(unit && size < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

// In the zone of the browser, and in UTC as its title.
export function time(milliseconds) {
  const at = new Date(Number(milliseconds));
  if (!Number(milliseconds)) return "";
  return h("time", { datetime: at.toISOString(), title: `${at.toISOString().replace("T", " ").slice(0, 19)} UTC` }, local.format(at));
}

export const link = (href, text) => h("a", { href }, text);
export const path = (...names) => names.map((name) => `/${encodeURIComponent(name)}`).join("");

export function facts(...pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export const empty = (...children) => h("p", { class: "empty" }, ...children);
export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

const MOST_ROWS = 200;
export const collator = new Intl.Collator("en", { numeric: true });

// Calls update() now and then, but not while the page is hidden or the last call has not ended. Returns how to stop.
export function every(milliseconds, update) {
  let busy = false;
  const timer = setInterval(async () => {
    if (busy || document.hidden) return;
    busy = true;
    await update();
    busy = false;
  }, milliseconds);
  return () => clearInterval(timer);
}

const KIND = { READY: "good", NOT_READY: "bad", UNREACHABLE: "bad", UNKNOWN: "" };
export const health = (member) => badge(member.health.replace("_", " ").toLowerCase(), KIND[member.health]);

// A table with a search field, sorted by a click on a column's head. Its search and order are in the address, with its
// caption, because a page may have several tables.
// columns: {head, cell(row), key(row) to sort and search by, numeric}
export function table(caption, columns, rows, nothing) {
  const query = new URLSearchParams(location.search), own = (name) => `${caption.replaceAll(" ", "-")}.${name}`;
  let search = query.get(own("q")) || "", by = Number(query.get(own("by")) || 0), down = query.has(own("down"));
  let most = MOST_ROWS;
  const body = h("tbody"), shown = h("p", { class: "shown", role: "status" });
  const more = h("button", { type: "button", onclick: () => { most += MOST_ROWS; draw(); } }, "Show more");
  const key = (column, row) => (column.key ? column.key(row) : "");
  const text = (row) => columns.map((column) => String(key(column, row))).join("\n").toLowerCase();
  // Keys are made once for each row, because there may be thousands.
  function sorted(found, column) {
    const keyed = found.map((row) => [column.numeric ? BigInt(key(column, row)) : String(key(column, row)), row]);
    const compare = column.numeric ? (x, y) => (x < y ? -1 : x > y ? 1 : 0) : (x, y) => collator.compare(x, y);
    return keyed.sort(([x], [y]) => (down ? -compare(x, y) : compare(x, y))).map(([, row]) => row);
  }
  const heads = columns.map((column, index) => h("th", { scope: "col", class: column.numeric ? "number" : "" }, column.key ? h("button", { type: "button", onclick: () => { down = by === index && !down; by = index; draw(); remember(); } }, column.head) : column.head));
  function remember() {
    const next = new URLSearchParams(location.search);
    search ? next.set(own("q"), search) : next.delete(own("q"));
    by ? next.set(own("by"), by) : next.delete(own("by"));
    down ? next.set(own("down"), "") : next.delete(own("down"));
    history.replaceState(null, "", `${location.pathname}${next.size ? `?${next}` : ""}`);
  }
  function draw() {
    const wanted = search.toLowerCase();
    const matching = wanted ? rows.filter((row) => text(row).includes(wanted)) : rows;
    const found = columns[by]?.key ? sorted(matching, columns[by]) : matching;
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== by || !columns[by].key ? "none" : down ? "descending" : "ascending"));
    body.replaceChildren(...found.slice(0, most).map((row) => h("tr", {}, columns.map((column, index) => h(index ? "td" : "th", { scope: index ? null : "row", class: column.numeric ? "number" : "" }, column.cell(row))))));
    shown.textContent = found.length > most ? `${count(most)} of ${count(found.length)} shown` : found.length === rows.length ? count(rows.length) : `${count(found.length)} of ${count(rows.length)} found`;
    more.hidden = found.length <= most;
  }
  const field = h("input", { type: "search", value: search, placeholder: "Search", "aria-label": `Search in ${caption}`, oninput: (event) => { search = event.target.value; most = MOST_ROWS; draw(); remember(); } });
  draw();
  const element = h("section", { class: "list" }, h("div", { class: "tools" }, field, shown), rows.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads)), body)) : nothing, more);
  element.update = (next) => { rows = next; draw(); };
  return element;
}

// Asks for values in a dialog, and passes them to act(values). It stays open until that succeeds.
// fields: {name, label, value, type, step, options, help, required}
export function dialog(title, fields, button, act, { danger = false } = {}) {
  const wrong = h("p", { role: "alert", class: "wrong" });
  const inputs = fields.map((each, index) => {
    const id = `field-${index}`, common = { id, name: each.name, required: each.required ?? false };
    const input = each.options ? h("select", common, each.options.map(([value, text]) => h("option", { value }, text)))
      : each.type === "textarea" ? h("textarea", { ...common, rows: 4 }, each.value ?? "")
      : h("input", { ...common, type: each.type ?? "text", value: each.value ?? "", autocomplete: each.type === "password" ? "new-password" : "off", step: each.type === "datetime-local" ? "0.001" : each.step });
    return [h("label", { for: id }, each.label), input, each.help ? h("small", {}, each.help) : ""];
  });
  const send = h("button", { class: danger ? "danger" : "" }, button);
  const element = h("dialog", { "aria-label": title }, h("form", { onsubmit: submit }, h("h2", {}, title), inputs, wrong, h("p", { class: "tools" }, send, h("button", { type: "button", onclick: () => element.close() }, "Cancel"))));
  async function submit(event) {
    event.preventDefault();
    wrong.textContent = "";
    send.disabled = true;
    try {
      await act(Object.fromEntries(new FormData(event.target)));
      element.close();
    } catch (error) {
      wrong.textContent = error.message;
    } finally {
      send.disabled = false;
    }
  }
  element.addEventListener("close", () => element.remove());
  document.body.append(element);
  element.showModal();
  return element;
}

// The lines "name=value" of a text field.
export function pairs(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`"${line}" is not name=value.`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
