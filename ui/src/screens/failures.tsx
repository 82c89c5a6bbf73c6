import { useEffect, useState } from "preact/hooks";
import { as } from "../lib/act";
import { getText } from "../lib/api";
import { ago } from "../lib/time";
import { href } from "../lib/route";
import { text } from "../text";
import { clean } from "./alloc";

/** Alloc is an allocation as a job lists it. */
export interface Alloc {
  ID: string;
  Name: string;
  NodeName: string;
  ClientStatus: string;
  DesiredStatus: string;
  ModifyTime: number;
  TaskStates: Record<string, { Events: { DisplayMessage: string }[] | null; Restarts: number; Failed: boolean }> | null;
}

const shown = 3; // failures, the newest
const lines = 5; // of a log, the last
const tailBytes = 4096; // of a log that are asked for

/** Failures are the newest allocations that failed, each with what was said of it and what it wrote last. */
export function Failures(props: { allocs: Alloc[]; namespace: string; to: string }) {
  const failed = props.allocs.filter((a) => a.ClientStatus === "failed").sort((a, b) => b.ModifyTime - a.ModifyTime);
  if (failed.length === 0) return null;
  return (
    <>
      <h2>{text.failures}</h2>
      {failed.slice(0, shown).map((a) => (
        <Failed key={a.ID} alloc={a} namespace={props.namespace} to={props.to} />
      ))}
    </>
  );
}

function Failed(props: { alloc: Alloc; namespace: string; to: string }) {
  const { alloc } = props;
  const tasks = Object.entries(alloc.TaskStates ?? {});
  const [task, state] = tasks.find(([, t]) => t.Failed) ?? tasks[0] ?? ["", undefined];
  const [wrote, setWrote] = useState("");
  useEffect(() => {
    if (task === "") return;
    const end = new AbortController();
    const tail = (type: string): Promise<string> => {
      const query = new URLSearchParams({ task, type, namespace: props.namespace, plain: "true", origin: "end", offset: String(tailBytes) });
      return getText(as("jobs", `/v1/client/fs/logs/${alloc.ID}?${query}`), end.signal);
    };
    const read = async () => {
      for (const type of ["stderr", "stdout"]) {
        const last = clean(await tail(type)).trimEnd().split("\n").slice(-lines).join("\n");
        if (last === "") continue;
        setWrote(last);
        return;
      }
      setWrote(text.noLog);
    };
    read().catch((e) => !end.signal.aborted && setWrote(e instanceof Error ? e.message : String(e)));
    return () => end.abort();
  }, [alloc.ID, alloc.ModifyTime]);
  return (
    <>
      <p>
        <a href={href(`${props.to}?alloc=${alloc.ID}${task === "" ? "" : `&task=${encodeURIComponent(task)}`}`)}>{alloc.Name}</a>{" "}
        <span class="words">
          {ago(alloc.ModifyTime / 1e6)}, {alloc.NodeName}: {state?.Events?.at(-1)?.DisplayMessage}
        </span>
      </p>
      <pre class="value" aria-label={text.logs}>
        {wrote}
      </pre>
    </>
  );
}
