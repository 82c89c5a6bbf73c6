import { useMemo, useState } from "preact/hooks";
import { Grid } from "../lib/grid";
import { Age, Mark, Problems, type State, Title } from "../lib/parts";
import { ago, clock, count, span } from "../lib/time";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Stage {
  type: string;
  stage: string;
  count: number;
  p50: number;
  p99: number;
  max: number;
  /** buckets are from, to, in µs, and how many. */
  buckets: [number, number, number][];
}

interface Proxy {
  Node: string;
  ID: string;
  Service: string;
  State: string;
  Pending: number;
  Resources: number;
  LagMillis?: number;
  Refused: number;
  Refusal?: { Words: string };
  Answered?: string;
}

interface PropagationData {
  stages?: Stage[];
  /** status is of all hosts, for operators; proxies are those of this server's host. */
  status?: { Hosts: number; Proxies: number; List: Proxy[] | null; Unattended: string[] | null };
  proxies?: { Proxies: number; List: Proxy[] | null };
  problems?: Record<string, string>;
}

const most = 200; // proxies that are listed

const states: Record<string, State> = { synced: "passing", pending: "warning", waiting: "warning", refused: "critical" };

/** Plot shows a distribution: a bar for each doubling of time, from 1 ms to a minute. */
function Plot(props: { of: Stage }) {
  const bars = new Array<number>(17).fill(0);
  for (const [low, , n] of props.of.buckets) {
    const at = Math.min(16, Math.max(0, Math.round(Math.log2(Math.max(low, 1) / 1000))));
    bars[at] = (bars[at] ?? 0) + n;
  }
  const top = Math.max(...bars, 1);
  return (
    <svg class="plot" viewBox="0 0 170 20" preserveAspectRatio="none" role="img" aria-label={text.distribution}>
      {bars.map((n, i) => {
        const h = n === 0 ? 0 : Math.max(1.5, (18 * n) / top);
        return <rect key={i} x={i * 10} y={20 - h} width={8} height={h} />;
      })}
    </svg>
  );
}

/** Change is a change as a proxy took it. */
interface Change {
  proxy: string;
  node: string;
  service: string;
  type: string;
  resource: string;
  changed: number;
  applied: number;
  took: number;
}

interface Column {
  at: number;
  /** cells are how many changes took how long, by doublings from 1 ms. */
  cells: number[];
}

const rows = 17; // doublings from 1 ms to a minute
const columns = 60;

/** past are the changes between two looks, since the page was opened; told are the totals of the last look. */
const past: Column[] = [];
let told: number[] | undefined;
/** ends are the bounds in ms of the buckets that a row had so far: they do not end where a doubling does. */
const ends: [number, number][] = [];

function look(stages: Stage[], at: number): void {
  const sums = new Array<number>(rows).fill(0);
  for (const s of stages) {
    if (s.stage !== "applied") continue; // from the write to the proxy's answer
    for (const [low, high, n] of s.buckets) {
      const row = Math.min(rows - 1, Math.max(0, Math.round(Math.log2(Math.max(low, 1) / 1000))));
      sums[row] = (sums[row] ?? 0) + n;
      const [from, to] = ends[row] ?? [Infinity, 0];
      ends[row] = [Math.min(from, low / 1000), Math.max(to, (high + 1) / 1000)]; // both are whole µs
    }
  }
  const before = told ?? sums;
  const cells = sums.map((n, i) => Math.max(0, n - (before[i] ?? 0)));
  told = sums;
  if (past.at(-1)?.at === at) return;
  past.push({ at, cells });
  if (past.length > columns) past.shift();
}

/** Cell is a part of the heat map: from and to are ms since 1970, row is how long changes took. */
interface Cell {
  from: number;
  to: number;
  row: number;
}

const low = (row: number): number => (row === 0 ? 0 : (ends[row]?.[0] ?? 0)); // ms
const high = (row: number): number => (row === rows - 1 ? 0 : (ends[row]?.[1] ?? 0)); // ms; 0 is no bound

/** cell is what was counted between two looks; what a proxy answered is counted a moment later. */
const cell = (x: number, row: number): Cell => ({ from: (past[x - 1]?.at ?? (past[x]?.at ?? 0) - 60_000) - 1000, to: past[x]?.at ?? 0, row });

/** Applied shows the changes that are behind a cell. */
function Applied(props: { of: Cell }) {
  const { from, to, row } = props.of;
  const live = useLive<{ rows: Change[]; more: number; unasked: number }>(`applied?from=${from}&to=${to}&low=${low(row)}&high=${high(row)}`);
  const data = live.value.value;
  return (
    <section aria-live="polite">
      <h2>{text.appliedAt(clock(to), text.about(span(2 ** row)))}</h2>
      <Age of={live} />
      {data && (
        <Grid
          label={text.heat}
          rows={data.rows}
          id={(c) => `${c.node} ${c.proxy} ${c.type} ${c.resource}`}
          empty={text.noApplied}
          columns={[
            { name: text.proxy, cell: (c) => c.proxy },
            { name: text.node, cell: (c) => c.node },
            { name: text.service, cell: (c) => c.service },
            { name: text.resource, cell: (c) => `${c.type} ${c.resource}` },
            { name: text.changedHead, cell: (c) => new Date(c.changed).toLocaleTimeString() },
            { name: text.applied, cell: (c) => new Date(c.applied).toLocaleTimeString() },
            { name: text.tookHead, cell: (c) => span(c.took), number: true },
          ]}
        />
      )}
      {data && data.more + data.unasked > 0 && <p class="words">{text.moreApplied(count(data.more), count(data.unasked))}</p>}
    </section>
  );
}

/**
 * Heat shows when changes reached proxies (left to right) and how long they took (from below). It is drawn anew for
 * another at: past is one list that grows.
 */
function Heat(props: { past: Column[]; at: number }) {
  const past = props.past;
  const [chosen, choose] = useState<Cell | undefined>(undefined);
  const most = Math.max(1, ...past.flatMap((c) => c.cells));
  const labels: [number, string][] = [[0, "1 ms"], [4, "16 ms"], [7, "128 ms"], [10, "1 s"], [13, "8 s"], [16, "1 min"]];
  return (
    <>
      <h2>{text.heat}</h2>
      <svg class="heat" viewBox={`0 0 ${columns * 10 + 50} ${rows * 11}`} preserveAspectRatio="none" role="group" aria-label={text.heatWords(count(past.reduce((n, c) => n + c.cells.reduce((a, b) => a + b, 0), 0)))}>
        {labels.map(([row, name]) => (
          <text key={name} x="2" y={(rows - row) * 11 - 2}>
            {name}
          </text>
        ))}
        {past.flatMap((c, x) =>
          c.cells.map((n, row) =>
            n === 0 ? null : (
              <rect
                key={`${c.at} ${row}`}
                role="button"
                tabindex={0} // in SVG the name of an attribute has one case
                aria-label={text.heatCell(count(n), clock(c.at))}
                aria-pressed={chosen?.to === c.at && chosen.row === row}
                onClick={() => choose(cell(x, row))}
                onKeyDown={(e) => {
                  if (e.key !== "Enter" && e.key !== " ") return;
                  e.preventDefault();
                  choose(cell(x, row));
                }}
                x={50 + (columns - past.length + x) * 10}
                y={(rows - 1 - row) * 11}
                width="9"
                height="10"
                style={{ opacity: 0.25 + (0.75 * Math.log1p(n)) / Math.log1p(most) }}
              >
                <title>{text.heatCell(count(n), clock(c.at))}</title>
              </rect>
            ),
          ),
        )}
      </svg>
      {chosen && <Applied of={chosen} />}
    </>
  );
}

export function Propagation() {
  const live = useLive<PropagationData>("propagation");
  const data = live.value.value;
  const at = live.at.value;
  useMemo(() => data?.stages && look(data.stages, at), [data, at]);
  const known = data?.status ?? data?.proxies;
  const behind = (known?.List ?? [])
    .slice()
    .sort((a, b) => (b.LagMillis ?? 0) - (a.LagMillis ?? 0) || b.Pending - a.Pending)
    .slice(0, most);
  return (
    <>
      <Title of={live}>{text.propagation}</Title>
      <Problems of={data?.problems} />
      {data && (
        <>
          {(data.stages?.length ?? 0) > 0 && <Heat past={past} at={at} />}
          <h2>{text.stages}</h2>
          <Grid
            label={text.stages}
            rows={data.stages ?? []}
            id={(s) => `${s.stage} ${s.type}`}
            empty={text.noPropagation}
            columns={[
              { name: text.stage, cell: (s) => s.stage },
              { name: text.resource, cell: (s) => s.type },
              { name: text.changesCount, cell: (s) => count(s.count), number: true },
              { name: text.median, cell: (s) => span(s.p50), number: true },
              { name: "p99", cell: (s) => span(s.p99), number: true },
              { name: text.slowest, cell: (s) => span(s.max), number: true },
              { name: text.distribution, cell: (s) => <Plot of={s} /> },
            ]}
          />
          <h2>{text.proxiesBehind}</h2>
          {!data.status && data.proxies && <p class="words">{text.partly}</p>}
          <Grid
            label={text.proxies}
            rows={behind}
            id={(p) => `${p.Node}/${p.ID}`}
            empty={known?.Proxies ? text.allSynced(count(known.Proxies)) : text.noProxies}
            columns={[
              { name: text.proxy, cell: (p) => <Mark state={states[p.State] ?? "unknown"}>{p.ID}</Mark> },
              { name: text.node, cell: (p) => p.Node },
              { name: text.state, cell: (p) => p.State },
              { name: text.notApplied, cell: (p) => `${count(p.Pending)} / ${count(p.Resources)}`, number: true },
              { name: text.lag, cell: (p) => (p.LagMillis ? span(p.LagMillis) : ""), number: true },
              { name: text.answered, cell: (p) => (p.Answered ? ago(Date.parse(p.Answered)) : "") },
              { name: text.output, cell: (p) => p.Refusal?.Words ?? "" },
            ]}
          />
          {(data.status?.Unattended?.length ?? 0) > 0 && (
            <>
              <h2>{text.unattended}</h2>
              <p class="words">{data.status?.Unattended?.join(", ")}</p>
            </>
          )}
        </>
      )}
    </>
  );
}
