// Tries follows.ts without a browser: three tabs, a server and what is between them, in an order that a seed gives.
// ui/follows_test.go runs what is exported, each of which returns what is wrong, or "".
import { type Entry, Follows, type Line, linger, type Message, most, patience } from "./follows";

interface Shown {
  value: unknown;
}

type Follow = Entry<Shown>;

/** Tab is a tab with what others said that it has not heard yet. */
interface Tab {
  follows: Follows<Shown>;
  heard: { from: Tab; m: Message }[];
  held: Follow[];
  stream?: Stream | undefined;
  restarts: boolean;
}

/** Stream is what a server tells one tab: of each topic the index that it told last, and what is on the way. */
interface Stream {
  told: Map<string, number>;
  way: Line[];
}

class Browser {
  now = 1_000_000;
  tabs: Tab[] = [];
  leader: Tab | undefined;
  values = new Map<string, number>();
  begun = 0;

  open(): Tab {
    const tab: Tab = { heard: [], held: [], restarts: false } as unknown as Tab;
    tab.follows = new Follows<Shown>(
      `t${this.begun++}`,
      {
        now: () => this.now,
        post: (m) => {
          const copy = { ...m };
          for (const other of this.tabs) if (other !== tab) other.heard.push({ from: tab, m: copy });
        },
        restart: () => (tab.restarts = true),
        make: () => ({ value: undefined }),
        changed: (e) => (e.shown.value = e.value),
      },
      "crowded",
    );
    this.tabs.push(tab);
    return tab;
  }

  elect(tab: Tab): void {
    if (this.leader) {
      this.leader.follows.resign();
      this.leader.stream = undefined;
    }
    this.leader = tab;
    this.now++;
    tab.follows.lead();
    tab.restarts = true;
  }

  close(tab: Tab): void {
    this.tabs = this.tabs.filter((t) => t !== tab);
    if (this.leader === tab) this.leader = undefined;
  }

  /** value is what a topic has: it comes back to what it was, as things do. */
  value(name: string): number {
    return this.values.get(name) ?? 1;
  }

  /** connect has the leader's stream begin anew where that is due; a broken one is told of before. */
  connect(): void {
    const tab = this.leader;
    if (!tab || (!tab.restarts && tab.stream)) return;
    tab.restarts = false;
    tab.stream = { told: new Map(), way: [] };
    for (const { name, since } of tab.follows.subscribe()) tab.stream.told.set(name, since);
  }

  /** serve has the server tell of what differs from what it told last. */
  serve(): void {
    const s = this.leader?.stream;
    if (!s) return;
    for (const [name, index] of s.told) {
      const value = this.value(name);
      if (value === index) continue;
      s.told.set(name, value);
      s.way.push({ topic: name, index: value, value: `${name}=${value}` });
    }
  }

  read(): void {
    const line = this.leader?.stream?.way.shift();
    if (line) this.leader?.follows.tell(line);
  }

  break(): void {
    if (!this.leader?.stream) return;
    this.leader.stream = undefined;
    this.leader.follows.broke("the connection ended");
  }

  hear(tab: Tab): void {
    const next = tab.heard.shift();
    if (next) tab.follows.hear(next.m);
  }

  /** settle lets all happen that is due, for as long as an operator would wait. */
  settle(): void {
    if (!this.leader && this.tabs[0]) this.elect(this.tabs[0]);
    for (let i = 0; i < 4; i++) {
      this.now += 1000;
      for (const tab of this.tabs) tab.follows.tick();
      for (let more = true; more; ) {
        this.connect();
        this.serve();
        while (this.leader?.stream && this.leader.stream.way.length > 0) this.read();
        for (const tab of this.tabs) while (tab.heard.length > 0) this.hear(tab);
        more = this.leader?.restarts === true;
      }
    }
  }

  /** wrong tells of the first screen that does not show what is. */
  wrong(): string {
    for (const [i, tab] of this.tabs.entries()) {
      for (const e of tab.held) {
        const want = `${e.name}=${this.value(e.name)}`;
        if (e.shown.value !== want || e.problem !== "") {
          return `tab ${i} (${tab === this.leader ? "leads" : "follows"}) shows ${String(e.shown.value)}, ${e.problem} for ${want}`;
        }
      }
    }
    return "";
  }
}

const topics = ["a", "b", "rows?from=0", "rows?from=100", "rows?from=200"];

/** life is a browser's whole life in an order that a seed gives; it returns what is wrong once all has settled. */
export function life(seed: number): string {
  let state = (seed * 2654435761) >>> 0;
  const upTo = (n: number): number => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return (state >>> 8) % n;
  };
  const b = new Browser();
  b.elect(b.open());
  for (let step = 0; step < 150; step++) {
    const tab = b.tabs[upTo(b.tabs.length)]!;
    switch (upTo(13)) {
      case 0:
      case 1:
        tab.held.push(tab.follows.follow(topics[upTo(topics.length)]!));
        break;
      case 2:
        for (const e of tab.held.splice(upTo(tab.held.length + 1), 1)) tab.follows.end(e);
        break;
      case 3: // a page of rows after the other
        tab.held.push(tab.follows.follow(topics[2 + upTo(3)]!));
        for (const e of tab.held.splice(0, 1)) tab.follows.end(e);
        break;
      case 4:
        b.values.set(topics[upTo(topics.length)]!, 1 + upTo(3));
        break;
      case 5:
        b.connect();
        break;
      case 6:
        b.serve();
        break;
      case 7:
        b.read();
        break;
      case 8:
      case 9:
        b.hear(tab);
        break;
      case 10:
        b.now += upTo(2 * linger);
        tab.follows.tick();
        break;
      case 11:
        b.break();
        break;
      case 12:
        if (b.tabs.length < 3) b.open();
        else if (upTo(2) === 0) b.close(tab);
        if (upTo(3) === 0 || !b.leader) b.elect(b.tabs[upTo(b.tabs.length)]!);
    }
    if (step % 50 === 49) {
      b.settle();
      const wrong = b.wrong();
      if (wrong !== "") return `seed ${seed}, step ${step}: ${wrong}`;
    }
  }
  // What nobody follows is let go.
  for (const tab of b.tabs) for (const e of tab.held.splice(0)) tab.follows.end(e);
  b.settle();
  b.now += patience; // tabs that were closed are forgotten
  b.settle();
  for (const tab of b.tabs) if (tab.follows.entries.size > 0) return `seed ${seed}: ${[...tab.follows.entries.keys()].join(", ")} stay`;
  return "";
}

/** back follows a topic again while the stream still tells of it: it is shown at once, without a new stream. */
export function back(): string {
  const b = new Browser();
  const tab = b.open();
  b.elect(tab);
  const first = tab.follows.follow("a");
  tab.held.push(tab.follows.follow("b"));
  b.settle();
  tab.follows.end(first);
  b.now += linger / 2;
  tab.follows.tick();
  tab.held.push(tab.follows.follow("a"));
  return (tab.restarts ? "it asks anew; " : "") + b.wrong();
}

/** again breaks the stream of a topic that does not change: it is well once there is a stream again. */
export function again(): string {
  const b = new Browser();
  const tab = b.open();
  b.elect(tab);
  tab.held.push(tab.follows.follow("a"));
  b.settle();
  b.break();
  if (b.wrong() === "") return "a broken stream is not told of";
  b.settle();
  return b.wrong();
}

/** second opens a tab that follows what the first has followed for long. */
export function second(): string {
  const b = new Browser();
  const tab = b.open();
  b.elect(tab);
  tab.held.push(tab.follows.follow("a"));
  b.settle();
  const other = b.open();
  other.held.push(other.follows.follow("a"));
  b.hear(tab);
  b.hear(other);
  return (tab.restarts ? "the stream begins anew; " : "") + b.wrong();
}

/** quiet has a topic that does not change: heartbeats say so, and a tab believes them only of what it has. */
export function quiet(): string {
  const b = new Browser();
  const tab = b.open();
  const other = b.open();
  b.elect(tab);
  for (const t of [tab, other]) t.held.push(t.follows.follow("a"));
  b.settle();
  const told = [tab, other].map((t) => t.held[0]!.at);
  const beat = (index: number): void => {
    b.now += 10_000;
    tab.follows.tell({ topic: "", index: 0, same: { a: { index, ageMillis: 3000 }, none: { index: 1, ageMillis: 0 } } });
    b.hear(other);
  };
  beat(2);
  if ([tab, other].some((t, i) => t.held[0]!.at !== told[i])) return "a heartbeat of another value is believed";
  beat(1);
  for (const t of [tab, other]) if (t.held[0]!.at !== b.now - 3000) return `known as of ${b.now - t.held[0]!.at} ms ago, not 3000`;
  b.break();
  beat(1);
  if (tab.held[0]!.at !== b.now - 13_000) return "what a break made old is young again";
  return tab.held[0]!.problem === "" ? "the break is forgotten" : "";
}

/** many follows more than a stream may: the first of them are told, the others say why not, and come when there is room. */
export function many(): string {
  const b = new Browser();
  const tab = b.open();
  b.elect(tab);
  for (let i = 0; i < most + 2; i++) tab.held.push(tab.follows.follow(`t${i}`));
  b.settle();
  const out = tab.held.filter((e) => e.problem === "crowded").length;
  if (out !== 2 || tab.stream?.told.size !== most) return `${out} are refused, ${tab.stream?.told.size} told`;
  for (const e of tab.held.splice(0, 2)) tab.follows.end(e);
  b.settle();
  return b.wrong();
}
