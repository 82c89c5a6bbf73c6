import { useEffect, useRef, useState } from "preact/hooks";
import { Grid } from "../lib/grid";
import { Filter, Mark, Share, type State, Title } from "../lib/parts";
import { me } from "../lib/me";
import { count } from "../lib/time";
import { go, href, param, setParam } from "../lib/route";
import { Table } from "../lib/table";
import { useLive, usePages } from "../lib/use";
import { text } from "../text";

interface Node {
  name: string;
  address: string;
  state: State;
  instances: number;
  failing: number;
  output?: string;
  meta?: Record<string, string>;
}

/** Group is many nodes: a letter each, the worst first, and the names of those that stand at the front. */
interface Group {
  name: string;
  states: string;
  names: string[];
}

interface NodeMap {
  groups: Group[];
  keys: string[];
}

interface Room {
  datacenter: string;
  class: string;
  nodes: number;
  draining: number;
  down: number;
  allocs: number;
  cpu: number;
  cpuUsed: number;
  memory: number;
  memoryUsed: number;
}

interface Rooms {
  room?: { groups: Room[]; hottest: (Room & { name: string; id: string })[] };
}

const cell = 17; // px of a square and the gap behind it
const side = 14;

const fills: Record<string, string> = { p: "--passing-fill", w: "--warning-fill", c: "--critical-fill" };

/** Squares draws a group on a canvas: ten thousand boxes of the document would be ten thousand too many. */
function Squares(props: { of: Group; label: string }) {
  const { states, names } = props.of;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [at, point] = useState(-1);
  useEffect(() => {
    const box = canvas.current?.parentElement;
    if (!box) return;
    const watch = new ResizeObserver(() => setWidth(box.clientWidth));
    watch.observe(box);
    return () => watch.disconnect();
  }, []);
  const across = Math.max(1, Math.floor((width + cell - side) / cell));
  const rows = Math.ceil(states.length / across);
  const [scheme, setScheme] = useState(0);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const turned = () => setScheme((n) => n + 1);
    dark.addEventListener("change", turned);
    return () => dark.removeEventListener("change", turned);
  }, []);
  useEffect(() => {
    const c = canvas.current;
    const pen = c?.getContext("2d");
    if (!c || !pen || width === 0) return;
    const dots = devicePixelRatio || 1;
    c.width = across * cell * dots;
    c.height = rows * cell * dots;
    pen.scale(dots, dots);
    const probe = document.createElement("span"); // resolves light-dark() to the colour of now
    c.parentElement?.append(probe);
    for (const letter of ["p", "w", "c"]) {
      probe.style.color = `var(${fills[letter]})`;
      pen.fillStyle = getComputedStyle(probe).color;
      pen.beginPath();
      for (let i = states.indexOf(letter); i >= 0; i = states.indexOf(letter, i + 1)) {
        const [x, y] = [(i % across) * cell, Math.floor(i / across) * cell];
        if (letter === "p") pen.roundRect(x, y, side, side, 3);
        else if (letter === "c") pen.rect(x, y, side, side);
        else {
          pen.moveTo(x + side / 2, y);
          pen.lineTo(x + side, y + side);
          pen.lineTo(x, y + side);
          pen.closePath();
        }
      }
      pen.fill();
    }
    probe.remove();
  }, [states, width, across, rows, scheme]);
  const find = (e: MouseEvent): number => {
    const i = Math.floor(e.offsetY / cell) * across + Math.floor(e.offsetX / cell);
    return i < states.length ? i : -1;
  };
  const name = at >= 0 ? names[at] : undefined;
  return (
    <div class="squares">
      <canvas
        ref={canvas}
        role="img"
        aria-label={props.label}
        title={name ?? ""}
        style={{ width: `${across * cell}px`, height: `${rows * cell}px` }}
        onMouseMove={(e) => point(find(e))}
        onMouseLeave={() => point(-1)}
        onClick={(e) => {
          const chosen = names[find(e)];
          if (chosen !== undefined) go(`/nodes?q=${encodeURIComponent(`name:"${chosen}"`)}`);
        }}
      />
    </div>
  );
}

/** tell counts the states of a group in words. */
function tell(g: Group): string {
  const of = (letter: string) => g.states.split(letter).length - 1;
  const parts = [text.nodesOf(count(g.states.length))];
  if (of("w") > 0) parts.push(text.warningOf(count(of("w"))));
  if (of("c") > 0) parts.push(text.criticalOf(count(of("c"))));
  return parts.join(", ");
}

/** Work is what jobs have and may have of the nodes, where the plane is here. */
function Work() {
  const data = useLive<Rooms>("room").value.value?.room;
  if (!data || data.groups.length === 0) return null;
  return (
    <>
      <h2>{text.room}</h2>
      <Grid
        label={text.room}
        rows={data.groups}
        id={(r) => `${r.datacenter} ${r.class}`}
        empty=""
        columns={[
          { name: text.datacenter, cell: (r) => r.datacenter },
          { name: text.class_, cell: (r) => r.class || "-" },
          { name: text.nodes, cell: (r) => count(r.nodes), number: true },
          { name: text.drainingHead, cell: (r) => (r.draining > 0 ? <Mark state="warning">{count(r.draining)}</Mark> : "0"), number: true },
          { name: text.downHead, cell: (r) => (r.down > 0 ? <Mark state="critical">{count(r.down)}</Mark> : "0"), number: true },
          { name: text.allocations, cell: (r) => count(r.allocs), number: true },
          { name: text.cpuUsed, cell: (r) => <Share used={r.cpuUsed} of={r.cpu} unit="MHz" /> },
          { name: text.memoryUsed, cell: (r) => <Share used={r.memoryUsed} of={r.memory} unit="MB" /> },
        ]}
      />
      {data.hottest.length > 0 && (
        <>
          <h2>{text.hottest}</h2>
          <Grid
            label={text.hottest}
            rows={data.hottest}
            id={(r) => r.id}
            empty=""
            columns={[
              { name: text.node, cell: (r) => <a href={href(`/jobs?node=${r.id}`)}>{r.name}</a> },
              { name: text.class_, cell: (r) => r.class || "-" },
              { name: text.allocations, cell: (r) => count(r.allocs), number: true },
              { name: text.cpuUsed, cell: (r) => <Share used={r.cpuUsed} of={r.cpu} unit="MHz" /> },
              { name: text.memoryUsed, cell: (r) => <Share used={r.memoryUsed} of={r.memory} unit="MB" /> },
            ]}
          />
        </>
      )}
    </>
  );
}

/** Nodes is a map of squares, grouped by a key of their metadata where the address names one, then the list. */
export function Nodes() {
  const q = param("q");
  const by = param("by");
  const { live, page, onMiddle } = usePages<Node>(`nodes?q=${encodeURIComponent(q)}`);
  const map = useLive<NodeMap>(`nodemap?q=${encodeURIComponent(q)}&by=${encodeURIComponent(by)}`).value.value;
  return (
    <>
      <Title of={live}>{text.nodes}</Title>
      <div class="bar">
        <Filter hint={text.nodesHint} problem={page?.problem} />
        <label>
          {text.groupBy}{" "}
          <select value={by} onChange={(e) => setParam("by", e.currentTarget.value)}>
            <option value="">{text.nothing}</option>
            {(map?.keys ?? []).map((k) => (
              <option key={k} value={k}>
                {k}
              </option>
            ))}
          </select>
        </label>
      </div>
      {(map?.groups ?? []).map((g) => (
        <section key={g.name} aria-label={g.name === "" ? text.nodes : g.name}>
          {by !== "" && (
            <h2>
              {g.name === "" ? text.without(by) : `${by} ${g.name}`}: {tell(g)}
            </h2>
          )}
          <Squares of={g} label={`${by !== "" && g.name !== "" ? `${by} ${g.name}: ` : ""}${tell(g)}`} />
        </section>
      ))}
      {page && (
        <Table
          label={text.nodes}
          page={page}
          onMiddle={onMiddle}
          id={(n) => n.name}
          href={(n) => `/instances?q=${encodeURIComponent(`node:"${n.name}"`)}`}
          columns={[
            {
              name: text.node,
              cell: (n) => (
                <Mark state={n.state}>
                  <a href={href(`/instances?q=${encodeURIComponent(`node:"${n.name}"`)}`)}>{n.name}</a>
                </Mark>
              ),
            },
            { name: text.address, cell: (n) => n.address },
            { name: text.instances, cell: (n) => count(n.instances), number: true },
            { name: text.failing, cell: (n) => count(n.failing), number: true },
            { name: text.output, cell: (n) => n.output ?? "", wide: true },
            { name: text.attributes, cell: (n) => Object.entries(n.meta ?? {}).sort().map(([k, v]) => `${k}=${v}`).join(" "), wide: true },
          ]}
          empty={page.all === 0 ? text.noNodes : text.noMatch}
        />
      )}
      {me.value?.planes?.["jobs"] === true && <Work />}
    </>
  );
}
