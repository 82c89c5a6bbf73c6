import { useEffect, useState } from "preact/hooks";
import { as, asking } from "../lib/act";
import { get } from "../lib/api";
import { Grid } from "../lib/grid";
import { Filter, Mark, Problems, type State, Title } from "../lib/parts";
import { ago, count } from "../lib/time";
import { go, href, param } from "../lib/route";
import { useLive } from "../lib/use";
import { text } from "../text";
import { Allocation } from "./alloc";
import { Rollout, Scale } from "./rollout";
import { type Alloc, Failures } from "./failures";

interface Summary {
  Queued: number;
  Running: number;
  Starting: number;
  Failed: number;
  Lost: number;
  Complete: number;
}

interface Job {
  ID: string;
  Namespace: string;
  Type: string;
  Status: string;
  Version: number;
  SubmitTime: number;
  Stop: boolean;
  JobSummary: { Summary: Record<string, Summary> | null };
}

interface Node {
  ID: string;
  Name: string;
  Datacenter: string;
  NodeClass: string;
  Status: string;
  Drain: boolean;
  SchedulingEligibility: string;
}

interface JobsData {
  jobs?: Job[];
  nodes?: Node[];
  problems: Record<string, string>;
}

const nothing: Summary = { Queued: 0, Running: 0, Starting: 0, Failed: 0, Lost: 0, Complete: 0 };

function total(j: Job): Summary {
  const all = { ...nothing };
  for (const s of Object.values(j.JobSummary.Summary ?? {})) {
    for (const k of Object.keys(nothing) as (keyof Summary)[]) all[k] += s[k];
  }
  return all;
}

function state(j: Job): State {
  const t = total(j);
  if (j.Stop || j.Status === "dead") return "unknown";
  if (t.Failed + t.Lost > 0 && t.Queued > 0) return "critical";
  return t.Queued + t.Starting > 0 ? "warning" : "passing";
}

const to = (j: { ID: string; Namespace: string }): string => `/jobs/${encodeURIComponent(j.Namespace)}/${encodeURIComponent(j.ID)}`;

function drain(n: Node): void {
  const spec = n.Drain ? null : { Deadline: 3_600_000_000_000, IgnoreSystemJobs: false };
  asking.value = {
    title: n.Drain ? text.undrainTitle(n.Name) : text.drainTitle(n.Name),
    hits: <p>{n.Drain ? text.undrainHits : text.drainHits}</p>,
    write: { plane: "jobs", method: "PUT", path: `/v1/node/${n.ID}/drain`, body: { DrainSpec: spec, MarkEligible: n.Drain } },
    done: () => undefined,
  };
}

/** Jobs shows what is wanted and what runs; where the plane is not on this server it says so. */
export function Jobs(props: { here: boolean; name: string }) {
  const live = useLive<JobsData>("jobs");
  const data = live.value.value;
  if (!props.here) {
    return (
      <>
        <Title>{text.jobs}</Title>
        <p class="empty">{text.noJobsPlane}</p>
      </>
    );
  }
  if (props.name !== "") return <One name={props.name} />;
  if (param("node") !== "") return <Attributes key={param("node")} id={param("node")} />;
  const order: State[] = ["critical", "warning", "passing", "unknown"];
  const jobs = (data?.jobs ?? []).slice().sort((a, b) => order.indexOf(state(a)) - order.indexOf(state(b)));
  return (
    <>
      <Title of={live}>{text.jobs}</Title>
      <Problems of={data?.problems} />
      {data && (
        <>
          <Grid
            label={text.jobs}
            rows={jobs}
            id={(j) => `${j.Namespace}/${j.ID}`}
            empty={text.noJobs}
            columns={[
              {
                name: text.job,
                cell: (j) => (
                  <Mark state={state(j)}>
                    <a href={href(to(j))}>{j.ID}</a>
                  </Mark>
                ),
              },
              { name: text.type, cell: (j) => j.Type },
              { name: text.state, cell: (j) => j.Status },
              { name: text.running, cell: (j) => count(total(j).Running), number: true },
              { name: text.starting, cell: (j) => count(total(j).Starting), number: true },
              { name: text.pending, cell: (j) => count(total(j).Queued), number: true },
              { name: text.failedCount, cell: (j) => count(total(j).Failed + total(j).Lost), number: true },
              { name: text.submitted, cell: (j) => ago(j.SubmitTime / 1e6) },
            ]}
          />
          <h2>{text.nodes}</h2>
          <Grid
            label={text.nodes}
            rows={data.nodes ?? []}
            id={(n) => n.ID}
            empty={text.noJobNodes}
            columns={[
              {
                name: text.node,
                cell: (n) => (
                  <Mark state={n.Status !== "ready" ? "critical" : n.Drain ? "warning" : "passing"}>
                    <a href={href(`/jobs?node=${n.ID}`)}>{n.Name}</a>
                  </Mark>
                ),
              },
              { name: text.state, cell: (n) => (n.Drain ? text.draining : n.Status) },
              { name: text.newWork, cell: (n) => n.SchedulingEligibility },
              { name: text.datacenter, cell: (n) => n.Datacenter },
              { name: text.class_, cell: (n) => n.NodeClass },
              {
                name: text.change,
                cell: (n) => (
                  <button type="button" onClick={() => drain(n)}>
                    {n.Drain ? text.undrain : text.drain}
                  </button>
                ),
              },
            ]}
          />
        </>
      )}
    </>
  );
}

interface NodeDetails {
  Name: string;
  Attributes: Record<string, string> | null;
  Meta: Record<string, string> | null;
}

/** Attributes are what a node says of itself, which jobs may ask for in their constraints. */
function Attributes(props: { id: string }) {
  const [node, setNode] = useState<NodeDetails>();
  const [problem, setProblem] = useState("");
  const filter = param("q").toLowerCase();
  useEffect(() => {
    const end = new AbortController();
    get<NodeDetails>(as("jobs", `/v1/node/${encodeURIComponent(props.id)}`), end.signal).then(setNode, (e) => {
      if (!end.signal.aborted) setProblem(e instanceof Error ? e.message : String(e));
    });
    return () => end.abort();
  }, [props.id]);
  const of = (prefix: string, all: Record<string, string> | null | undefined): [string, string][] =>
    Object.entries(all ?? {}).map(([k, v]): [string, string] => [`\${${prefix}.${k}}`, v]);
  const rows = [...of("attr", node?.Attributes), ...of("meta", node?.Meta)].filter(([k, v]) => `${k} ${v}`.toLowerCase().includes(filter)).sort();
  return (
    <>
      <Title words={<a href={href("/jobs")}>{text.jobs}</a>}>{node?.Name ?? props.id}</Title>
      {problem !== "" && <p class="problem">{problem}</p>}
      <Filter hint={text.attributesHint} />
      {node && (
        <Grid
          label={text.attributes}
          rows={rows}
          id={([k]) => k}
          empty={text.noMatch}
          columns={[
            { name: text.attribute, cell: ([k]) => <code>{k}</code> },
            { name: text.value, cell: ([, v]) => v },
          ]}
        />
      )}
    </>
  );
}

interface Eval {
  ID: string;
  Status: string;
  ModifyIndex: number;
  FailedTGAllocs: Record<string, Failure> | null;
}

interface Failure {
  NodesEvaluated: number;
  NodesFiltered: number;
  NodesExhausted: number;
  CoalescedFailures: number;
  ConstraintFiltered: Record<string, number> | null;
  DimensionExhausted: Record<string, number> | null;
}

/** because says in words why a group was not placed. */
function because(group: string, f: Failure): string {
  const parts = [
    ...Object.entries(f.ConstraintFiltered ?? {}).map(([what, n]) => text.filtered(count(n), what)),
    ...Object.entries(f.DimensionExhausted ?? {}).map(([what, n]) => text.exhausted(count(n), what)),
  ];
  return `${group}: ${text.evaluated(count(f.NodesEvaluated))}${parts.length > 0 ? `; ${parts.join("; ")}` : ""}`;
}

const allocStates: Record<string, State> = { running: "passing", pending: "warning", failed: "critical", lost: "critical" };

/** One is a job: why it does not run, then its allocations with what was said of them last. */
function One(props: { name: string }) {
  const [namespace = "default", ...rest] = props.name.split("/");
  const id = rest.join("/");
  const [allocs, setAllocs] = useState<Alloc[]>();
  const [evals, setEvals] = useState<Eval[]>([]);
  const [problem, setProblem] = useState("");
  const changes = useLive<JobsData>("jobs").value.value; // a change of the list is a reason to look again
  useEffect(() => {
    const end = new AbortController();
    const at = (what: string) => as("jobs", `/v1/job/${encodeURIComponent(id)}/${what}?namespace=${encodeURIComponent(namespace)}`);
    Promise.all([get<Alloc[]>(at("allocations"), end.signal), get<Eval[]>(at("evaluations"), end.signal)]).then(
      ([a, e]) => {
        setAllocs(a);
        setEvals(e);
        setProblem("");
      },
      (e) => !end.signal.aborted && setProblem(e instanceof Error ? e.message : String(e)),
    );
    return () => end.abort();
  }, [id, namespace, changes]);
  const newest = evals.slice().sort((a, b) => b.ModifyIndex - a.ModifyIndex).find((e) => e.FailedTGAllocs);
  const stop = () => {
    asking.value = {
      title: text.stopTitle(id),
      hits: <p>{text.stopHits(count((allocs ?? []).filter((a) => a.ClientStatus === "running").length))}</p>,
      write: { plane: "jobs", method: "DELETE", path: `/v1/job/${encodeURIComponent(id)}?namespace=${encodeURIComponent(namespace)}` },
      done: () => go("/jobs"),
    };
  };
  const opened = allocs?.find((a) => a.ID === param("alloc"));
  if (opened) {
    return (
      <>
        <Title words={<a href={href(to({ ID: id, Namespace: namespace }))}>{id}</a>}>{opened.Name}</Title>
        <Allocation id={opened.ID} namespace={namespace} tasks={Object.keys(opened.TaskStates ?? {})} />
      </>
    );
  }
  return (
    <>
      <Title words={<a href={href("/jobs")}>{text.jobs}</a>}>{id}</Title>
      {problem !== "" && <p class="problem">{problem}</p>}
      <div class="bar">
        <button type="button" onClick={stop}>
          {text.stop}
        </button>
      </div>
      <Rollout id={id} namespace={namespace} changes={changes} />
      <Scale id={id} namespace={namespace} changes={changes} />
      {newest && (
        <>
          <h2>{text.notPlaced}</h2>
          <ul>
            {Object.entries(newest.FailedTGAllocs ?? {}).map(([group, f]) => (
              <li key={group}>
                <Mark state="warning">{because(group, f)}</Mark>
              </li>
            ))}
          </ul>
        </>
      )}
      {allocs && <Failures allocs={allocs} namespace={namespace} to={to({ ID: id, Namespace: namespace })} />}
      <h2>{text.allocations}</h2>
      {allocs && (
        <Grid
          label={text.allocations}
          rows={allocs}
          id={(a) => a.ID}
          empty={text.noAllocations}
          columns={[
            {
              name: text.allocation,
              cell: (a) => (
                <Mark state={allocStates[a.ClientStatus] ?? "unknown"}>
                  <a href={href(`${to({ ID: id, Namespace: namespace })}?alloc=${a.ID}`)}>{a.Name}</a>
                </Mark>
              ),
            },
            { name: text.state, cell: (a) => a.ClientStatus },
            { name: text.node, cell: (a) => a.NodeName },
            { name: text.restarts, cell: (a) => count(Object.values(a.TaskStates ?? {}).reduce((n, t) => n + t.Restarts, 0)), number: true },
            { name: text.sinceHead, cell: (a) => ago(a.ModifyTime / 1e6) },
            { name: text.output, cell: (a) => Object.values(a.TaskStates ?? {}).map((t) => t.Events?.at(-1)?.DisplayMessage ?? "").join("; ") },
            { name: text.command, cell: (a) => <code>{`corbel allocs logs ${a.ID.slice(0, 8)}`}</code> },
          ]}
        />
      )}
    </>
  );
}
