// What a tab follows, what it was told of it, and what the tab that reads asks the server for: live data as a state
// machine, without a browser, a clock or a connection. live.ts gives it those; follows.test.ts tries it without.
//
// Each tab has an entry for each topic that somebody in it follows. One tab leads: it reads the server's stream, has an
// entry also for what the other tabs want, and hands on every line. Four rules keep every entry supplied:
//
//  1. What the stream was asked for (told) has an entry with the leader, and what that entry has is what the stream was
//     begun from, or newer. An entry that nobody follows stays for a while; when it goes, so does its place in told.
//  2. A stream is begun from an entry's index only where the entry is well. What a break made stale is told anew, since
//     a server has nothing to tell of what did not change.
//  3. The others say what they have along with what they want, again and again. The leader answers with what differs:
//     a line that was lost, or came before its entry, is made up for.
//  4. Lines carry the term of who leads. One of an earlier term comes too late: nobody would set right what it says.

/** Line is a topic as the server tells of it, or why it does not. A heartbeat has no topic. */
export interface Line {
  topic: string;
  index: number;
  value?: unknown;
  error?: string;
  /** same are, in a heartbeat, the topics that are known to be what was told, and how long ago in ms that was seen. */
  same?: Record<string, { index: number; ageMillis: number }>;
}

/** Message goes from one tab to all others. */
export interface Message {
  line?: Line;
  /** term is when the sender of a line began to lead, in ms since 1970 or later. */
  term?: number;
  /** lead is true when the sender has begun to lead. */
  lead?: boolean;
  /** want is what the sender follows, with the index of what it has; 0 where it has nothing, or nothing that is well. */
  want?: { tab: string; names: Record<string, number> };
}

/** Entry is a topic in a tab; shown is what the tab's screens see of it. */
export interface Entry<S> {
  name: string;
  users: number;
  /** left is when the last one stopped to follow it, in ms since 1970. */
  left: number;
  index: number;
  value: unknown;
  /** at is when the value came, or was last known to be what there is, in ms since 1970; 0 before the first one. */
  at: number;
  /** problem says why the value is old; "" while all is well. */
  problem: string;
  shown: S;
}

/** World is what the machine cannot do itself. */
export interface World<S> {
  now: () => number;
  post: (m: Message) => void;
  /** restart has the stream begin anew, with what subscribe returns then. */
  restart: () => void;
  /** make is what the screens see of a new entry, changed says that the entry has something new for them. */
  make: () => S;
  changed: (e: Entry<S>) => void;
}

/** patience is how long a tab is believed to want what it said last, in ms. */
export const patience = 30_000;
/** linger is how long an entry that nobody follows stays, in ms: who scrolls back and forth asks for nothing twice. */
export const linger = 2000;
/** most is how many topics a server tells of in a stream. */
export const most = 64;

export class Follows<S> {
  leads = false;
  readonly entries = new Map<string, Entry<S>>();
  private told = new Set<string>();
  private tabs = new Map<string, { names: string[]; until: number }>();
  private asked = 0;
  private term = 0;

  constructor(
    private tab: string,
    private world: World<S>,
    private crowded: string,
  ) {}

  /** follow counts one more who follows a topic; end counts one less. */
  follow(name: string): Entry<S> {
    const e = this.entry(name);
    e.users++;
    if (!this.leads) this.ask();
    else if (!this.told.has(name)) this.world.restart();
    return e;
  }

  end(e: Entry<S>): void {
    e.users--;
    e.left = this.world.now();
    if (e.users === 0 && !this.leads) this.ask();
  }

  private entry(name: string): Entry<S> {
    let e = this.entries.get(name);
    if (!e) {
      e = { name, users: 0, left: this.world.now(), index: 0, value: undefined, at: 0, problem: "", shown: this.world.make() };
      this.entries.set(name, e);
    }
    return e;
  }

  /** ask tells the tab that leads what this one wants and has. */
  ask(): void {
    this.asked = this.world.now();
    const names: Record<string, number> = {};
    for (const e of this.entries.values()) if (e.users > 0) names[e.name] = e.problem === "" ? e.index : 0;
    this.world.post({ want: { tab: this.tab, names } });
  }

  /** hear takes what another tab said. */
  hear(m: Message): void {
    const term = m.term ?? this.term;
    if (m.line && term >= this.term && !(this.leads && m.term !== undefined)) {
      this.term = term;
      this.take(m.line);
    }
    if (m.lead && !this.leads) this.ask();
    if (m.want && this.leads) this.serve(m.want.tab, m.want.names);
  }

  private serve(tab: string, names: Record<string, number>): void {
    this.tabs.set(tab, { names: Object.keys(names), until: this.world.now() + patience });
    let more = false;
    for (const [name, index] of Object.entries(names)) {
      const e = this.entry(name);
      if (!this.told.has(name)) more = true;
      if (e.problem !== "") this.give({ topic: name, index: 0, error: e.problem });
      else if (e.index !== 0 && e.index !== index) this.give({ topic: name, index: e.index, value: e.value });
    }
    if (more) this.world.restart();
  }

  /** lead begins to read for all tabs, resign ends that. */
  lead(): void {
    this.leads = true;
    this.term = Math.max(this.term + 1, this.world.now());
    this.told.clear();
    this.tabs.clear();
    this.world.post({ lead: true });
  }

  resign(): void {
    this.leads = false;
    this.told.clear();
  }

  /** subscribe is what the stream that begins now is asked for, with the index that it begins from. */
  subscribe(): { name: string; since: number }[] {
    const names = [...this.wanted()];
    this.told = new Set(names);
    for (const name of names.splice(most)) this.tell({ topic: name, index: 0, error: this.crowded });
    return names.map((name) => {
      const e = this.entry(name);
      return { name, since: e.problem === "" ? e.index : 0 };
    });
  }

  /** wanted is what somebody follows, this tab's own first. */
  private wanted(): Set<string> {
    const names = new Set<string>();
    for (const e of this.entries.values()) if (e.users > 0) names.add(e.name);
    for (const t of this.tabs.values()) for (const name of t.names) names.add(name);
    return names;
  }

  /** tell takes a line of the stream and hands it on. */
  tell(line: Line): void {
    this.take(line);
    this.give(line);
  }

  private give(line: Line): void {
    this.world.post({ line, term: this.term });
  }

  /** broke says of all that the stream told why it is old now. */
  broke(why: string): void {
    for (const name of this.told) this.tell({ topic: name, index: 0, error: why });
  }

  /** forget has nothing stay that was told: whoever logs in next may be somebody else. */
  forget(): void {
    for (const e of this.entries.values()) {
      Object.assign(e, { index: 0, value: undefined, at: 0 });
      this.world.changed(e);
    }
  }

  private take(line: Line): void {
    for (const [name, same] of Object.entries(line.same ?? {})) this.keep(name, same.index, this.world.now() - same.ageMillis);
    const e = this.entries.get(line.topic);
    if (!e) return; // a heartbeat, or what another tab follows
    if (line.error !== undefined) {
      e.problem = line.error;
    } else {
      e.index = line.index;
      e.value = line.value;
      e.at = this.world.now();
      e.problem = "";
    }
    this.world.changed(e);
  }

  /** keep takes that a topic was still what it was; a tab that has missed a line has something else. */
  private keep(name: string, index: number, at: number): void {
    const e = this.entries.get(name);
    if (!e || e.index !== index || e.index === 0 || e.problem !== "" || e.at >= at) return;
    e.at = at;
    this.world.changed(e);
  }

  /** tick is called each second while the tab is seen, and while it leads: what nobody wants any more goes. */
  tick(): void {
    const now = this.world.now();
    for (const [tab, t] of this.tabs) if (t.until < now) this.tabs.delete(tab);
    const wanted = this.wanted();
    let lacks = false;
    for (const e of [...this.entries.values()]) {
      if (wanted.has(e.name)) e.left = now;
      else if (now - e.left >= linger) this.entries.delete(e.name);
      if (e.users > 0 && e.at === 0 && e.problem === "") lacks = true;
    }
    if (!this.leads) {
      if (lacks || now - this.asked >= patience / 3) this.ask();
      return;
    }
    let less = false;
    for (const name of this.told) if (!this.entries.has(name)) less = this.told.delete(name);
    if (less) this.world.restart();
  }
}
