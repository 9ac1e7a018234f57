// Shows the page that the address names, and keeps the address and the page together.
import { ask, badge, empty, Failed, h, link } from "/static/lib.js";
import { overview } from "/static/pages/overview.js";
import { topics } from "/static/pages/topics.js";
import { topic } from "/static/pages/topic.js";
import { records } from "/static/pages/records.js";
import { record } from "/static/pages/record.js";
import { segments } from "/static/pages/segments.js";
import { segment } from "/static/pages/segment.js";
import { sink, sinks } from "/static/pages/sinks.js";
import { groups } from "/static/pages/groups.js";
import { group } from "/static/pages/group.js";
import { instances } from "/static/pages/instances.js";
import { acls } from "/static/pages/acls.js";
import { quotas } from "/static/pages/quotas.js";
import { users } from "/static/pages/users.js";

const PAGES = [
  [/^\/$/, overview],
  [/^\/topics$/, topics],
  [/^\/topics\/([^/]+)$/, topic],
  [/^\/topics\/([^/]+)\/records$/, records],
  [/^\/topics\/([^/]+)\/records\/([0-9]+)\/([0-9]+)$/, record],
  [/^\/topics\/([^/]+)\/([0-9]+)$/, segments],
  [/^\/topics\/([^/]+)\/([0-9]+)\/([0-9]+)$/, segment],
  [/^\/sinks$/, sinks],
  [/^\/sinks\/([^/]+)$/, sink],
  [/^\/groups$/, groups],
  [/^\/groups\/([^/]*)$/, group],
  [/^\/instances$/, instances],
  [/^\/access$/, users],
  [/^\/access\/acls$/, acls],
  [/^\/access\/quotas$/, quotas],
];
const NAV = [["/", "Overview"], ["/topics", "Topics"], ["/groups", "Groups"], ["/sinks", "Sinks"], ["/instances", "Instances"], ["/access", "Access"]];
const main = document.getElementById("main"), notice = document.getElementById("notice");
let session, leave = () => {}, turn = 0;

async function show(focus = true) {
  const mine = ++turn;
  leave();
  leave = () => {};
  notice.textContent = "";
  document.getElementById("nav").replaceChildren(...NAV.map(([href, text]) => {
    const current = href === "/" ? location.pathname === "/" : location.pathname.startsWith(href);
    return h("li", {}, h("a", { href, "aria-current": current ? "page" : null }, text));
  }));
  try {
    session ??= await ask("/api/session");
    drawWho();
    if (!session.signed_in) return signIn();
    const [pattern, page] = PAGES.find(([each]) => each.test(location.pathname)) ?? [];
    if (!page) throw new Failed(404, "There is no such page.");
    const names = location.pathname.match(pattern).slice(1).map(decoded);
    main.setAttribute("aria-busy", "true");
    const shown = await page(names, {
      say: (text) => { if (mine === turn) notice.textContent = text; },
      mayChange: session.may_change,
      change: (path, method, body) => ask(path, { method, body, csrf: session.csrf }),
      again: () => { if (mine === turn) show(false); },
      go: (path) => { history.pushState(null, "", path); show(); },
    });
    if (mine !== turn) return shown.leave?.();
    leave = shown.leave ?? leave;
    document.title = `${shown.title} - KafScale`;
    main.replaceChildren(h("h1", {}, shown.title), ...shown.content);
  } catch (error) {
    if (mine !== turn) return;
    if (!(error instanceof Failed)) throw error;
    if (error.status === 401) return;
    document.title = "Error - KafScale";
    main.replaceChildren(h("h1", {}, error.status === 404 ? "Not found" : error.status === 403 ? "Not allowed" : "No answer"), empty(error.message), h("button", { type: "button", onclick: () => show() }, "Try again"));
  } finally {
    if (mine === turn) main.removeAttribute("aria-busy");
  }
  if (focus && mine === turn) main.focus({ preventScroll: true });
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    throw new Failed(404, "The address is not valid.");
  }
}

function drawWho() {
  document.getElementById("who").replaceChildren(badge(session.version), ...(session.signed_in && !session.may_change ? [badge("viewer")] : []), ...(session.signs_in && session.signed_in ? [h("button", { type: "button", onclick: signOut }, "Sign out")] : []));
}

function signIn() {
  document.title = "Sign in - KafScale";
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const wrong = h("p", { role: "alert", class: "wrong" });
  async function send(event) {
    event.preventDefault();
    wrong.textContent = "";
    try {
      await ask("/api/session", { method: "POST", body: { token: field.value } });
      session = undefined;
      show();
    } catch (error) {
      wrong.textContent = error.status === 403 ? "The gateway does not accept this token." : error.message;
      field.select();
    }
  }
  main.replaceChildren(h("h1", {}, "Sign in"), h("form", { class: "sign-in", onsubmit: send }, h("label", { for: "token" }, "Token of the Admin service, or of your OAuth issuer"), field, h("button", {}, "Sign in"), wrong));
  field.focus();
}

async function signOut() {
  await ask("/api/session", { method: "DELETE", csrf: session.csrf });
  session = undefined;
  show();
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href^='/']");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || anchor.hasAttribute("download")) return;
  event.preventDefault();
  history.pushState(null, "", anchor.href);
  scrollTo(0, 0);
  show();
});
addEventListener("popstate", () => show());
addEventListener("signed-out", () => { session = undefined; show(); });
show(false);
