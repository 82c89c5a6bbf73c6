import { useState } from "preact/hooks";
import { asking } from "../lib/act";
import { Dialog } from "../lib/overlay";
import { Grid } from "../lib/grid";
import { Filter, Mark, Problems, Title } from "../lib/parts";
import { ago, clock, count, span } from "../lib/time";
import { href, param } from "../lib/route";
import { Table } from "../lib/table";
import { useLive, usePages } from "../lib/use";
import { text } from "../text";
import { type Incident, incidentPath, One } from "./incident";

interface Silence {
  metadata: { name: string; namespace: string };
  creator?: string;
  reason?: string;
  check?: string;
  subscription?: string;
  expire_at?: number;
}

const path = (namespace: string, rest: string): string =>
  `/api/core/v2/namespaces/${encodeURIComponent(namespace)}/${rest}`;

function resolve(i: Incident): void {
  asking.value = {
    title: text.resolveTitle(i.check, i.entity),
    hits: <p>{text.resolveHits}</p>,
    write: {
      plane: "monitor",
      method: "PUT",
      path: path(i.namespace, `events/${encodeURIComponent(i.entity)}/${encodeURIComponent(i.check)}`),
      body: {
        entity: { entity_class: "proxy", metadata: { name: i.entity, namespace: i.namespace } },
        check: { metadata: { name: i.check, namespace: i.namespace }, status: 0, interval: 60, output: text.resolvedBy, handlers: i.handlers },
      },
    },
    done: () => undefined,
  };
}

/** acknowledge silences an incident until it is over: the person works on it, and nobody else is called. */
function acknowledge(i: Incident): void {
  const name = `entity:${i.entity}:${i.check}`;
  asking.value = {
    title: text.acknowledgeTitle(i.check, i.entity),
    hits: <p>{text.acknowledgeHits}</p>,
    write: {
      plane: "monitor",
      method: "PUT",
      path: path(i.namespace, `silenced/${encodeURIComponent(name)}`),
      body: {
        metadata: { name, namespace: i.namespace },
        subscription: `entity:${i.entity}`,
        check: i.check,
        reason: text.acknowledgedBy,
        expire_on_resolve: true,
      },
    },
    done: () => undefined,
  };
}

const times: [string, number][] = [
  ["15 min", 900],
  ["1 h", 3600],
  ["4 h", 14_400],
  ["24 h", 86_400],
];

/** Silenceable is what names an incident, in this cluster or in the one that it names. */
export interface Silenceable {
  cluster?: string;
  namespace: string;
  entity: string;
  check: string;
}

const exactly = (field: string, value: string): string => `${field}:"${value.replaceAll('"', "*")}"`;

/** SilenceForm asks for how long and how far, and says what that matches now, in a list of incidents. */
export function SilenceForm(props: { of: Silenceable; list: string; end: () => void }) {
  const { of } = props;
  const [reach, setReach] = useState("both");
  const [seconds, setSeconds] = useState(3600);
  const [reason, setReason] = useState("");
  const filter = [exactly("namespace", of.namespace)];
  if (of.cluster) filter.push(exactly("cluster", of.cluster));
  if (reach !== "check") filter.push(exactly("entity", of.entity));
  if (reach !== "entity") filter.push(exactly("check", of.check));
  const hit = useLive<{ matching: number }>(`${props.list}rows=1&q=${encodeURIComponent(filter.join(" "))}`);
  const n = hit.value.value?.matching;
  const hits = (n === undefined ? "" : `${text.silenceHits(count(n), clock(Date.now() + seconds * 1000))} `) +
    (of.cluster ? text.silenceThere(of.cluster) : "");
  const next = (e: SubmitEvent) => {
    e.preventDefault();
    const subscription = reach === "check" ? "" : `entity:${of.entity}`;
    const check = reach === "entity" ? "" : of.check;
    const name = `${subscription || "*"}:${check || "*"}`;
    const body: Record<string, unknown> = { metadata: { name, namespace: of.namespace }, reason, expire: seconds };
    const to = path(of.namespace, `silenced/${encodeURIComponent(name)}`);
    if (subscription) body["subscription"] = subscription;
    if (check) body["check"] = check;
    props.end();
    asking.value = {
      title: text.silenceTitle(name),
      hits: <p>{hits}</p>,
      write: of.cluster
        ? { plane: "elsewhere", method: "PUT", path: `/${encodeURIComponent(of.cluster)}${to}`, body }
        : { plane: "monitor", method: "PUT", path: to, body },
      done: () => undefined,
    };
  };
  return (
    <Dialog label={text.silence} end={props.end}>
      <h2>{text.silence}</h2>
      <form onSubmit={next}>
        <label>
          {text.reach}{" "}
          <select value={reach} onChange={(e) => setReach(e.currentTarget.value)} autofocus>
            <option value="both">{text.reachBoth(of.check, of.entity)}</option>
            <option value="entity">{text.reachEntity(of.entity)}</option>
            <option value="check">{text.reachCheck(of.check)}</option>
          </select>
        </label>
        <label>
          {text.forHow}{" "}
          <select value={seconds} onChange={(e) => setSeconds(Number(e.currentTarget.value))}>
            {times.map(([name, n]) => (
              <option key={n} value={n}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          {text.reason}
          <input value={reason} onInput={(e) => setReason(e.currentTarget.value)} />
        </label>
        <p role="status">{hits}</p>
        <button type="submit" class="primary">
          {text.next}
        </button>
        <button type="button" onClick={props.end}>
          {text.cancel}
        </button>
      </form>
    </Dialog>
  );
}

interface Changed {
  at: number;
  kind: string;
  name: string;
  what: string;
  path: string;
}

/** Before shows what changed in the hour before an incident began: what fails often follows one of these. */
function Before(props: { of: Incident; end: () => void }) {
  const began = props.of.since > 0 ? props.of.since + 60_000 : props.of.last;
  const live = useLive<Changed[]>(`changes?before=${began}`);
  return (
    <Dialog label={text.changedBefore(props.of.entity)} end={props.end}>
      <h2>{text.changedBefore(props.of.entity)}</h2>
      {live.problem.value !== "" && <p class="problem">{live.problem.value}</p>}
      <Grid
        label={text.changes}
        rows={live.value.value ?? []}
        id={(c) => `${c.at} ${c.kind} ${c.name}`}
        empty={text.nothingChanged}
        columns={[
          { name: text.sinceHead, cell: (c) => text.earlier(span(Math.max(0, began - c.at))) },
          { name: text.name, cell: (c) => <a href={href(c.path)}>{c.name}</a> },
          { name: text.kind, cell: (c) => c.kind },
          { name: text.change, cell: (c) => c.what },
        ]}
      />
      <form method="dialog">
        <button autofocus>{text.close}</button>
      </form>
    </Dialog>
  );
}

function lift(s: Silence): void {
  asking.value = {
    title: text.liftTitle(s.metadata.name),
    hits: <p>{text.liftHits}</p>,
    write: { plane: "monitor", method: "DELETE", path: path(s.metadata.namespace, `silenced/${encodeURIComponent(s.metadata.name)}`) },
    done: () => undefined,
  };
}

/** Incidents is the list, or the one that the address names. */
export function Incidents() {
  return param("entity") !== "" && param("check") !== "" ? (
    <One namespace={param("ns") || "default"} entity={param("entity")} check={param("check")} Acts={Acts} />
  ) : (
    <List />
  );
}

/** Acts are what can be done about an incident. */
function Acts(props: { of: Incident }) {
  const [chosen, choose] = useState(false);
  const [asked, why] = useState(false);
  const { of } = props;
  return (
    <div class="bar">
      <button type="button" onClick={() => choose(true)}>
        {text.silence}
      </button>
      <button type="button" onClick={() => acknowledge(of)}>
        {text.acknowledge}
      </button>
      <button type="button" onClick={() => resolve(of)}>
        {text.resolve}
      </button>
      <button type="button" onClick={() => why(true)}>
        {text.before}
      </button>
      {asked && <Before of={of} end={() => why(false)} />}
      {chosen && <SilenceForm of={of} list="incidents?" end={() => choose(false)} />}
    </div>
  );
}

function List() {
  const q = param("q");
  const { live, page, onMiddle } = usePages<Incident>(`incidents?q=${encodeURIComponent(q)}`);
  const silences = useLive<{ silences?: Silence[]; problems: Record<string, string> }>("silences").value.value;
  const [chosen, choose] = useState<Incident>();
  const [asked, why] = useState<Incident>();
  return (
    <>
      <Title of={live}>{text.incidents}</Title>
      <Filter hint={text.incidentsHint} problem={page?.problem} />
      {page && (
        <Table
          label={text.incidents}
          page={page}
          onMiddle={onMiddle}
          id={(i) => `${i.namespace}/${i.entity}/${i.check}`}
          href={incidentPath}
          actions={[
            { keys: "s", what: text.silence, run: choose },
            { keys: "a", what: text.acknowledge, run: acknowledge },
            { keys: "r", what: text.resolve, run: resolve },
            { keys: "b", what: text.before, run: why },
          ]}
          columns={[
            {
              name: text.check,
              cell: (i) => (
                <Mark state={i.silenced.length > 0 ? "unknown" : i.state}>
                  <a href={href(incidentPath(i))}>{i.check}</a>
                </Mark>
              ),
            },
            { name: text.entity, cell: (i) => i.entity },
            { name: text.output, cell: (i) => i.output, wide: true },
            { name: text.sinceHead, cell: (i) => ago(i.since > 0 ? i.since : i.last) },
            { name: text.times, cell: (i) => count(i.occurrences), number: true },
            {
              name: text.told,
              cell: (i) => (i.silenced.length > 0 ? text.silenced : i.handlers.length > 0 ? i.handlers.join(" ") : text.nobody),
            },
            {
              name: text.change,
              acts: true,
              cell: (i) => (
                <>
                  <button type="button" onClick={() => choose(i)}>
                    {text.silence}
                  </button>{" "}
                  <button type="button" onClick={() => acknowledge(i)}>
                    {text.acknowledge}
                  </button>{" "}
                  <button type="button" onClick={() => why(i)}>
                    {text.before}
                  </button>
                </>
              ),
            },
          ]}
          empty={page.all === 0 ? text.noIncidents : text.noMatch}
        />
      )}
      {asked && <Before of={asked} end={() => why(undefined)} />}
      {chosen && <SilenceForm of={chosen} list="incidents?" end={() => choose(undefined)} />}
      <h2>{text.silences}</h2>
      <Problems of={silences?.problems} />
      {silences && (
        <Grid
          label={text.silences}
          rows={silences.silences ?? []}
          id={(s) => `${s.metadata.namespace}/${s.metadata.name}`}
          empty={text.noSilences}
          columns={[
            { name: text.name, cell: (s) => s.metadata.name },
            { name: text.by, cell: (s) => s.creator ?? "" },
            { name: text.reason, cell: (s) => s.reason ?? "" },
            { name: text.ends, cell: (s) => (s.expire_at ? text.within(span(s.expire_at * 1000 - Date.now())) : text.never) },
            {
              name: text.change,
              cell: (s) => (
                <button type="button" onClick={() => lift(s)}>
                  {text.lift}
                </button>
              ),
            },
          ]}
        />
      )}
    </>
  );
}
