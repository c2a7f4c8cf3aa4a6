// What did a service answer, and with which token was it asked?

const SECONDS_MAX = 10;
const KEY = "luftpause.token ";

/** Why an answer is not there. `kind`: token, unreachable, unreadable (something answers, but this page may not read it), refused. */
export class AskError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

const kept = new Map(); // by origin; the browser's own store where it has one

export function token(origin) {
  try {
    return sessionStorage.getItem(KEY + origin) || "";
  } catch {
    return kept.get(origin) || "";
  }
}

export function keep(origin, value) {
  try {
    if (value) sessionStorage.setItem(KEY + origin, value);
    else sessionStorage.removeItem(KEY + origin);
  } catch {
    kept.set(origin, value);
  }
}

export const anyToken = () => {
  try {
    return Object.keys(sessionStorage).some((each) => each.startsWith(KEY));
  } catch {
    return [...kept.values()].some(Boolean);
  }
};

export function forget() {
  kept.clear();
  try {
    for (const each of Object.keys(sessionStorage)) if (each.startsWith(KEY)) sessionStorage.removeItem(each);
  } catch {
    // nothing was kept there
  }
}

/** The JSON at `url`, asked with the token of its origin and no other. Throws AskError. */
export async function ask(url) {
  const at = new URL(url, location.href);
  const shown = token(at.origin);
  let answer;
  try {
    answer = await fetch(at, {
      headers: shown ? { authorization: `Bearer ${shown}` } : {},
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(1000 * SECONDS_MAX),
    });
  } catch (error) {
    throw await whyNot(at, error);
  }
  const body = await answer.text().catch(() => "");
  if (answer.ok) return parsed(at, body);
  const message = said(body) || `it answered ${answer.status}`;
  throw new AskError(answer.status === 401 ? "token" : "refused", message);
}

async function whyNot(at, error) {
  if (error.name === "TimeoutError") return new AskError("unreachable", `${at.origin} did not answer within ${SECONDS_MAX} s`);
  if (at.origin === location.origin) return new AskError("unreachable", `nothing answers at ${at.origin}`);
  try {
    await fetch(new URL("health", at), { mode: "no-cors", cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(3000) });
  } catch {
    return new AskError("unreachable", `nothing answers at ${at.origin}`);
  }
  const why = `${at.origin} answers, but not to this page: add "${location.origin}" to runtime.status_origins, if it is a runtime`;
  return new AskError("unreadable", why);
}

function parsed(at, body) {
  try {
    return JSON.parse(body);
  } catch {
    throw new AskError("refused", `${at.origin} did not answer with JSON: it is not what this page takes it for`);
  }
}

function said(body) {
  try {
    return JSON.parse(body).error.message;
  } catch {
    return "";
  }
}

/** The base of `?runtime=`, without a trailing slash; null: none was named. Throws AskError that says what is wrong with it. */
export function runtimeBase(search) {
  const given = (new URLSearchParams(search).get("runtime") || "").trim();
  if (!given) return null;
  const like = "name it like http://127.0.0.1:7000";
  let url;
  try {
    url = new URL(given);
  } catch {
    throw new AskError("refused", `“${given}” is not an address; ${like}`);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new AskError("refused", `“${given}” is not an http address; ${like}`);
  if (url.username || url.password) throw new AskError("refused", `an address with a name or password in it is not asked; ${like}`);
  if (location.protocol === "https:" && url.protocol === "http:" && !["localhost", "127.0.0.1", "[::1]"].includes(url.hostname)) {
    throw new AskError("refused", `this page came over https; browsers don't let it ask ${url.origin} over http`);
  }
  return url.origin + url.pathname.replace(/\/(mcp|status)?\/?$/, "");
}
