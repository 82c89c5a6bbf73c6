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

/**
 * Group is many nodes: a letter each, the worst or fullest first, and the names of those that stand at the front. Of
 * jobs' room it tells what is used of all there is.
 */
interface Group {
  name: string;
  states: string;
  names: string[];
  used?: number;
  all?: number;
}

interface NodeMap {
  groups: Group[];
  keys: string[];
}

/** Shown is what the squares tell of: the nodes' health, or what jobs have of them. */
type Shown = "" | "cpu" | "memory";

const units: Record<Shown, string> = { "": "", cpu: "MHz", memory: "MB" };

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

type Colours = (name: string) => string;

/** coloursOf resolves variables of the style, light-dark() too, to the colours of now. */
function coloursOf<T>(box: Element, draw: (colour: Colours) => T): T {
  const probe = document.createElement("span");
  box.append(probe);
  try {
    return draw((name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    });
  } finally {
    probe.remove();
  }
}

const at = (i: number, across: number): [number, number] => [(i % across) * cell, Math.floor(i / across) * cell];

const fills: [string, string][] = [["p", "passing-fill"], ["w", "warning-fill"], ["c", "critical-fill"]];

/** drawHealth has a shape and a colour for each state. */
function drawHealth(pen: CanvasRenderingContext2D, states: string, across: number, colour: Colours): void {
  for (const [letter, fill] of fills) {
    pen.fillStyle = colour(fill);
    pen.beginPath();
    for (let i = states.indexOf(letter); i >= 0; i = states.indexOf(letter, i + 1)) {
      const [x, y] = at(i, across);
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
}

const steps = 20; // of fullness: a to t, capital letters for nodes that drain

/** drawRoom fills each square from below as far as jobs have the node; its letters are those of nodemap.Rooms. */
function drawRoom(pen: CanvasRenderingContext2D, states: string, across: number, colour: Colours): void {
  const [line, corner, critical] = [colour("soft"), colour("text"), colour("critical-fill")];
  const [warning, passing] = [colour("warning-fill"), colour("passing-fill")];
  const fill = (step: number) => (step >= steps - 1 ? critical : step >= 0.8 * steps ? warning : passing);
  for (let i = 0; i < states.length; i++) {
    const [x, y] = at(i, across);
    const letter = states.charAt(i);
    pen.strokeStyle = line;
    pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    if (letter === "-") continue;
    if (letter === "x") {
      pen.strokeStyle = critical;
      pen.beginPath();
      pen.moveTo(x + 3, y + 3);
      pen.lineTo(x + side - 3, y + side - 3);
      pen.moveTo(x + side - 3, y + 3);
      pen.lineTo(x + 3, y + side - 3);
      pen.stroke();
      continue;
    }
    const drains = letter < "a";
    const step = letter.toLowerCase().charCodeAt(0) - "a".charCodeAt(0);
    const high = Math.max(1, Math.round(((side - 2) * (step + 1)) / steps));
    pen.fillStyle = fill(step);
    pen.fillRect(x + 1, y + side - 1 - high, side - 2, high);
    if (drains) {
      pen.fillStyle = corner;
      pen.beginPath();
      pen.moveTo(x + side / 2, y);
      pen.lineTo(x + side, y);
      pen.lineTo(x + side, y + side / 2);
      pen.closePath();
      pen.fill();
    }
  }
}

/** Squares draws a group on a canvas: ten thousand boxes of the document would be ten thousand too many. */
function Squares(props: { of: Group; label: string; draw: typeof drawHealth }) {
  const { draw } = props;
  const { states, names } = props.of;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [pointed, point] = useState(-1);
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
    if (c.parentElement) coloursOf(c.parentElement, (colour) => draw(pen, states, across, colour));
  }, [states, width, across, rows, scheme, draw]);
  const find = (e: MouseEvent): number => {
    const i = Math.floor(e.offsetY / cell) * across + Math.floor(e.offsetX / cell);
    return i < states.length ? i : -1;
  };
  const name = pointed >= 0 ? names[pointed] : undefined;
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
          if (chosen !== undefined) go(`/nodes?q=${encodeURIComponent(`name:"${chosen}"`)}&show=${param("show")}`);
        }}
      />
    </div>
  );
}

/** tell says of a group in words what its squares show. */
function tell(g: Group, shown: Shown): string {
  const of = (letter: string) => g.states.split(letter).length - 1;
  const parts = [text.nodesOf(count(g.states.length))];
  if (shown !== "") {
    const all = g.all ?? 0;
    const drain = g.states.length - g.states.replace(/[A-T]/g, "").length;
    if (all > 0) parts.push(text.usedOf(`${Math.round((100 * (g.used ?? 0)) / all)} %`, count(all), units[shown]));
    if (drain > 0) parts.push(text.drainingOf(count(drain)));
    if (of("x") > 0) parts.push(text.downOf(count(of("x"))));
    if (of("-") > 0) parts.push(text.joblessOf(count(of("-"))));
    return parts.join(", ");
  }
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

/**
 * Nodes is a map of squares, of their health or of what jobs have of them, grouped by a key of their metadata where the
 * address names one, then the list.
 */
export function Nodes() {
  const q = param("q");
  const by = param("by");
  const jobs = me.value?.planes?.["jobs"] === true;
  const wanted = param("show");
  const shown: Shown = jobs && (wanted === "cpu" || wanted === "memory") ? wanted : "";
  const { live, page, onMiddle } = usePages<Node>(`nodes?q=${encodeURIComponent(q)}`);
  const squares = useLive<NodeMap>(`${shown === "" ? "nodemap?" : `roommap?of=${shown}&`}q=${encodeURIComponent(q)}&by=${encodeURIComponent(by)}`);
  const map = squares.value.value;
  const named = by !== "" || shown !== "";
  const name = (g: Group): string => {
    if (by !== "") return g.name === "" ? text.without(by) : `${by} ${g.name}`;
    return g.name === "" && shown !== "" ? text.withoutJobs : g.name;
  };
  return (
    <>
      <Title of={live}>{text.nodes}</Title>
      <div class="bar">
        <Filter hint={text.nodesHint} problem={page?.problem} />
        <label>
          {text.groupBy}{" "}
          <select value={by} onChange={(e) => setParam("by", e.currentTarget.value)}>
            <option value="">{shown === "" ? text.nothing : text.byPlace}</option>
            {(map?.keys ?? []).map((k) => (
              <option key={k} value={k}>
                {k}
              </option>
            ))}
          </select>
        </label>
        {jobs && (
          <label>
            {text.squares}{" "}
            <select value={shown} onChange={(e) => setParam("show", e.currentTarget.value)}>
              <option value="">{text.health}</option>
              <option value="cpu">{text.cpuUsed}</option>
              <option value="memory">{text.memoryUsed}</option>
            </select>
          </label>
        )}
      </div>
      {squares.problem.value !== "" && map === undefined && <p class="problem">{squares.problem.value}</p>}
      {shown !== "" && <p class="words">{text.squaresOfRoom}</p>}
      {(map?.groups ?? []).map((g) => (
        <section key={g.name} aria-label={named ? name(g) : text.nodes}>
          {named && (
            <h2>
              {name(g)}: {tell(g, shown)}
            </h2>
          )}
          <Squares of={g} label={`${named ? `${name(g)}: ` : ""}${tell(g, shown)}`} draw={shown === "" ? drawHealth : drawRoom} />
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
      {jobs && <Work />}
    </>
  );
}
