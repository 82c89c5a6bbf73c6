// Live data: one stream for the whole browser, at most one repaint a frame, and nothing moves while the person has
// paused. A tab that has the lock reads the stream and hands what comes to the others: browsers allow six connections
// to a host over all tabs.
import { type Signal, signal } from "@preact/signals";
import { Problem } from "./api";
import { text } from "../text";

/** Live is one topic as it was last told. */
export interface Live<T> {
  value: Signal<T | undefined>;
  /** at is when it was told, in ms since 1970; 0 before the first time. */
  at: Signal<number>;
  /** problem says why what is shown is old; "" while all is well. */
  problem: Signal<string>;
}

interface Topic extends Live<unknown> {
  name: string;
  index: number;
  users: number;
}

interface Line {
  topic: string;
  index: number;
  value?: unknown;
  error?: string;
}

/** paused stops all changes on the screen; what came meanwhile is shown when it ends. */
export const paused = signal(false);

const topics = new Map<string, Topic>();
const waiting = new Map<string, Line>(); // the newest of each topic, until the next frame
const channel = new BroadcastChannel("corbel-live");
const patience = 30_000; // ms that a hidden tab keeps the stream
const retryMost = 10_000; // ms between attempts
const silence = 25_000; // ms without a heartbeat after which the server counts as frozen
const linger = 2000; // ms that the stream goes on to tell of what nobody follows any more

/** alone is true where browsers give no locks, in pages that came neither by https nor from this host: each tab reads. */
const alone = !("locks" in navigator);

let leads = false;
let current: AbortController | undefined;
let told = new Set<string>(); // what the stream was asked for
let renewing = false;
let lingering = 0;
let framed = false;

/** follow begins to follow a topic, which is a path of the API; call the second result to end that. */
export function follow<T>(name: string): [Live<T>, () => void] {
  let t = topics.get(name);
  if (!t) {
    t = { name, index: 0, users: 0, value: signal(undefined), at: signal(0), problem: signal("") };
    topics.set(name, t);
  }
  t.users++;
  changed();
  const mine = t;
  return [
    mine as unknown as Live<T>,
    () => {
      mine.users--;
      if (mine.users > 0) return;
      topics.delete(name);
      changed();
    },
  ];
}

const wanted = new Map<string, number>(); // what other tabs follow, and until when that is believed

function changed(): void {
  if (!leads) channel.postMessage({ want: [...topics.keys()] });
  else if ([...topics.keys()].some((name) => !told.has(name))) restart();
  else lingering ||= setTimeout(tidy, linger);
}

/** restart has the stream begin anew with what is followed now: once for all that one rendering follows. */
function restart(): void {
  if (renewing) return;
  renewing = true;
  queueMicrotask(() => {
    renewing = false;
    current?.abort();
  });
}

/** tidy ends what the stream tells of and nobody follows: whoever scrolls back and forth asks for nothing twice. */
function tidy(): void {
  lingering = 0;
  if (now().length < told.size) restart();
}

function take(line: Line): void {
  waiting.set(line.topic, line);
  if (framed || paused.value) return;
  framed = true;
  requestAnimationFrame(show);
}

function show(): void {
  framed = false;
  if (paused.value) return;
  for (const line of waiting.values()) {
    const t = topics.get(line.topic);
    if (!t) continue;
    t.problem.value = line.error ?? "";
    if (line.error !== undefined) continue;
    t.index = line.index;
    t.at.value = Date.now();
    t.value.value = line.value;
  }
  waiting.clear();
}

paused.subscribe((p) => {
  if (!p && waiting.size > 0) show();
});

/** begin takes part in the browser's stream. */
export function begin(): void {
  channel.onmessage = (e: MessageEvent<{ want?: string[]; line?: Line; lead?: boolean }>) => {
    if (e.data.line) take(e.data.line);
    if (e.data.lead) channel.postMessage({ want: [...topics.keys()] });
    if (e.data.want && leads) {
      const until = Date.now() + patience;
      const added = e.data.want.some((name) => !wanted.has(name) && !topics.has(name));
      for (const name of e.data.want) wanted.set(name, until);
      if (added) restart();
    }
  };
  setInterval(() => {
    if (!document.hidden && !leads) channel.postMessage({ want: [...topics.keys()] });
  }, patience / 3);
  void lead();
}

async function lead(): Promise<void> {
  for (;;) {
    await seen();
    if (alone) {
      leads = true;
      await read();
      continue;
    }
    await navigator.locks.request("corbel-live", async () => {
      leads = true;
      channel.postMessage({ lead: true });
      await read();
      leads = false;
    });
  }
}

/** seen waits until the tab is looked at. */
function seen(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
  });
}

/** read reads the stream, again and again, until the tab has been hidden for long. */
async function read(): Promise<void> {
  let hidden = 0;
  const watch = setInterval(() => {
    hidden = document.hidden ? hidden + 1000 : 0;
    if (hidden >= patience) current?.abort();
  }, 1000);
  let pause = 250;
  while (hidden < patience) {
    const mine = (current = new AbortController()); // restart may abort it, and what comes behind it, at any time
    const names = now();
    told = new Set(names);
    if (names.length === 0) {
      await aborted(mine.signal);
      continue;
    }
    try {
      await stream(names, mine.signal, () => (pause = 250));
    } catch (e) {
      if (mine.signal.aborted) continue;
      mine.abort(); // a server that froze has the connection still
      const why = e instanceof Problem ? e.message : String(e);
      for (const name of names) tell({ topic: name, index: 0, error: why });
      if (e instanceof Problem && e.status === 401) signedOut.value = true;
    }
    const rest = (current = new AbortController());
    await Promise.race([aborted(rest.signal), new Promise((done) => setTimeout(done, pause))]);
    pause = Math.min(2 * pause, retryMost);
  }
  clearInterval(watch);
}

/** signedOut is true once the server no longer knows the session. */
export const signedOut = signal(false);

function now(): string[] {
  const time = Date.now();
  for (const [name, until] of wanted) if (until < time) wanted.delete(name);
  return [...new Set([...topics.keys(), ...wanted.keys()])];
}

function tell(line: Line): void {
  take(line);
  if (!alone) channel.postMessage({ line });
}

const aborted = (s: AbortSignal): Promise<void> =>
  s.aborted ? Promise.resolve() : new Promise((done) => s.addEventListener("abort", () => done(), { once: true }));

async function stream(names: string[], end: AbortSignal, alive: () => void): Promise<void> {
  const answer = await fetch("/ui/api/stream", {
    method: "POST",
    credentials: "same-origin",
    signal: end,
    body: JSON.stringify({ topics: names.map((name) => ({ name, since: topics.get(name)?.index ?? 0 })) }),
  });
  if (!answer.ok || !answer.body) throw new Problem(answer.status, (await answer.text()).trim() || answer.statusText);
  alive();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let timer = 0;
    const late = new Promise<never>((_, fail) => {
      timer = setTimeout(() => fail(new Problem(504, text.silent)), silence);
    });
    const { done, value } = await Promise.race([reader.read(), late]).finally(() => clearTimeout(timer));
    if (done) throw new Problem(503, text.lost);
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") tell(JSON.parse(line) as Line);
  }
}
