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
  /** Destination is how it is named: where it is in another datacenter, that is said; To is its ID; Service is called. */
  Destination: string;
  To: string;
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

/** Place is a service on the map, or a group of those whose IDs begin with a prefix. */
interface Place {
  id: string;
  name?: string;
  dc?: string;
  prefix?: string;
  services?: number;
  /** within is how many calls stay in the group. */
  within?: number;
  x: number;
  y: number;
}

/** Drawn is the map, as the server lays it out: columns and rows, and lines between the places of these indexes. */
interface Drawn {
  columns: number;
  rows: number;
  services: number;
  places: Place[];
  lines: { from: number; to: number; calls: number; denied?: number }[];
}

interface MeshData {
  /** topology is what is looked at; more are the calls that are not listed. */
  topology?: { calls: WireEdge[]; more: number; map: Drawn };
  intentions?: Intention[];
  /** healths are how many instances of each place on the map pass. */
  healths?: Record<string, { instances: number; passing: number; warning: number; critical: number }>;
  roots?: { Roots: { ID: string; Name: string; NotAfter: string; Active: boolean }[] | null };
  problems?: Record<string, string>;
}

/** WireEdge is an edge as the catalog tells of it. */
type WireEdge = Omit<Edge, "Service" | "To"> & { Datacenter?: string };

/** placed gives a destination of another datacenter a name of its own. */
const placed = (e: WireEdge): Edge => ({
  ...e,
  Service: e.Destination,
  To: e.Datacenter ? `${e.Destination}@${e.Datacenter}` : e.Destination,
  Destination: e.Datacenter ? text.inDatacenter(e.Destination, e.Datacenter) : e.Destination,
});

const most = 60; // proxies that are listed
const roomy = 40; // places that a map has at most which is drawn as wide as the page

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

/** named is what stands on a place: a group tells how many services it has. */
function named(p: Place): string {
  if (p.services) return text.groupOf(p.prefix ?? "", count(p.services));
  return p.dc ? text.inDatacenter(p.name ?? "", p.dc) : (p.name ?? "");
}

/** cut shortens a name to the letters that have room; of a group the number stays. */
function cut(p: Place, room: number): string {
  const whole = named(p);
  if (whole.length <= room) return whole;
  const rest = p.services ? text.groupOf("", count(p.services)) : "";
  return `${whole.slice(0, Math.max(1, room - rest.length - 1))}…${rest}`;
}

/** leavesOf are the certificates of a place, by their state. */
function leavesOf(p: Place, leaves: States): Record<string, number> | undefined {
  if (!p.services) return p.dc ? undefined : leaves[p.name ?? ""];
  if (!p.prefix) return undefined;
  const sum: Record<string, number> = {};
  for (const [name, states] of Object.entries(leaves)) {
    if (!name.startsWith(p.prefix)) continue;
    for (const [state, n] of Object.entries(states)) sum[state] = (sum[state] ?? 0) + n;
  }
  return sum;
}

/** inside leads to a service, or to what is in a group. */
const inside = (p: Place): string => `/topology?${p.services ? `p=${encodeURIComponent(p.prefix ?? "")}` : `s=${encodeURIComponent(p.id)}`}`;

function Drawing(props: { of: Drawn; focus: string; healths: Healths; leaves: States }) {
  const { places, lines, columns, rows } = props.of;
  const at = (p: Place): [number, number] => [16 + p.x * box.x, 16 + p.y * box.y];
  const bow = columns > 2 ? Math.min(rows, 3) * 30 : 0;
  const width = 32 + (columns - 1) * box.x + box.width;
  const height = 32 + (rows - 1) * box.y + box.height + bow / 2;
  const whole = places.length > roomy;
  return (
    <div class="sheet" role="region" aria-label={text.topologyMap} tabIndex={0}>
      <svg class={whole ? "map whole" : "map"} viewBox={`0 0 ${width} ${height}`} width={whole ? width : undefined} height={whole ? height : Math.min(height, 460)} role="group">
        {lines.map((l) => {
          const [from, to] = [places[l.from], places[l.to]];
          if (!from || !to) return null;
          const [x1, y1] = at(from);
          const [c, y2] = at(to);
          const [a, b, d] = [x1 + box.width, y1 + box.height / 2, y2 + box.height / 2];
          const far = Math.max(0, to.x - from.x - 1); // columns between the two: the line bends around their boxes
          const bend = far > 0 ? bow + 16 * far : 0;
          const reach = 60 + 40 * far;
          const denied = l.denied ?? 0;
          return (
            <path
              key={`${from.id} ${to.id}`}
              class={denied === l.calls ? "deny" : denied > 0 ? "part" : "allow"}
              style={l.calls > 1 ? { strokeWidth: `${Math.min(5, 1.5 + Math.log2(l.calls) / 2)}px` } : undefined}
              d={`M${a} ${b} C${a + reach} ${b + bend} ${c - reach} ${d + bend} ${c} ${d}`}
            >
              <title>{text.callsOf(named(from), named(to), count(l.calls), count(denied))}</title>
            </path>
          );
        })}
        {places.map((p) => {
          const [x, y] = at(p);
          const health = shapeOf(props.healths[p.id]);
          const [leaf, leafWords] = told(leavesOf(p, props.leaves), leafOrder, leafStates);
          const ill = leaf === "warning" || leaf === "critical";
          const shapes = (
            <g class={p.id === props.focus ? "focus" : ""}>
              {p.services && <rect x={x + 4} y={y + 4} width={box.width} height={box.height} rx={5} />}
              <rect x={x} y={y} width={box.width} height={box.height} rx={5} />
              <title>{`${named(p)}: ${health[0]}${p.within ? `; ${text.withinOf(count(p.within))}` : ""}${ill ? `; ${text.leavesOf(leafWords)}` : ""}`}</title>
              <text x={x + 9} y={y + 17} class={health[0]}>
                {health[1]}
              </text>
              <text x={x + 25} y={y + 17}>
                {cut(p, letters(ill))}
              </text>
              {ill && (
                <text x={x + box.width - 18} y={y + 17} class={leaf}>
                  {leaf === "critical" ? "■" : "▲"}
                </text>
              )}
            </g>
          );
          return p.services && !p.prefix ? (
            <g key={p.id}>{shapes}</g> // they have nothing in common that would lead to them
          ) : (
            <a key={p.id} href={href(inside(p))}>
              {shapes}
            </a>
          );
        })}
      </svg>
    </div>
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

/**
 * Topology shows who calls whom by the proxies' upstreams, and which intention allows it or not: all of it, around a
 * service, or around those whose names begin with a prefix.
 */
export function Topology() {
  const focus = param("s");
  const prefix = param("p");
  const live = useLive<MeshData>(`mesh?service=${encodeURIComponent(focus)}&prefix=${encodeURIComponent(prefix)}`);
  const data = live.value.value;
  const map = data?.topology?.map;
  const edges = (data?.topology?.calls ?? []).map(placed);
  const more = data?.topology?.more ?? 0;
  const grouped = map?.places.some((p) => p.services) ?? false;
  const everywhere = useLive<Standing>("standing?service=").value.value; // of who may see it: for the map and its callers
  const standing = useLive<Standing>(`standing?service=${encodeURIComponent(focus)}`).value.value;
  const drawn = new Set(edges.flatMap((e) => [e.Source, e.Destination]));
  // Where not all calls are listed, nobody knows here who is in the mesh: better one proxy too many than none that refuses.
  const ofMesh = (p: { Service: string }) => focus !== "" || more > 0 || drawn.has(p.Service);
  const refusing = (standing?.List ?? []).filter((p) => ofMesh(p) && (focus !== "" || p.State !== "synced")).slice(0, most);
  const roots = data?.roots?.Roots ?? [];
  const illLeaves = standing && { ...standing, Certs: standing.Certs.filter((l) => l.State !== "valid"), More: 0 };
  return (
    <>
      <Title of={live} words={focus + prefix !== "" && <a href={href("/topology")}>{text.allServices}</a>}>
        {focus !== "" ? text.around(focus) : prefix !== "" ? text.beginWith(prefix) : text.topology}
      </Title>
      <May />
      <Problems of={data?.problems} />
      <Problems of={standing?.Problems} />
      {standing && standing.Silent.length > 0 && (
        <p class="problem">{text.silentHosts(count(standing.Silent.length), standing.Silent.slice(0, 5).map((s) => `${s.Node} (${s.Error})`).join(", "))}</p>
      )}
      {map && grouped && <p class="words">{text.groupedWords(count(map.services))}</p>}
      {map && map.places.length > 0 && <Drawing of={map} focus={focus} healths={data?.healths ?? {}} leaves={{ ...everywhere?.Leaves, ...standing?.Leaves }} />}
      {data && (
        <Grid
          label={text.topology}
          rows={edges}
          id={(e) => `${e.Source} ${e.To}`}
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
                <a href={href(`/topology?s=${encodeURIComponent(e.To)}`)}>{e.Destination}</a>
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
      {more > 0 && <p class="words">{text.moreCalls(count(more))}</p>}
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
