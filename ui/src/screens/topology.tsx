import { useState } from "preact/hooks";
import { asking, as } from "../lib/act";
import { get } from "../lib/api";
import { Grid } from "../lib/grid";
import { Ends, Mark, Problems, type State, Title } from "../lib/parts";
import { href, param } from "../lib/route";
import { count, now, span } from "../lib/time";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Edge {
  Source: string;
  /** Destination is the place that is drawn: where it is in another datacenter, its name says so; Service is called. */
  Destination: string;
  Service: string;
  Proxies: number;
  Allowed: boolean;
  PerRequest?: boolean;
  Reason: string;
}

interface Intention {
  SourceName: string;
  DestinationName: string;
  Action: string;
  Precedence: number;
}

/** Proxy is one as its host sees it. */
interface Proxy {
  Node: string;
  ID: string;
  Service: string;
  State: string;
  Pending: number;
  Resources: number;
  Refusal?: { Words: string };
}

/** Leaf is the certificate by which a service proves on a host who it is. */
interface Leaf {
  Node: string;
  Service: string;
  SerialNumber: string;
  RootID: string;
  State: string;
  ValidBefore: string;
  Error?: string;
}

/** States are how many of something are in each state, by service. */
type States = Record<string, Record<string, number>>;

/** Standing is how the proxies and certificates of a service are, or of all. */
interface Standing {
  Proxies: States;
  List: Proxy[];
  /** Partly tells that the proxies are those of this server's host alone. */
  Partly: boolean;
  Leaves: States;
  Certs: Leaf[];
  More: number;
  Silent: { Node: string; Error: string }[];
  Problems: Record<string, string>;
}

interface MeshData {
  topology?: { Services: Record<string, number>; Edges: WireEdge[] };
  intentions?: Intention[];
  /** healths are how many instances of each service that calls or is called pass. */
  healths?: Record<string, { instances: number; passing: number; warning: number; critical: number }>;
  roots?: { Roots: { ID: string; Name: string; NotAfter: string; Active: boolean }[] | null };
  problems?: Record<string, string>;
}

/** WireEdge is an edge as the catalog tells of it. */
type WireEdge = Omit<Edge, "Service"> & { Datacenter?: string };

/** placed gives a destination of another datacenter a place of its own. */
const placed = (e: WireEdge): Edge => ({ ...e, Service: e.Destination, Destination: e.Datacenter ? text.inDatacenter(e.Destination, e.Datacenter) : e.Destination });

const hops = 2;
const most = 60; // edges that are drawn

/** near are the edges within a few hops of a service, in both directions. */
function near(edges: Edge[], service: string): Edge[] {
  let seen = new Set([service]);
  let found: Edge[] = [];
  for (let i = 0; i < hops; i++) {
    found = edges.filter((e) => seen.has(e.Source) || seen.has(e.Destination));
    seen = new Set([...seen, ...found.flatMap((e) => [e.Source, e.Destination])]);
  }
  return found;
}

/** layers puts each service one column behind the farthest of those that call it. */
function layers(edges: Edge[]): string[][] {
  const depth = new Map<string, number>();
  for (const e of edges) for (const name of [e.Source, e.Destination]) depth.set(name, 0);
  for (let i = 0; i < depth.size; i++) {
    let moved = false;
    for (const e of edges) {
      const least = (depth.get(e.Source) ?? 0) + 1;
      if (e.Source !== e.Destination && (depth.get(e.Destination) ?? 0) < least && least < depth.size) {
        depth.set(e.Destination, least);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const out: string[][] = [];
  for (const [name, d] of [...depth].sort()) (out[d] ??= []).push(name);
  return out.filter((l) => l);
}

/** letters of a name have room in a box, beside a mark of its certificates or without one. */
const letters = (marked: boolean): number => (marked ? 13 : 15);

const box = { width: 132, height: 26, x: 210, y: 42 };

type Healths = NonNullable<MeshData["healths"]>;

/** shapeOf is how a service is: a shape and a word beside its name, never colour alone. */
function shapeOf(h: Healths[string] | undefined): [State, string] {
  if (!h || h.instances === 0) return ["unknown", "○"];
  return h.critical > 0 ? ["critical", "■"] : h.warning > 0 ? ["warning", "▲"] : ["passing", "●"];
}

const proxyStates: Record<string, State> = { synced: "passing", pending: "warning", waiting: "warning", refused: "critical" };

const proxyOrder = ["refused", "disconnected", "waiting", "pending", "synced"];

/** told are the states of a service's proxies or certificates, the worst first: "1 refused, 3 synced". */
function told(states: Record<string, number> | undefined, order: string[], marks: Record<string, State>): [State, string] {
  const all = Object.entries(states ?? {}).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  const [worst] = all[0] ?? ["none"];
  return [marks[worst] ?? "unknown", all.map(([name, n]) => `${count(n)} ${name}`).join(", ") || "-"];
}

const leafStates: Record<string, State> = { valid: "passing", ending: "warning", "old root": "warning", stranger: "critical", ended: "critical", missing: "critical" };
const leafOrder = ["missing", "ended", "stranger", "old root", "ending", "valid"];

/** short is enough of a serial number or of a root's id to tell two apart. */
const short = (id: string): string => id.split(":").slice(0, 4).join(":");

type Roots = NonNullable<NonNullable<MeshData["roots"]>["Roots"]>;

/** Leaves are the certificates of services: who issued them, until when they are good, and what is wrong with them. */
function Leaves(props: { of: Standing; roots: Roots }) {
  const { of, roots } = props;
  const issuer = (id: string) => roots.find((r) => r.ID === id)?.Name;
  return (
    <>
      <h2>{text.leaves}</h2>
      <Grid
        label={text.leaves}
        rows={of.Certs}
        id={(l) => `${l.Node} ${l.Service}`}
        empty={text.noLeaves}
        columns={[
          { name: text.service, cell: (l) => <Mark state={leafStates[l.State] ?? "unknown"}>{l.Service || text.meshGateways}</Mark> },
          { name: text.node, cell: (l) => l.Node },
          { name: text.state, cell: (l) => text.leafState[l.State] ?? l.State },
          { name: text.serial, cell: (l) => <code title={l.SerialNumber}>{short(l.SerialNumber)}</code> },
          { name: text.issuedBy, cell: (l) => <span title={l.RootID}>{`${issuer(l.RootID) ?? text.unknownRoot} ${short(l.RootID)}`}</span> },
          { name: text.ends, cell: (l) => (l.SerialNumber === "" ? "" : left(Date.parse(l.ValidBefore))) },
          { name: text.output, cell: (l) => l.Error ?? "" },
        ]}
      />
      {of.More > 0 && <p class="words">{text.moreLeaves(count(of.More))}</p>}
    </>
  );
}

/** left is how long it is until a time. */
const left = (at: number): string => (at < now.value ? text.ended : text.within(span(at - now.value)));

function Drawing(props: { edges: Edge[]; focus: string; healths: Healths; leaves: States }) {
  const columns = layers(props.edges);
  const rows = Math.max(...columns.map((c) => c.length));
  const at = new Map<string, [number, number]>();
  columns.forEach((c, i) =>
    c.forEach((name, j) => at.set(name, [16 + i * box.x, 16 + (j + (rows - c.length) / 2) * box.y])),
  );
  const width = 32 + (columns.length - 1) * box.x + box.width;
  const bow = columns.length > 2 ? rows * 30 : 0;
  const height = 32 + (rows - 1) * box.y + box.height + bow / 2;
  return (
    <svg class="map" viewBox={`0 0 ${width} ${height}`} height={Math.min(height, 460)} role="group" aria-label={text.topologyMap}>
      {props.edges.map((e) => {
        const [x1, y1] = at.get(e.Source) ?? [0, 0];
        const [x2, y2] = at.get(e.Destination) ?? [0, 0];
        const [a, b] = [x1 + box.width, y1 + box.height / 2];
        const [c, d] = [x2, y2 + box.height / 2];
        const far = (x2 - x1) / box.x - 1; // columns between the two: the line bends around their boxes
        const bend = far > 0 ? bow + 16 * far : 0;
        return <path key={`${e.Source} ${e.Destination}`} class={e.Allowed ? "allow" : "deny"} d={`M${a} ${b} C${a + 60 + 40 * far} ${b + bend} ${c - 60 - 40 * far} ${d + bend} ${c} ${d}`} />;
      })}
      {[...at].map(([name, [x, y]]) => {
        const [leaf, leafWords] = told(props.leaves[name], leafOrder, leafStates);
        const ill = leaf === "warning" || leaf === "critical";
        return (
        <a key={name} href={href(`/topology?s=${encodeURIComponent(name)}`)}>
          <g class={name === props.focus ? "focus" : ""}>
            <rect x={x} y={y} width={box.width} height={box.height} rx={5} />
            <title>{`${name}: ${shapeOf(props.healths[name])[0]}${ill ? `; ${text.leavesOf(leafWords)}` : ""}`}</title>
            <text x={x + 9} y={y + 17} class={shapeOf(props.healths[name])[0]}>
              {shapeOf(props.healths[name])[1]}
            </text>
            <text x={x + 25} y={y + 17}>
              {name.length > letters(ill) ? `${name.slice(0, letters(ill) - 1)}…` : name}
            </text>
            {ill && (
              <text x={x + box.width - 18} y={y + 17} class={leaf}>
                {leaf === "critical" ? "■" : "▲"}
              </text>
            )}
          </g>
        </a>
        );
      })}
    </svg>
  );
}

function decide(source: string, destination: string, action: "allow" | "deny"): void {
  const query = `source=${encodeURIComponent(source)}&destination=${encodeURIComponent(destination)}`;
  asking.value = {
    title: action === "allow" ? text.allowTitle(source, destination) : text.denyTitle(source, destination),
    hits: <p>{action === "allow" ? text.allowHits : text.denyHits}</p>,
    write: { plane: "catalog", method: "PUT", path: `/v1/connect/intentions/exact?${query}`, body: { Action: action } },
    done: () => undefined,
  };
}

/** May answers whether one service may call another. */
function May() {
  const [answer, setAnswer] = useState<{ text: string; state: "passing" | "critical" | "unknown" }>();
  const [pair, setPair] = useState<[string, string]>();
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const data = new FormData(e.currentTarget as HTMLFormElement);
    const [from, to] = [String(data.get("from")), String(data.get("to"))];
    setPair([from, to]);
    try {
      const query = `source=${encodeURIComponent(from)}&destination=${encodeURIComponent(to)}`;
      const { Allowed } = await get<{ Allowed: boolean }>(as("catalog", `/v1/connect/intentions/check?${query}`));
      setAnswer({ text: Allowed ? text.may(from, to) : text.mayNot(from, to), state: Allowed ? "passing" : "critical" });
    } catch (e) {
      setAnswer({ text: e instanceof Error ? e.message : String(e), state: "unknown" });
    }
  };
  return (
    <form class="ask" onSubmit={submit}>
      <span>{text.mayQuestion}</span>
      <input name="from" data-filter aria-label={text.source} placeholder={text.source} required />
      <span>{text.call}</span>
      <input name="to" aria-label={text.destination} placeholder={text.destination} required />
      <button type="submit">{text.askIt}</button>
      {answer && (
        <span role="status">
          <Mark state={answer.state}>{answer.text}</Mark>
        </span>
      )}
      {pair && (
        <>
          <button type="button" onClick={() => decide(...pair, "allow")}>
            {text.allow}
          </button>
          <button type="button" onClick={() => decide(...pair, "deny")}>
            {text.deny}
          </button>
        </>
      )}
    </form>
  );
}

/** Topology shows who calls whom by the proxies' upstreams, and which intention allows it or not. */
export function Topology() {
  const live = useLive<MeshData>("mesh");
  const data = live.value.value;
  const focus = param("s");
  const all = (data?.topology?.Edges ?? []).map(placed);
  const edges = focus === "" ? all : near(all, focus);
  const everywhere = useLive<Standing>("standing?service=").value.value; // of who may see it: for the map and its callers
  const standing = useLive<Standing>(`standing?service=${encodeURIComponent(focus)}`).value.value;
  const drawn = new Set(edges.flatMap((e) => [e.Source, e.Destination]));
  const ofMesh = (p: { Service: string }) => focus !== "" || drawn.has(p.Service);
  const refusing = (standing?.List ?? []).filter((p) => ofMesh(p) && (focus !== "" || p.State !== "synced")).slice(0, most);
  const roots = data?.roots?.Roots ?? [];
  const illLeaves = standing && { ...standing, Certs: standing.Certs.filter((l) => l.State !== "valid"), More: 0 };
  return (
    <>
      <Title of={live} words={focus !== "" && <a href={href("/topology")}>{text.allServices}</a>}>
        {focus === "" ? text.topology : text.around(focus)}
      </Title>
      <May />
      <Problems of={data?.problems} />
      <Problems of={standing?.Problems} />
      {standing && standing.Silent.length > 0 && (
        <p class="problem">{text.silentHosts(count(standing.Silent.length), standing.Silent.slice(0, 5).map((s) => `${s.Node} (${s.Error})`).join(", "))}</p>
      )}
      {edges.length > 0 && edges.length <= most && <Drawing edges={edges} focus={focus} healths={data?.healths ?? {}} leaves={{ ...everywhere?.Leaves, ...standing?.Leaves }} />}
      {edges.length > most && <p class="empty">{text.chooseOne}</p>}
      {data && (
        <Grid
          label={text.topology}
          rows={edges}
          id={(e) => `${e.Source} ${e.Destination}`}
          empty={text.noMesh}
          columns={[
            {
              name: text.source,
              cell: (e) => (
                <a href={href(`/topology?s=${encodeURIComponent(e.Source)}`)}>{e.Source}</a>
              ),
            },
            {
              name: text.destination,
              cell: (e) => (
                <a href={href(`/topology?s=${encodeURIComponent(e.Destination)}`)}>{e.Destination}</a>
              ),
            },
            { name: text.state, cell: (e) => <Mark state={e.Allowed ? "passing" : "critical"}>{e.Allowed ? text.allowed : text.denied}</Mark> },
            { name: text.because, cell: (e) => e.Reason },
            {
              name: text.callerProxies,
              cell: (e) => {
                const [state, words] = told(standing?.Proxies[e.Source] ?? everywhere?.Proxies[e.Source], proxyOrder, proxyStates);
                return <Mark state={state}>{words}</Mark>;
              },
            },
            {
              name: text.change,
              cell: (e) => (
                <button type="button" onClick={() => decide(e.Source, e.Service, e.Allowed ? "deny" : "allow")}>
                  {e.Allowed ? text.deny : text.allow}
                </button>
              ),
            },
          ]}
        />
      )}
      {refusing.length > 0 && (
        <>
          <h2>{focus === "" ? text.refusing : text.proxies}</h2>
          {standing?.Partly && <p class="words">{text.partly}</p>}
          <Grid
            label={text.proxies}
            rows={refusing}
            id={(p) => `${p.Node}/${p.ID}`}
            empty=""
            columns={[
              { name: text.proxy, cell: (p) => <Mark state={proxyStates[p.State] ?? "unknown"}>{p.ID}</Mark> },
              { name: text.node, cell: (p) => p.Node },
              { name: text.state, cell: (p) => p.State },
              { name: text.notApplied, cell: (p) => `${count(p.Pending)} / ${count(p.Resources)}`, number: true },
              { name: text.output, cell: (p) => p.Refusal?.Words ?? "" },
            ]}
          />
        </>
      )}
      {standing && focus !== "" && <Leaves of={standing} roots={roots} />}
      {illLeaves && focus === "" && illLeaves.Certs.length > 0 && <Leaves of={illLeaves} roots={roots} />}
      {roots.length > 0 && (
        <>
          <h2>{text.rootsHead}</h2>
          <Grid
            label={text.rootsHead}
            rows={roots}
            id={(r) => r.ID}
            empty=""
            columns={[
              { name: text.certificate, cell: (r) => (r.Active ? `${r.Name}, ${text.active}` : r.Name) },
              { name: text.ends, cell: (r) => <Ends at={Date.parse(r.NotAfter)} /> },
            ]}
          />
        </>
      )}
      <h2>{text.intentions}</h2>
      {data && (
        <Grid
          label={text.intentions}
          rows={data.intentions ?? []}
          id={(i) => `${i.SourceName} ${i.DestinationName}`}
          empty={text.noIntentions}
          columns={[
            { name: text.source, cell: (i) => i.SourceName },
            { name: text.destination, cell: (i) => i.DestinationName },
            { name: text.state, cell: (i) => <Mark state={i.Action === "allow" ? "passing" : i.Action === "deny" ? "critical" : "unknown"}>{i.Action || text.perRequest}</Mark> },
            { name: text.precedence, cell: (i) => i.Precedence, number: true },
          ]}
        />
      )}
    </>
  );
}
