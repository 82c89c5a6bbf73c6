// Live data: one stream for the whole browser, at most one repaint a frame, and nothing moves while the person has
// paused. A tab that has the lock reads the stream and hands what comes to the others: browsers allow six connections
// to a host over all tabs. Who follows what, and what is asked for, is follows.ts.
import { type Signal, signal } from "@preact/signals";
import { Problem } from "./api";
import { type Entry, Follows, type Line, type Message, patience } from "./follows";
import { text } from "../text";

/** Live is one topic as it was last told. */
export interface Live<T> {
  value: Signal<T | undefined>;
  /** at is when it was told, or last known to be what there is, in ms since 1970; 0 before the first time. */
  at: Signal<number>;
  /** problem says why what is shown is old; "" while all is well. */
  problem: Signal<string>;
}

/** paused stops all changes on the screen; what came meanwhile is shown when it ends. */
export const paused = signal(false);

const channel = new BroadcastChannel("corbel-live-2"); // the number is of Message: pages of two versions may be open
const lock = "corbel-live-2";
const retryMost = 10_000; // ms between attempts
const silence = 25_000; // ms without a heartbeat after which the server counts as frozen

/** alone is true where browsers give no locks, in pages that came neither by https nor from this host: each tab reads. */
const alone = !("locks" in navigator);

let current: AbortController | undefined;
let renewing = false;
let framed = false;
const waiting = new Set<Entry<Live<unknown>>>(); // have something new, until the next frame

const follows = new Follows<Live<unknown>>(
  `${Date.now()}-${Math.random()}`,
  {
    now: Date.now,
    post: (m: Message) => {
      if (!alone) channel.postMessage(m);
    },
    restart,
    make: () => ({ value: signal(undefined), at: signal(0), problem: signal("") }),
    changed: (e) => {
      waiting.add(e);
      if (framed) return;
      framed = true;
      requestAnimationFrame(show);
    },
  },
  text.crowded,
);

/** follow begins to follow a topic, which is a path of the API; call the second result to end that. */
export function follow<T>(name: string): [Live<T>, () => void] {
  const mine = follows.follow(name);
  let ended = false;
  return [
    mine.shown as Live<T>,
    () => {
      if (!ended) follows.end(mine);
      ended = true;
    },
  ];
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

function show(): void {
  framed = false;
  for (const e of [...waiting]) {
    const { value, at, problem } = e.shown;
    if (paused.value && at.value > 0) continue; // a screen that was opened since is shown
    waiting.delete(e);
    problem.value = e.problem;
    if (e.at === at.value && e.value === value.value) continue;
    at.value = e.at;
    value.value = e.value;
  }
}

paused.subscribe((p) => {
  if (!p && waiting.size > 0) show();
});

/** begin takes part in the browser's stream. */
export function begin(): void {
  channel.onmessage = (e: MessageEvent<Message>) => follows.hear(e.data);
  setInterval(() => {
    if (!document.hidden || follows.leads) follows.tick();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !follows.leads) follows.ask(); // what it wanted was forgotten meanwhile
  });
  void lead();
}

async function lead(): Promise<void> {
  for (;;) {
    await seen();
    if (alone) {
      await read();
      continue;
    }
    await navigator.locks.request(lock, read);
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

/** read leads and reads the stream, again and again, until the tab has been hidden for long. */
async function read(): Promise<void> {
  follows.lead();
  let hidden = 0;
  const watch = setInterval(() => {
    hidden = document.hidden ? hidden + 1000 : 0;
    if (hidden >= patience) current?.abort();
  }, 1000);
  let pause = 250;
  while (hidden < patience) {
    const mine = (current = new AbortController()); // restart may abort it, and what comes behind it, at any time
    const topics = follows.subscribe();
    if (topics.length === 0) {
      await aborted(mine.signal);
      continue;
    }
    try {
      await stream(topics, mine.signal, () => (pause = 250));
      continue; // it was aborted
    } catch (e) {
      if (mine.signal.aborted) continue;
      mine.abort(); // a server that froze has the connection still
      follows.broke(e instanceof Problem ? e.message : String(e));
      if (e instanceof Problem && e.status === 401) signedOut.value = true;
    }
    const rest = (current = new AbortController());
    await Promise.race([aborted(rest.signal), new Promise((done) => setTimeout(done, pause))]);
    pause = Math.min(2 * pause, retryMost);
  }
  clearInterval(watch);
  follows.resign();
}

/** signedOut is true once the server no longer knows the session. */
export const signedOut = signal(false);

signedOut.subscribe((out) => {
  if (out) follows.forget();
});

const aborted = (s: AbortSignal): Promise<void> =>
  s.aborted ? Promise.resolve() : new Promise((done) => s.addEventListener("abort", () => done(), { once: true }));

async function stream(topics: { name: string; since: number }[], end: AbortSignal, alive: () => void): Promise<void> {
  const answer = await fetch("/ui/api/stream", {
    method: "POST",
    credentials: "same-origin",
    signal: end,
    body: JSON.stringify({ topics }),
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
    if (end.aborted) return; // the next stream tells of this
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") follows.tell(JSON.parse(line) as Line);
  }
}
