// One incident: what the check says in full, what became of its event, and how it went for the entity before.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { as } from "../lib/act";
import { get } from "../lib/api";
import { Grid } from "../lib/grid";
import { Mark, type State, Title } from "../lib/parts";
import { ago, clock, count, span } from "../lib/time";
import { href } from "../lib/route";
import { useLive } from "../lib/use";
import { text } from "../text";

export interface Incident {
  namespace: string;
  entity: string;
  check: string;
  state: State;
  output: string;
  occurrences: number;
  since: number;
  last: number;
  silenced: string[];
  handlers: string[];
}

/** incidentPath is where one incident is shown, below /ui. */
export const incidentPath = (i: { namespace: string; entity: string; check: string }): string =>
  `/incidents?ns=${encodeURIComponent(i.namespace)}&entity=${encodeURIComponent(i.entity)}&check=${encodeURIComponent(i.check)}`;

/** Event is what the page takes of an event of the monitor's API. */
interface Event {
  check: {
    status: number;
    output: string;
    command?: string;
    interval?: number;
    occurrences: number;
    occurrences_watermark?: number;
    executed: number;
    last_ok?: number;
    handlers: string[] | null;
    pipelines?: { name: string }[] | null;
    subscriptions?: string[] | null;
    silenced?: string[] | null;
    is_silenced?: boolean;
  };
  entity: { subscriptions?: string[] | null; last_seen?: number };
}

/** Span is a time of one status, in Unix seconds. */
interface Span {
  status: number;
  first: number;
  last: number;
  runs: number;
}

interface Past {
  check: string;
  spans: Span[];
}

/** Fate is what became of the newest event at one handler. */
interface Fate {
  workflow: string;
  handler: string;
  outcome: string;
  filter?: string;
  error?: string;
  at: number;
  times: number;
  server?: string;
}

export const stateOf = (status: number): State =>
  status === 0 ? "passing" : status === 1 ? "warning" : status === 2 ? "critical" : "unknown";

const day = 86_400; // seconds that the timeline shows

/** Timeline shows the times of each check of an entity over a day, the newest at the right. */
function Timeline(props: { past: Past[]; now: number; check: string }) {
  const from = props.now - day;
  return (
    <ul class="timeline">
      {props.past.map((p) => (
        <li key={p.check} class={p.check === props.check ? "focus" : undefined}>
          <span class="first">{p.check}</span>
          <svg viewBox={`0 0 ${day} 10`} preserveAspectRatio="none" role="img" aria-label={text.timelineOf(p.check, count(p.spans.filter((s) => s.status !== 0 && s.last > from).length))}>
            {p.spans
              .filter((s) => s.last > from)
              .map((s) => {
                const x = Math.max(0, s.first - from);
                return (
                  <rect key={`${s.first} ${s.status}`} class={stateOf(s.status)} x={x} y={s.status === 0 ? 4 : 0} width={Math.max(300, s.last - from - x)} height={s.status === 0 ? 2 : 10}>
                    <title>{text.spanOf(stateOf(s.status), clock(s.first * 1000), span((s.last - s.first) * 1000))}</title>
                  </rect>
                );
              })}
          </svg>
        </li>
      ))}
    </ul>
  );
}

const outcomes: Record<string, State> = { handed: "passing", filtered: "unknown", failed: "critical", waiting: "warning" };

/** lines reads answers of one JSON object a line. */
async function lines<T>(path: string, signal: AbortSignal): Promise<T[]> {
  const answer = await fetch(path, { signal, credentials: "same-origin" });
  if (!answer.ok) return []; // the screen shows the rest
  return (await answer.text())
    .split("\n")
    .filter((l) => l.startsWith("{"))
    .map((l) => JSON.parse(l) as T);
}

export function One(props: { namespace: string; entity: string; check: string; Acts: ComponentType<{ of: Incident }> }) {
  const { namespace, entity, check, Acts } = props;
  const [event, setEvent] = useState<Event>();
  const [past, setPast] = useState<Past[]>([]);
  const [fates, setFates] = useState<Fate[]>();
  const [problem, setProblem] = useState("");
  const filter = [`namespace:"${namespace}"`, `entity:"${entity}"`, `check:"${check}"`].join(" ");
  const list = useLive<{ rows: Incident[] }>(`incidents?rows=1&q=${encodeURIComponent(filter)}`);
  const row = list.value.value?.rows[0];
  useEffect(() => {
    const end = new AbortController();
    const own = `/api/corbel/v1/events`;
    const q = `?namespace=${encodeURIComponent(namespace)}&entity=${encodeURIComponent(entity)}`;
    const at = `/api/core/v2/namespaces/${encodeURIComponent(namespace)}/events/${encodeURIComponent(entity)}/${encodeURIComponent(check)}`;
    get<Event>(as("monitor", at), end.signal).then(
      (e) => {
        setEvent(e);
        setProblem("");
      },
      (e) => !end.signal.aborted && setProblem(e instanceof Error ? e.message : String(e)),
    );
    lines<Past>(as("monitor", `${own}/history${q}`), end.signal).then(setPast, () => undefined);
    get<Fate[]>(as("monitor", `${own}/fates${q}&check=${encodeURIComponent(check)}`), end.signal).then(setFates, () => undefined);
    return () => end.abort();
  }, [namespace, entity, check, row]); // a change of the row is a reason to look again
  const c = event?.check;
  const told = [...(c?.handlers ?? []), ...(c?.pipelines ?? []).map((p) => p.name)];
  const facts: [string, string][] = c
    ? [
        [text.sinceHead, c.last_ok ? ago(c.last_ok * 1000) : text.neverPassed],
        [text.times, count(c.occurrences)],
        [text.lastRun, ago(c.executed * 1000)],
        [text.told, row && row.silenced.length > 0 ? text.silencedBy(row.silenced.join(" ")) : told.length > 0 ? told.join(" ") : text.nobody],
        [text.command, c.command ?? ""],
      ]
    : [];
  return (
    <>
      <Title of={list} words={<a href={href("/incidents")}>{text.incidents}</a>}>
        {c ? <Mark state={stateOf(c.status)}>{text.checkOn(check, entity)}</Mark> : text.checkOn(check, entity)}
      </Title>
      {problem !== "" && <p class="problem">{problem}</p>}
      <Acts of={row ?? { namespace, entity, check, state: stateOf(c?.status ?? 0), output: "", occurrences: 0, since: 0, last: 0, silenced: [], handlers: told }} />
      {c && (
        <>
          <dl class="facts">
            {facts
              .filter(([, value]) => value !== "")
              .map(([name, value]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd>{value}</dd>
                </div>
              ))}
          </dl>
          <h2>{text.output}</h2>
          <pre class="value" tabIndex={0} aria-label={text.output}>
            {c.output || text.noOutput}
          </pre>
        </>
      )}
      <h2>{text.fates}</h2>
      {fates && (
        <Grid
          label={text.fates}
          rows={fates}
          id={(f) => `${f.workflow} ${f.handler} ${f.server ?? ""}`}
          empty={told.length === 0 ? text.fateNobody : text.fateNone}
          columns={[
            { name: text.pipeline, cell: (f) => f.workflow },
            { name: text.handler, cell: (f) => f.handler },
            { name: text.becameOf, cell: (f) => <Mark state={outcomes[f.outcome] ?? "unknown"}>{f.outcome}</Mark> },
            { name: text.because, cell: (f) => (f.filter ? text.byFilter(f.filter) : (f.error ?? "")) },
            { name: text.sinceHead, cell: (f) => ago(f.at) },
            { name: text.times, cell: (f) => count(f.times), number: true },
          ]}
        />
      )}
      <h2>{text.timeline(entity)}</h2>
      {past.length > 0 ? <Timeline past={past} now={Date.now() / 1000} check={check} /> : <p class="empty">{text.noPast}</p>}
    </>
  );
}
