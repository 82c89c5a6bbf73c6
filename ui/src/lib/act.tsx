// What changes something: it says first what it hits and how the same is done with curl, and is done with the rights
// of the person by the plane's own API.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Problem, send } from "./api";
import { Dialog } from "./overlay";
import { Copy } from "./parts";
import { text } from "../text";

/** PlaneName is a plane of this server; elsewhere are other clusters of the monitor, the first part of a path. */
export type PlaneName = "catalog" | "secrets" | "monitor" | "jobs" | "elsewhere";

export interface Write {
  plane: PlaneName;
  method: string;
  path: string;
  body?: unknown;
}

interface Question {
  title: string;
  /** hits says what is going to change. */
  hits: ComponentChildren;
  /** write is what is done; where that is no single request, run does it and twin is the command for it. */
  write?: Write;
  run?: () => Promise<unknown>;
  twin?: string;
  done: () => void;
}

export const asking = signal<Question | undefined>(undefined);

/** as is where a plane's own API is, asked for as the person. */
export const as = (plane: PlaneName, path: string): string => `/ui/api/as/${plane}${path}`;

const headers: Record<PlaneName, [string, string]> = {
  catalog: ['-H "X-Consul-Token: $CORBEL_TOKEN"', "$CORBEL_HTTP_ADDR"],
  secrets: ['-H "X-Vault-Token: $VAULT_TOKEN"', "$VAULT_ADDR"],
  jobs: ['-H "X-Nomad-Token: $CORBEL_TOKEN"', "$NOMAD_ADDR"],
  monitor: ['-H "Authorization: Key $SENSU_API_KEY"', "$SENSU_API_URL"],
  elsewhere: ['-H "Authorization: Key $SENSU_API_KEY"', "$SENSU_API_URL"],
};

/** quoted is text as a shell takes it for one word, whatever is in it. */
export const quoted = (s: string): string => (/^[\w%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", "'\\''")}'`);

/** curl is the command that does the same. */
export function curl(w: Write): string {
  const [header, address] = headers[w.plane];
  const body = w.body === undefined ? "" : ` --data-raw ${quoted(typeof w.body === "string" ? w.body : JSON.stringify(w.body))}`;
  const path = w.plane === "elsewhere" ? w.path.replace(/^\/[^/]*/, "") : w.path; // the command is asked of that cluster
  return `curl -X ${w.method} ${header} "${address}${path.replaceAll("!", "%21")}"${body}`; // "!" is a shell's history
}

/** perform does a write. */
export const perform = <T,>(w: Write): Promise<T> => send<T>(w.method, as(w.plane, w.path), w.body);

export function Confirm() {
  const [problem, setProblem] = useState("");
  const q = asking.value;
  if (!q) return null;
  const end = () => {
    setProblem("");
    asking.value = undefined;
  };
  const go = async (e: Event) => {
    e.preventDefault();
    try {
      await (q.run ? q.run() : q.write && perform(q.write));
      end();
      q.done();
    } catch (e) {
      setProblem(e instanceof Problem ? e.message : String(e));
    }
  };
  const twin = q.write ? curl(q.write) : (q.twin ?? "");
  return (
    <Dialog label={q.title} end={end}>
      <h2>{q.title}</h2>
      <div>{q.hits}</div>
      <pre class="curl">{twin}</pre>
      {problem !== "" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <form onSubmit={go}>
        <button type="submit" class="primary" autofocus>
          {text.doIt}
        </button>
        <button type="button" onClick={end}>
          {text.cancel}
        </button>
        <Copy what={twin} label={text.copyCommand} />
      </form>
    </Dialog>
  );
}
