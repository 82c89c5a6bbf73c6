import { useState } from "preact/hooks";
import { as } from "../lib/act";
import { send } from "../lib/api";
import { Grid } from "../lib/grid";
import { Age, Copy, Ends, Mark, Problems, type State, Title } from "../lib/parts";
import { ago, bytes, count, now, span } from "../lib/time";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Group {
  name: string;
  leader: string;
  leads: boolean;
  lagMillis: number;
  applied: number;
  term: number;
  fsyncs: number;
  logBytes: number;
  /** snapshot is the newest one on this server's disk. */
  snapshot?: { bytes: number; index: number; at: number };
}

/** Key is a gossip key, by a part of its hash, and how many members of a pool have it. */
interface Key {
  pool: string;
  name: string;
  members: number;
  primary: number;
  of: number;
}

interface Server {
  ID: string;
  Name: string;
  Address: string;
  SerfStatus: string;
  Version: string;
  Leader: boolean;
  LastContact: string;
  Healthy: boolean;
  Voter: boolean;
}

interface Member {
  Name: string;
  Addr: string;
  Status: number;
  Tags: Record<string, string>;
}

interface Root {
  ID: string;
  Name: string;
  NotAfter: string;
  Active: boolean;
}

interface ClusterData {
  groups?: Group[];
  ends?: number;
  server?: string;
  disk?: { path: string; size: number; available: number } | null;
  autopilot?: { FailureTolerance: number; Servers: Server[] };
  members?: Member[];
  roots?: { Roots: Root[] };
  problems: Record<string, string>;
}

const statuses: Record<number, [State, string]> = {
  1: ["passing", "alive"],
  2: ["warning", "leaving"],
  3: ["unknown", "left"],
  4: ["critical", "failed"],
};

const resources = ["key", "service", "node", "agent", "session", "event", "query", "intention", "operator", "acl", "keyring", "mesh"];
const levels = ["read", "list", "write"];

/** Holder is a token that has a right, and what gives it. */
interface Holder {
  accessor: string;
  description: string;
  policies: string[];
  roles: string[];
  method?: string;
  expires: number;
}

/** Holders answers who may do something. */
function Holders(props: { query: string }) {
  const live = useLive<{ everybody: boolean; holders: Holder[]; more: number; tokens: number }>(`whomay?${props.query}`);
  const data = live.value.value;
  if (!data) return <Age of={live} />;
  return (
    <>
      <p class="words" role="status">
        {data.everybody ? text.everybodyMay : text.holdersOf(count(data.holders.length + data.more), count(data.tokens))}
      </p>
      <Grid
        label={text.whoMay}
        rows={data.holders}
        id={(h) => h.accessor}
        empty={text.noHolders}
        columns={[
          { name: text.description, cell: (h) => h.description || h.accessor },
          { name: text.accessor, cell: (h) => <code>{h.accessor}</code> },
          { name: text.policies, cell: (h) => h.policies.join(" ") },
          { name: text.roles, cell: (h) => h.roles.join(" ") },
          { name: text.loginMethod, cell: (h) => h.method ?? "" },
          { name: text.ends, cell: (h) => (h.expires > 0 ? text.within(span(h.expires - now.value)) : text.never) },
        ]}
      />
    </>
  );
}

/** Playground answers what the token of this session may do, and who else may. */
function Playground() {
  const [asked, setAsked] = useState("");
  const [answer, setAnswer] = useState<{ state: State; words: string }>();
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const data = new FormData(e.currentTarget as HTMLFormElement);
    const [Resource, Segment, Access] = [String(data.get("resource")), String(data.get("name")), String(data.get("level"))];
    const what = `${Access} ${Resource} ${Segment}`.trim();
    if ((e.submitter as HTMLButtonElement | null)?.name === "who") {
      setAnswer(undefined);
      setAsked(new URLSearchParams({ resource: Resource, name: Segment, level: Access }).toString());
      return;
    }
    setAsked("");
    try {
      const [first] = await send<{ Allow: boolean }[]>("POST", as("catalog", "/v1/internal/acl/authorize"), [{ Resource, Segment, Access }]);
      setAnswer(first?.Allow ? { state: "passing", words: text.tokenMay(what) } : { state: "critical", words: text.tokenMayNot(what) });
    } catch (e) {
      setAnswer({ state: "unknown", words: e instanceof Error ? e.message : String(e) });
    }
  };
  return (
    <>
    <form class="ask" onSubmit={submit}>
      <span>{text.mayToken}</span>
      <select name="level" aria-label={text.level}>
        {levels.map((l) => (
          <option key={l}>{l}</option>
        ))}
      </select>
      <select name="resource" aria-label={text.resource}>
        {resources.map((r) => (
          <option key={r}>{r}</option>
        ))}
      </select>
      <input name="name" data-filter aria-label={text.name} placeholder={text.name} />
      <button type="submit">{text.askIt}</button>
      <button type="submit" name="who">
        {text.whoMay}
      </button>
      {answer && (
        <span role="status">
          <Mark state={answer.state}>{answer.words}</Mark>
        </span>
      )}
    </form>
    {asked !== "" && <Holders key={asked} query={asked} />}
    </>
  );
}

const day = 86_400_000; // ms
const longLog = 64 << 20; // bytes: a log that takes a while to read at a start

/** judge tells what speaks for and against replacing the release of the servers now, as far as these know it. */
function judge(data: ClusterData): [State, string][] {
  const out: [State, string][] = [];
  const releases = new Map<string, number>();
  for (const m of data.members ?? []) {
    if (m.Status === 1) releases.set((m.Tags["build"] ?? "").split(":")[0] ?? "", (releases.get((m.Tags["build"] ?? "").split(":")[0] ?? "") ?? 0) + 1);
  }
  const told = [...releases].sort(([a], [b]) => a.localeCompare(b)).map(([v, n]) => `${v} (${count(n)})`).join(", ");
  if (releases.size > 0) out.push(releases.size === 1 ? ["passing", text.oneRelease(told)] : ["warning", text.manyReleases(told)]);
  const servers = data.autopilot?.Servers ?? [];
  const ill = servers.filter((s) => !s.Healthy).map((s) => s.Name);
  if (servers.length > 0) {
    out.push(ill.length === 0 ? ["passing", text.serversWell(count(servers.length))] : ["critical", text.serversIll(ill.join(", "))]);
    const spare = data.autopilot?.FailureTolerance ?? 0;
    out.push(spare > 0 ? ["passing", text.mayGo] : ["warning", text.mayNotGo]);
  }
  for (const g of data.groups ?? []) {
    if (g.leader === "") out.push(["critical", text.groupLeaderless(g.name)]);
    else if (g.logBytes < longLog) continue;
    else if (!g.snapshot) out.push(["warning", text.noSnapshotOf(g.name)]);
    else if (g.snapshot.at && now.value - g.snapshot.at > day) out.push(["warning", text.oldSnapshot(g.name, ago(g.snapshot.at))]);
  }
  return out;
}

/** Upgrade shows what judge says, and the command that asks the new release. */
function Upgrade(props: { of: ClusterData }) {
  const all = judge(props.of);
  if (all.length === 0) return null;
  return (
    <>
      <h2>{text.upgrade}</h2>
      <ul>
        {all.map(([state, words]) => (
          <li key={words}>
            <Mark state={state}>{words}</Mark>
          </li>
        ))}
      </ul>
      <p class="words">
        {text.askNewRelease} <code>{upgradeCheck}</code> <Copy what={upgradeCheck} label={text.copyCommand} />
      </p>
    </>
  );
}

const upgradeCheck = "corbel upgrade-check --http-addr $CORBEL_HTTP_ADDR";

/** Space says how much of a disk is free; a Raft log needs some at any time. */
function Space(props: { size: number; available: number }) {
  const part = props.available / Math.max(1, props.size);
  return <Mark state={part < 0.05 ? "critical" : part < 0.15 ? "warning" : "passing"}>{text.free(bytes(props.available), bytes(props.size))}</Mark>;
}

/** Keys shows who has which gossip key: while a rotation goes on, not all do. */
function Keys() {
  const data = useLive<{ keys?: Key[]; plain: boolean; problems: Record<string, string> }>("keyring").value.value;
  if (!data) return null;
  return (
    <>
      <h2>{text.keys}</h2>
      <Problems of={data.problems} />
      <Grid
        label={text.keys}
        rows={data.keys ?? []}
        id={(k) => `${k.pool} ${k.name}`}
        empty={data.plain ? text.plainGossip : text.needsKeyring}
        columns={[
          { name: text.key, cell: (k) => <Mark state={k.members < k.of ? "warning" : "passing"}>{k.name}</Mark> },
          { name: text.pool, cell: (k) => k.pool },
          { name: text.keyHeld, cell: (k) => `${count(k.members)} / ${count(k.of)}`, number: true },
          { name: text.keyUsed, cell: (k) => `${count(k.primary)} / ${count(k.of)}`, number: true },
        ]}
      />
    </>
  );
}

export function Cluster() {
  const live = useLive<ClusterData>("cluster");
  const data = live.value.value;
  return (
    <>
      <Title of={live} words={data?.autopilot && text.tolerates(data.autopilot.FailureTolerance)}>
        {text.cluster}
      </Title>
      <Playground />
      <Problems of={data?.problems} />
      {data && (
        <>
          <h2>{text.groups}</h2>
          <Grid
            label={text.groups}
            rows={data.groups ?? []}
            id={(g) => g.name}
            empty={text.needsOperator}
            columns={[
              { name: text.group, cell: (g) => <Mark state={g.leader === "" ? "critical" : "passing"}>{g.name}</Mark> },
              { name: text.leaderHead, cell: (g) => (g.leader === "" ? text.nobody : g.leader) },
              { name: text.lag, cell: (g) => span(g.lagMillis), number: true },
              { name: text.term, cell: (g) => count(g.term), number: true },
              { name: text.applied, cell: (g) => count(g.applied), number: true },
              { name: text.fsyncs, cell: (g) => count(g.fsyncs), number: true },
              { name: text.log, cell: (g) => (g.logBytes ? bytes(g.logBytes) : ""), number: true },
              { name: text.snapshot, cell: (g) => (g.snapshot ? text.snapshotOf(bytes(g.snapshot.bytes), g.snapshot.at ? ago(g.snapshot.at) : "") : text.noSnapshot) },
            ]}
          />
          {data.groups && (
            <>
              <h2>{text.disk(data.server ?? "")}</h2>
              {data.disk ? (
                <p class="words">
                  {data.disk.path}: <Space {...data.disk} />
                </p>
              ) : (
                <p class="empty">{text.noDisk}</p>
              )}
            </>
          )}
          <Keys />
          <h2>{text.servers}</h2>
          <Grid
            label={text.servers}
            rows={data.autopilot?.Servers ?? []}
            id={(s) => s.ID}
            empty={text.needsOperator}
            columns={[
              { name: text.serverHead, cell: (s) => <Mark state={s.Healthy ? "passing" : "critical"}>{s.Name}</Mark> },
              { name: text.address, cell: (s) => s.Address },
              { name: text.role, cell: (s) => (s.Leader ? text.leader : s.Voter ? text.voter : text.nonvoter) },
              { name: text.version, cell: (s) => s.Version },
              { name: text.heard, cell: (s) => s.LastContact },
            ]}
          />
          <Upgrade of={data} />
          <h2>{text.members}</h2>
          <Grid
            label={text.members}
            rows={data.members ?? []}
            id={(m) => m.Name}
            empty={text.noMembers}
            columns={[
              {
                name: text.member,
                cell: (m) => <Mark state={statuses[m.Status]?.[0] ?? "unknown"}>{m.Name}</Mark>,
              },
              { name: text.state, cell: (m) => statuses[m.Status]?.[1] ?? "" },
              { name: text.address, cell: (m) => m.Addr },
              { name: text.role, cell: (m) => (m.Tags["role"] === "consul" ? text.server : text.agent) },
              { name: text.version, cell: (m) => m.Tags["build"] ?? "" },
            ]}
          />
          <h2>{text.certificates}</h2>
          <Grid
            label={text.certificates}
            rows={[
              ...(data.ends ? [{ name: text.ownCertificate, at: data.ends }] : []),
              ...(data.roots?.Roots ?? []).map((r) => ({ name: r.Active ? `${r.Name}, ${text.active}` : r.Name, at: Date.parse(r.NotAfter) })),
            ]}
            id={(r) => r.name}
            empty={text.noCertificates}
            columns={[
              { name: text.certificate, cell: (r) => r.name },
              { name: text.ends, cell: (r) => <Ends at={r.at} /> },
            ]}
          />
        </>
      )}
    </>
  );
}
