import { useEffect, useState } from "preact/hooks";
import { as, asking } from "../lib/act";
import { get, Problem } from "../lib/api";
import { Grid } from "../lib/grid";
import { Filter, Mark, Problems, Title } from "../lib/parts";
import { href, param } from "../lib/route";
import { ago, count, now, span } from "../lib/time";
import { useLive } from "../lib/use";
import { text } from "../text";
import { Secret } from "./secret";

interface Mount {
  type: string;
  description: string;
  options: Record<string, string> | null;
  config: { default_lease_ttl: number; max_lease_ttl: number };
}

interface Role {
  mount: string;
  type: string;
  role: string;
  tokens: number;
  leases: number;
  /** grew is how many more tokens and leases there are than at grown_since. */
  grew: number;
}

interface Owner {
  entity: string;
  name: string;
  namespace: string;
  tokens: number;
  leases: number;
  grew: number;
}

interface Target {
  mount: string;
  circuit: string;
  paused: boolean;
  due: number;
  in_flight: number;
  failed: number;
  last_error: string;
  /** next_end is when the first lease is due, null without one; ending_within_hour counts up to 10,000. */
  next_end: string | null;
  ending_within_hour: number;
}

interface Ending {
  next_end: string | null;
  ending_within_hour: number;
}

interface SecretsData {
  seal?: { sealed: boolean; initialized: boolean; t: number; progress: number; version: string };
  mounts?: { secret: Record<string, Mount>; auth: Record<string, Mount> };
  attribution?: { by_role: Role[]; by_entity: Owner[]; tokens: number; leases: number; grown_since: string };
  revocation?: { targets: Target[]; tokens: Ending };
  problems?: Record<string, string>;
}

export const escape = (path: string): string => path.split("/").map(encodeURIComponent).join("/");

const signed = (n: number): string => (n > 0 ? `+${count(n)}` : count(n));

const mostFolders = 2000; // that one search looks into

/** useSearch looks for a word in all paths below one that the person may list; names only, a folder at a time. */
function useSearch(mount: string, version: string, path: string, word: string) {
  const [state, setState] = useState({ paths: [] as string[], folders: 0, busy: false, cut: false });
  useEffect(() => {
    if (word === "") return;
    const end = new AbortController();
    const walk = async () => {
      const paths: string[] = [];
      const queue = [path];
      let folders = 0;
      const tell = (busy: boolean) => !end.signal.aborted && setState({ paths: paths.slice(), folders, busy, cut: queue.length > 0 });
      while (queue.length > 0 && folders < mostFolders && !end.signal.aborted) {
        const at = queue.shift() ?? "";
        folders++;
        try {
          const where = version === "2" ? `${mount}metadata/${at}` : `${mount}${at}`;
          const a = await get<{ data: { keys: string[] } }>(as("secrets", `/v1/${escape(where)}?list=true`), end.signal);
          for (const k of a.data.keys) {
            if (k.endsWith("/")) queue.push(at + k);
            if ((at + k).toLowerCase().includes(word.toLowerCase())) paths.push(at + k);
          }
        } catch {
          // a folder that may not be listed has no names to show
        }
        if (folders % 10 === 1) tell(true);
      }
      tell(false);
    };
    const timer = setTimeout(() => void walk(), 200);
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, [mount, version, path, word]);
  return state;
}

/** Paths lists what is below a path of a KV store: names, never values. */
function Paths(props: { mount: string; version: string; path: string }) {
  const { mount, version, path } = props;
  const [keys, setKeys] = useState<string[]>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const end = new AbortController();
    const at = version === "2" ? `${mount}metadata/${path}` : `${mount}${path}`;
    setKeys(undefined);
    get<{ data: { keys: string[] } }>(as("secrets", `/v1/${escape(at)}?list=true`), end.signal).then(
      (a) => {
        setKeys(a.data.keys);
        setProblem("");
      },
      (e) => {
        if (end.signal.aborted) return;
        setKeys([]);
        setProblem(e instanceof Problem && e.status === 404 ? "" : e instanceof Error ? e.message : String(e));
      },
    );
    return () => end.abort();
  }, [mount, version, path]);
  const parts = path.split("/").filter((p) => p !== "");
  const found = useSearch(mount, version, path, param("q"));
  const one = (k: string) =>
    version === "2" ? <a href={href(`/secrets?mount=${encodeURIComponent(mount)}&key=${encodeURIComponent(k)}`)}>{k.slice(path.length)}</a> : k.slice(path.length);
  const shown = param("q") === "" ? keys?.map((k) => path + k) : found.paths;
  const to = (p: string) => href(`/secrets?mount=${encodeURIComponent(mount)}&path=${encodeURIComponent(p)}`);
  return (
    <>
      <nav class="crumbs" aria-label={text.folder}>
        <a href={href("/secrets")}>{text.mounts}</a> / <a href={to("")}>{mount}</a>
        {parts.map((p, i) => (
          <a key={i} href={to(`${parts.slice(0, i + 1).join("/")}/`)}>
            {p}/
          </a>
        ))}
      </nav>
      {problem !== "" && <p class="problem">{problem}</p>}
      <Filter hint={text.pathsHint} />
      {param("q") !== "" && (
        <p class="words" role="status">
          {found.busy ? text.searching(count(found.folders)) : text.searched(count(found.folders), found.cut)}
        </p>
      )}
      {shown && (
        <Grid
          label={text.paths}
          rows={shown}
          id={(k) => k}
          empty={param("q") === "" ? text.noPaths(mount) : text.noMatch}
          columns={[
            { name: text.path, cell: (k) => (k.endsWith("/") ? <a href={to(k)}>{k.slice(path.length)}</a> : one(k)) },
            {
              name: text.command,
              cell: (k) => (k.endsWith("/") ? "" : <code>{`corbel secrets get ${mount}${k}`}</code>),
            },
          ]}
        />
      )}
    </>
  );
}

const mostNamed = 5; // leases that a question names

/** revoke asks whether the leases of a role shall end: it says first how many that hits, and which. */
async function revoke(mount: string, role: string, said: (problem: string) => void): Promise<void> {
  const at = escape(`${mount}${role}`);
  let ids: string[] = [];
  try {
    ids = (await get<{ data: { keys: string[] } }>(as("secrets", `/v1/sys/leases/lookup/${at}/?list=true`))).data.keys;
    said("");
  } catch (e) {
    if (!(e instanceof Problem && e.status === 404)) return said(e instanceof Error ? e.message : String(e));
  }
  asking.value = {
    title: text.revokeTitle(`${mount}${role}`),
    hits: (
      <>
        <p>{text.revokeHits(count(ids.length))}</p>
        <ul>
          {ids.slice(0, mostNamed).map((id) => (
            <li key={id}>
              <code>{`${mount}${role}/${id}`}</code>
            </li>
          ))}
        </ul>
        {ids.length > mostNamed && <p class="words">{text.moreChanges(count(ids.length - mostNamed))}</p>}
      </>
    ),
    write: { plane: "secrets", method: "PUT", path: `/v1/sys/leases/revoke-prefix/${at}`, body: { sync: false } },
    done: () => undefined,
  };
}

/** Secrets shows whose tokens and leases there are, what is being revoked, and which paths there are: never a value. */
export function Secrets() {
  const live = useLive<SecretsData>("secrets");
  const data = live.value.value;
  const [problem, said] = useState("");
  const mount = param("mount");
  const opened = data?.mounts?.secret[mount];
  if (mount !== "" && opened) {
    return (
      <>
        <Title words={param("key") !== "" && <a href={href(`/secrets?mount=${encodeURIComponent(mount)}`)}>{mount}</a>}>{param("key") || mount}</Title>
        {param("key") !== "" ? (
          <Secret key={param("key")} mount={mount} path={param("key")} />
        ) : (
        <Paths mount={mount} version={opened.options?.["version"] ?? "1"} path={param("path")} />
        )}
      </>
    );
  }
  const mounts = Object.entries(data?.mounts?.secret ?? {});
  const ends = [{ name: text.tokens, ...(data?.revocation?.tokens ?? { next_end: null, ending_within_hour: 0 }) }, ...(data?.revocation?.targets ?? []).map((t) => ({ name: t.mount, ...t }))]
    .filter((e) => e.next_end)
    .sort((a, b) => Date.parse(a.next_end ?? "") - Date.parse(b.next_end ?? ""));
  return (
    <>
      <Title
        of={live}
        words={data?.seal && <Mark state={data.seal.sealed ? "critical" : "passing"}>{data.seal.sealed ? text.sealed(data.seal.progress, data.seal.t) : text.unsealed}</Mark>}
      >
        {text.secrets}
      </Title>
      <Problems of={data?.problems} />
      {data && (
        <>
          <h2>{text.leases(count(data.attribution?.tokens ?? 0), count(data.attribution?.leases ?? 0))}</h2>
          <Grid
            label={text.roles}
            rows={data.attribution?.by_role ?? []}
            id={(r) => `${r.mount} ${r.role}`}
            empty={data.seal ? text.noLeases : text.noSecrets}
            columns={[
              { name: text.mount, cell: (r) => r.mount },
              { name: text.role, cell: (r) => r.role },
              { name: text.tokens, cell: (r) => count(r.tokens), number: true },
              { name: text.leasesCount, cell: (r) => count(r.leases), number: true },
              { name: text.grew, cell: (r) => signed(r.grew), number: true },
              {
                name: text.change,
                cell: (r) =>
                  r.leases > 0 && (
                    <button type="button" onClick={() => void revoke(r.mount, r.role, said)}>
                      {text.revoke}
                    </button>
                  ),
              },
            ]}
          />
          {problem !== "" && (
            <p class="problem" role="alert">
              {problem}
            </p>
          )}
          {(data.attribution?.by_entity.length ?? 0) > 0 && (
            <>
              <h2>{text.owners}</h2>
              <Grid
                label={text.owners}
                rows={data.attribution?.by_entity ?? []}
                id={(o) => `${o.namespace} ${o.entity}`}
                empty=""
                columns={[
                  { name: text.entity, cell: (o) => o.namespace + (o.name || o.entity) },
                  { name: text.tokens, cell: (o) => count(o.tokens), number: true },
                  { name: text.leasesCount, cell: (o) => count(o.leases), number: true },
                  { name: text.grew, cell: (o) => signed(o.grew), number: true },
                ]}
              />
            </>
          )}
          {data.attribution && <p class="words">{text.grownSince(ago(Date.parse(data.attribution.grown_since)))}</p>}
          {ends.length > 0 && (
            <>
              <h2>{text.nextEnds}</h2>
              <Grid
                label={text.nextEnds}
                rows={ends}
                id={(e) => e.name}
                empty=""
                columns={[
                  { name: text.mount, cell: (e) => e.name },
                  { name: text.nextEnd, cell: (e) => text.within(span(Math.max(0, Date.parse(e.next_end ?? "") - now.value))) },
                  { name: text.withinHour, cell: (e) => text.upTo(count(e.ending_within_hour)), number: true },
                ]}
              />
            </>
          )}
          {(data.revocation?.targets.length ?? 0) > 0 && (
            <>
              <h2>{text.revocation}</h2>
              <Grid
                label={text.revocation}
                rows={data.revocation?.targets ?? []}
                id={(t) => t.mount}
                empty=""
                columns={[
                  { name: text.mount, cell: (t) => <Mark state={t.failed > 0 ? "critical" : t.paused ? "warning" : "passing"}>{t.mount}</Mark> },
                  { name: text.due, cell: (t) => count(t.due), number: true },
                  { name: text.underWay, cell: (t) => count(t.in_flight), number: true },
                  { name: text.failedCount, cell: (t) => count(t.failed), number: true },
                  { name: text.output, cell: (t) => t.last_error },
                ]}
              />
            </>
          )}
          <h2>{text.mounts}</h2>
          <Grid
            label={text.mounts}
            rows={mounts}
            id={([path]) => path}
            empty={data.seal ? text.noMounts : text.noSecrets}
            columns={[
              {
                name: text.path,
                cell: ([path, m]) =>
                  m.type === "kv" ? (
                    <a href={href(`/secrets?mount=${encodeURIComponent(path)}`)}>{path}</a>
                  ) : (
                    path
                  ),
              },
              { name: text.type, cell: ([, m]) => (m.options?.["version"] ? `${m.type} ${m.options["version"]}` : m.type) },
              { name: text.ttl, cell: ([, m]) => (m.config.max_lease_ttl ? span(m.config.max_lease_ttl * 1000) : text.default_) },
              { name: text.description, cell: ([, m]) => m.description },
            ]}
          />
        </>
      )}
    </>
  );
}
