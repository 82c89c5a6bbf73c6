import { useState } from "preact/hooks";
import { Grid } from "../lib/grid";
import { me } from "../lib/me";
import { Filter, Mark, Problems, type State, Title } from "../lib/parts";
import { ago, count, now, span } from "../lib/time";
import { param, setParam } from "../lib/route";
import { Table } from "../lib/table";
import { useLive, usePages } from "../lib/use";
import { SilenceForm } from "./incidents";
import { text } from "../text";

/** Place is somewhere that may be slow or gone. */
interface Place {
  name: string;
  here: boolean;
  state: State;
  words: string;
  /** at is when what is shown was said, 0 while it is as new as the page, or where there is nothing. */
  at: number;
}

interface Datacenter extends Place {
  /** -1 is not known. */
  services: number;
  nodes: number;
  instances: number;
  critical: number;
  warning: number;
}

interface Cluster extends Place {
  entities: number;
  failing: number;
  page?: string;
}

interface Ill {
  datacenter: string;
  service: string;
  node: string;
  check: string;
  output: string;
  state: State;
}

interface FederationData {
  datacenters: Datacenter[];
  ill: Ill[];
  clusters: Cluster[];
  problems: Record<string, string>;
}

interface Event {
  cluster: string;
  namespace: string;
  entity: string;
  check: string;
  state: State;
  output: string;
  since: number;
  last: number;
  silenced: string[];
}

interface Entity {
  cluster: string;
  namespace: string;
  entity: string;
  class: string;
  state: State;
  failing: number;
  last: number;
}

const number = (n: number): string => (n < 0 ? text.unknownCount : count(n));

const name = {
  name: text.name,
  cell: (p: Place) => (
    <>
      <Mark state={p.state}>{p.name}</Mark> {p.here && <span class="words">{text.here}</span>}
    </>
  ),
};

const how = {
  name: text.placeIs,
  cell: (p: Place) => p.words + (p.at > 0 ? text.oldBy(span(Math.max(100, now.value - p.at))) : ""),
};

/** Everywhere is one list of all clusters of the monitor: of what fails, or of what is watched. */
function Everywhere(props: { clusters: Cluster[] }) {
  const q = encodeURIComponent(param("q"));
  const of = param("of") === "entities" ? "entities" : "events";
  return (
    <>
      <h2>{text.inAllClusters}</h2>
      <div class="bar">
        {(["events", "entities"] as const).map((one) => (
          <button key={one} type="button" aria-pressed={of === one} onClick={() => setParam("of", one === "events" ? "" : one)}>
            {one === "events" ? text.failingEvents : text.entities}
          </button>
        ))}
      </div>
      {of === "entities" ? <Entities key="entities" q={q} /> : <Events key="events" q={q} clusters={props.clusters} />}
    </>
  );
}

function Events(props: { q: string; clusters: Cluster[] }) {
  const { live, page, onMiddle } = usePages<Event>(`everywhere?of=incidents&q=${props.q}`);
  const [chosen, choose] = useState<Event>();
  const pageOf = (cluster: string) => props.clusters.find((c) => c.name === cluster)?.page;
  return (
    <>
      {live.problem.value !== "" && <p class="problem">{live.problem.value}</p>}
      <Filter hint={text.everywhereHint} problem={page?.problem} />
      {page && (
        <Table
          label={text.failingEvents}
          page={page}
          onMiddle={onMiddle}
          id={(e) => `${e.cluster}/${e.namespace}/${e.entity}/${e.check}`}
          actions={[{ keys: "s", what: text.silence, run: choose }]}
          columns={[
            { name: text.check, cell: (e) => <Mark state={e.silenced.length > 0 ? "unknown" : e.state}>{e.check}</Mark> },
            { name: text.entity, cell: (e) => e.entity },
            {
              name: text.clusterHead,
              cell: (e) => {
                const to = pageOf(e.cluster);
                return to ? (
                  <a href={to} target="_blank" rel="noopener noreferrer">
                    {e.cluster}
                  </a>
                ) : (
                  e.cluster
                );
              },
            },
            { name: text.namespace, cell: (e) => e.namespace },
            { name: text.output, cell: (e) => e.output, wide: true },
            { name: text.sinceHead, cell: (e) => ago(e.since > 0 ? e.since : e.last) },
            {
              name: text.change,
              cell: (e) => (
                <button type="button" onClick={() => choose(e)}>
                  {text.silence}
                </button>
              ),
            },
          ]}
          empty={page.all === 0 ? text.noFailing : text.noMatch}
        />
      )}
      {chosen && <SilenceForm of={chosen} list="everywhere?of=incidents&" end={() => choose(undefined)} />}
    </>
  );
}

function Entities(props: { q: string }) {
  const { live, page, onMiddle } = usePages<Entity>(`everywhere?of=entities&q=${props.q}`);
  return (
    <>
      {live.problem.value !== "" && <p class="problem">{live.problem.value}</p>}
      <Filter hint={text.everywhereHint} problem={page?.problem} />
      {page && (
        <Table
          label={text.entities}
          page={page}
          onMiddle={onMiddle}
          id={(e) => `${e.cluster}/${e.namespace}/${e.entity}`}
          columns={[
            { name: text.entity, cell: (e) => <Mark state={e.state}>{e.entity}</Mark>, wide: true },
            { name: text.clusterHead, cell: (e) => e.cluster },
            { name: text.namespace, cell: (e) => e.namespace },
            { name: text.class_, cell: (e) => e.class },
            { name: text.failing, cell: (e) => count(e.failing), number: true },
            { name: text.lastSeen, cell: (e) => (e.last > 0 ? ago(e.last) : "") },
          ]}
          empty={page.all === 0 ? text.noEntities : text.noMatch}
        />
      )}
    </>
  );
}

/** Federation is all datacenters, and all clusters of the monitor, in one view: who does not answer is marked. */
export function Federation() {
  const live = useLive<FederationData>("federation");
  const data = live.value.value;
  return (
    <>
      <Title of={live}>{text.federation}</Title>
      <Problems of={data?.problems} />
      {data && (
        <>
          <h2>{text.datacenters}</h2>
          <Grid
            label={text.datacenters}
            rows={data.datacenters}
            id={(d) => d.name}
            empty={text.alone}
            columns={[
              name,
              how,
              { name: text.services, cell: (d) => number(d.services), number: true },
              { name: text.nodes, cell: (d) => number(d.nodes), number: true },
              { name: text.instances, cell: (d) => number(d.instances), number: true },
              { name: text.warning, cell: (d) => count(d.warning), number: true },
              { name: text.critical, cell: (d) => count(d.critical), number: true },
            ]}
          />
          {data.datacenters.length === 1 && <p class="empty">{text.alone}</p>}
          <h2>{text.illEverywhere}</h2>
          <Grid
            label={text.illEverywhere}
            rows={data.ill}
            id={(i) => `${i.datacenter}/${i.node}/${i.service}/${i.check}`}
            empty={text.noIll}
            columns={[
              { name: text.datacenter, cell: (i) => i.datacenter },
              { name: text.service, cell: (i) => <Mark state={i.state}>{i.service || i.node}</Mark> },
              { name: text.node, cell: (i) => i.node },
              { name: text.check, cell: (i) => i.check },
              { name: text.output, cell: (i) => i.output },
            ]}
          />
          {me.value?.planes?.["monitor"] && (
            <>
              <h2>{text.monitorClusters}</h2>
              <Grid
                label={text.monitorClusters}
                rows={data.clusters}
                id={(c) => c.name}
                empty={text.noClusters}
                columns={[
                  name,
                  how,
                  { name: text.entities, cell: (c) => number(c.entities), number: true },
                  { name: text.failing, cell: (c) => number(c.failing), number: true },
                ]}
              />
              {data.clusters.length === 1 && <p class="empty">{text.noClusters}</p>}
              <Everywhere clusters={data.clusters} />
            </>
          )}
        </>
      )}
    </>
  );
}
