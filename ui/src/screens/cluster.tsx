import { useState } from "preact/hooks";
import { as } from "../lib/act";
import { send } from "../lib/api";
import { Grid } from "../lib/grid";
import { Ends, Mark, Problems, type State, Title } from "../lib/parts";
import { count, span } from "../lib/time";
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

/** Playground answers what the token of this session may do. */
function Playground() {
  const [answer, setAnswer] = useState<{ state: State; words: string }>();
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const data = new FormData(e.currentTarget as HTMLFormElement);
    const [Resource, Segment, Access] = [String(data.get("resource")), String(data.get("name")), String(data.get("level"))];
    const what = `${Access} ${Resource} ${Segment}`.trim();
    try {
      const [first] = await send<{ Allow: boolean }[]>("POST", as("catalog", "/v1/internal/acl/authorize"), [{ Resource, Segment, Access }]);
      setAnswer(first?.Allow ? { state: "passing", words: text.tokenMay(what) } : { state: "critical", words: text.tokenMayNot(what) });
    } catch (e) {
      setAnswer({ state: "unknown", words: e instanceof Error ? e.message : String(e) });
    }
  };
  return (
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
      {answer && (
        <span role="status">
          <Mark state={answer.state}>{answer.words}</Mark>
        </span>
      )}
    </form>
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
            ]}
          />
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
