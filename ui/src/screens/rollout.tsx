import { useEffect, useState } from "preact/hooks";
import { as, asking } from "../lib/act";
import { get } from "../lib/api";
import { Grid } from "../lib/grid";
import { Mark, type State } from "../lib/parts";
import { count } from "../lib/time";
import { text } from "../text";

interface GroupState {
  DesiredTotal: number;
  DesiredCanaries: number;
  PlacedCanaries: string[] | null;
  PlacedAllocs: number;
  HealthyAllocs: number;
  UnhealthyAllocs: number;
  Promoted: boolean;
}

interface Deployment {
  ID: string;
  JobVersion: number;
  Status: string;
  StatusDescription: string;
  CreateIndex: number;
  TaskGroups: Record<string, GroupState> | null;
}

interface Of {
  id: string;
  namespace: string;
  /** changes is new whenever it is worth looking again. */
  changes: unknown;
}

/** useAnswer reads a path of a job again with each change. */
function useAnswer<T>(of: Of, what: string): T | undefined {
  const [answer, setAnswer] = useState<T>();
  useEffect(() => {
    const end = new AbortController();
    const path = `/v1/job/${encodeURIComponent(of.id)}${what}?namespace=${encodeURIComponent(of.namespace)}`;
    get<T>(as("jobs", path), end.signal).then(setAnswer, () => undefined); // the screen tells what may not be read
    return () => end.abort();
  }, [of.id, of.namespace, of.changes]);
  return answer;
}

const states: Record<string, State> = { running: "warning", pending: "warning", paused: "warning", failed: "critical", successful: "passing" };

/** Rollout shows how far the newest version of a job has come, and lets it go on or end. */
export function Rollout(props: Of) {
  const all = useAnswer<Deployment[]>(props, "/deployments");
  const d = all?.slice().sort((a, b) => b.CreateIndex - a.CreateIndex)[0];
  if (!d) return null;
  const groups = Object.entries(d.TaskGroups ?? {});
  const waiting = groups.filter(([, g]) => g.DesiredCanaries > 0 && !g.Promoted).reduce((n, [, g]) => n + (g.PlacedCanaries?.length ?? 0), 0);
  const live = ["running", "pending", "paused"].includes(d.Status);
  const query = `?namespace=${encodeURIComponent(props.namespace)}`;
  const promote = () => {
    asking.value = {
      title: text.promoteTitle(props.id),
      hits: <p>{text.promoteHits(count(waiting))}</p>,
      write: { plane: "jobs", method: "PUT", path: `/v1/deployment/promote/${d.ID}${query}`, body: { DeploymentID: d.ID, All: true } },
      done: () => undefined,
    };
  };
  const fail = () => {
    asking.value = {
      title: text.failTitle(props.id),
      hits: <p>{text.failHits}</p>,
      write: { plane: "jobs", method: "PUT", path: `/v1/deployment/fail/${d.ID}${query}`, body: {} },
      done: () => undefined,
    };
  };
  return (
    <>
      <h2>{text.rollout}</h2>
      <p>
        <Mark state={states[d.Status] ?? "unknown"}>{d.Status}</Mark> <span class="words">{d.StatusDescription}</span>
      </p>
      <Grid
        label={text.rollout}
        rows={groups}
        id={([name]) => name}
        empty=""
        columns={[
          { name: text.group, cell: ([name]) => name },
          { name: text.wanted, cell: ([, g]) => count(g.DesiredTotal), number: true },
          { name: text.placed, cell: ([, g]) => count(g.PlacedAllocs), number: true },
          { name: text.healthy, cell: ([, g]) => count(g.HealthyAllocs), number: true },
          { name: text.failedCount, cell: ([, g]) => count(g.UnhealthyAllocs), number: true },
          { name: text.canaries, cell: ([, g]) => `${g.PlacedCanaries?.length ?? 0} / ${g.DesiredCanaries}`, number: true },
        ]}
      />
      {live && (
        <div class="ask">
          {waiting > 0 && (
            <button type="button" onClick={promote}>
              {text.promote}
            </button>
          )}
          <button type="button" onClick={fail}>
            {text.fail}
          </button>
        </div>
      )}
    </>
  );
}

interface Definition {
  Type: string;
  Stop: boolean;
  TaskGroups: { Name: string; Count: number }[] | null;
}

/** Scale changes the counts of a job's groups. */
export function Scale(props: Of) {
  const job = useAnswer<Definition>(props, "");
  const [wanted, setWanted] = useState<Record<string, string>>({});
  if (!job || job.Stop || (job.Type !== "service" && job.Type !== "batch")) return null;
  const ask = (group: string, from: number) => {
    const to = Number(wanted[group] ?? from);
    if (!Number.isInteger(to) || to < 0) return;
    asking.value = {
      title: text.scaleTitle(group, count(to)),
      hits: <p>{text.scaleHits(count(from), count(to))}</p>,
      write: {
        plane: "jobs",
        method: "PUT",
        path: `/v1/job/${encodeURIComponent(props.id)}/scale?namespace=${encodeURIComponent(props.namespace)}`,
        body: { Count: to, Target: { Group: group }, Message: "scaled in the web UI" },
      },
      done: () => setWanted({}),
    };
  };
  return (
    <>
      <h2>{text.counts}</h2>
      {(job.TaskGroups ?? []).map((g) => (
        <form
          key={g.Name}
          class="ask"
          onSubmit={(e) => {
            e.preventDefault();
            ask(g.Name, g.Count);
          }}
        >
          <span>{g.Name}</span>
          <input
            type="number"
            min="0"
            aria-label={text.wantedCount(g.Name)}
            value={wanted[g.Name] ?? String(g.Count)}
            onInput={(e) => setWanted({ ...wanted, [g.Name]: e.currentTarget.value })}
          />
          <button type="submit">{text.scale}</button>
        </form>
      ))}
    </>
  );
}
