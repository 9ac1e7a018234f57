// One record of a topic, as a whole.
import { ask, badge, bytes, count, empty, facts, h, link, path, table, time } from "/static/lib.js";
import { command, part } from "/static/pages/records.js";

const FORMS = [["auto", "By schema, or as JSON or text"], ["text", "Text"], ["json", "JSON"], ["hex", "Hexadecimal"]];

export async function record([name, partition, offset]) {
  const topic = `/topics${path(name)}`, at = `${topic}/records${path(partition, offset)}`;
  const wanted = new URLSearchParams(location.search);
  const found = await ask(`/api${at}?${wanted}`);
  const block = (kind, title) => {
    const shown = found[kind], form = wanted.get(`${kind}_form`) ?? "auto";
    const others = FORMS.map(([each, text]) => {
      const next = new URLSearchParams(wanted);
      next.set(`${kind}_form`, each);
      return h("li", {}, h("a", { href: `${at}?${next}`, "aria-current": each === form ? "true" : null }, text));
    });
    return [
      h("h2", {}, title),
      h("p", { class: "tools" }, badge(shown.size < 0 ? "null" : bytes(shown.size)), shown.size < 0 ? "" : h("a", { href: `/api${at}/${kind}`, download: true }, `Download the ${kind}`)),
      ...(shown.size < 0 ? [] : [h("ul", { class: "forms", "aria-label": `How the ${kind} is shown` }, others), h("div", { class: "whole", tabindex: "0", role: "region", "aria-label": title }, part(shown))]),
    ];
  };
  const headers = table("headers", [
    { head: "Name", key: (each) => each.name, cell: (each) => h("code", {}, each.name) },
    { head: "Value", key: (each) => each.text, cell: (each) => part(each) },
  ], found.headers, empty("The record has no headers."));
  return {
    title: `${name}, partition ${partition}, offset ${offset}`,
    content: [
      h("p", {}, link(`${topic}/records?partition=${partition}&start=offset&offset=${offset}`, "Records from here on"), " ", link(topic, `Topic ${name}`)),
      facts(["Offset", count(offset)], ["Partition", partition], [found.appended ? "Time of appending" : "Time of the producer", found.timestamp === "-1" ? "none" : time(found.timestamp)], ["Headers", count(found.headers.length + found.more_headers)]),
      ...block("key", "Key"), ...block("value", "Value"), h("h2", {}, "Headers"), headers,
      ...(found.more_headers ? [h("p", {}, `${count(found.more_headers)} more headers are not shown.`)] : []),
      h("h2", {}, "kcat"), command(found.kcat),
    ],
  };
}
