// Requests to the server that served the page. The session is an HttpOnly cookie, so no token is ever in a script's
// hands; the server refuses requests of other origins.

/** Problem is an answer that is no success: what it says is the server's own text. */
export class Problem extends Error {
  constructor(readonly status: number, text: string) {
    super(text);
  }
}

const timeout = 10_000; // ms, for an answer to begin

/** get reads a path below /v1. */
export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return send<T>("GET", path, undefined, signal);
}

/** getText reads a path below /v1 whose answer is text, whatever it looks like. */
export function getText(path: string, signal?: AbortSignal): Promise<string> {
  return ask("GET", path, undefined, signal);
}

/** send writes a body, as JSON unless it is text, and returns the answer's JSON. */
export async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const text = await ask(method, path, body, signal);
  if (text === "") return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    return text as T;
  }
}

async function ask(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<string> {
  const limit = AbortSignal.timeout(timeout);
  const init: RequestInit = {
    method,
    credentials: "same-origin",
    headers: { Accept: "application/json" },
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  };
  if (body !== undefined) init.body = typeof body === "string" ? body : JSON.stringify(body);
  let answer: Response;
  try {
    answer = await fetch(path, init);
  } catch (e) {
    if (limit.aborted) throw new Problem(504, `no answer within ${timeout / 1000} s`);
    throw signal?.aborted ? e : new Problem(503, "the server does not answer");
  }
  const text = await answer.text();
  if (!answer.ok) throw new Problem(answer.status, text.trim() || answer.statusText);
  return text;
}
