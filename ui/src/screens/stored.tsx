// What the catalog keeps beside its keys: config entries and prepared queries. They are read first, and changed after
// Edit, with a difference and against the index that was read.
import { useEffect, useState } from "preact/hooks";
import { as, asking, curl, perform, type Write } from "../lib/act";
import { get, Problem } from "../lib/api";
import { Difference } from "../lib/difference";
import { Copy, Filter, Title } from "../lib/parts";
import { go, href, param, path } from "../lib/route";
import { Table } from "../lib/table";
import { bytes } from "../lib/time";
import { usePages } from "../lib/use";
import { text } from "../text";

/** kept are the lists of what the catalog keeps. */
const kept: [string, string][] = [
  ["/kv", text.kv],
  ["/entries", text.entries],
  ["/queries", text.queries],
];

/** isKept tells whether a path is of one of these lists. */
export const isKept = (at: string): boolean => kept.some(([to]) => at === to || at.startsWith(`${to}/`));

/** Kept leads from one of these lists to another. */
export function Kept() {
  return (
    <nav class="kinds" aria-label={text.kept}>
      {kept.map(([to, name]) => (
        <a key={to} href={href(to)} aria-current={path.value === to || path.value.startsWith(`${to}/`) ? "page" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}

interface EntryRow {
  kind: string;
  name: string;
  bytes: number;
  index: number;
}

const kinds = [
  "service-defaults",
  "proxy-defaults",
  "service-router",
  "service-splitter",
  "service-resolver",
  "service-intentions",
  "ingress-gateway",
  "terminating-gateway",
  "api-gateway",
  "http-route",
  "tcp-route",
  "inline-certificate",
  "file-system-certificate",
  "jwt-provider",
  "exported-services",
  "mesh",
];

const entryPath = (kind: string, name: string): string => `/entries/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`;

/** Entries lists config entries of all kinds. */
export function Entries() {
  const { live, page, onMiddle } = usePages<EntryRow>(`entries?q=${encodeURIComponent(param("q"))}`);
  const create = (e: SubmitEvent) => {
    e.preventDefault();
    const data = new FormData(e.currentTarget as HTMLFormElement);
    go(entryPath(String(data.get("kind")), String(data.get("name"))));
  };
  return (
    <>
      <Title of={live}>{text.entries}</Title>
      <Kept />
      <div class="bar">
        <Filter hint={text.entriesHint} problem={page?.problem} />
        <form onSubmit={create}>
          <select name="kind" aria-label={text.kind}>
            {kinds.map((k) => (
              <option key={k}>{k}</option>
            ))}
          </select>{" "}
          <input name="name" aria-label={text.name} placeholder={text.name} required /> <button type="submit">{text.create}</button>
        </form>
      </div>
      {page && (
        <Table
          label={text.entries}
          page={page}
          onMiddle={onMiddle}
          id={(e) => `${e.kind}/${e.name}`}
          href={(e) => entryPath(e.kind, e.name)}
          columns={[
            { name: text.kind, cell: (e) => e.kind },
            { name: text.name, cell: (e) => <a href={href(entryPath(e.kind, e.name))}>{e.name}</a>, wide: true },
            { name: text.size, cell: (e) => bytes(e.bytes), number: true },
          ]}
          empty={page.all === 0 ? text.noEntries : text.noMatch}
        />
      )}
    </>
  );
}

interface QueryRow {
  id: string;
  name: string;
  service: string;
  tags: string[];
  template: boolean;
  failover: string[];
}

const queryPath = (id: string): string => `/queries/${encodeURIComponent(id)}`;

/** Queries lists prepared queries. */
export function Queries() {
  const { live, page, onMiddle } = usePages<QueryRow>(`queries?q=${encodeURIComponent(param("q"))}`);
  return (
    <>
      <Title of={live}>{text.queries}</Title>
      <Kept />
      <div class="bar">
        <Filter hint={text.queriesHint} problem={page?.problem} />
        <button type="button" onClick={() => go("/queries/new")}>
          {text.create}
        </button>
      </div>
      {page && (
        <Table
          label={text.queries}
          page={page}
          onMiddle={onMiddle}
          id={(q) => q.id}
          href={(q) => queryPath(q.id)}
          columns={[
            { name: text.name, cell: (q) => <a href={href(queryPath(q.id))}>{q.name || q.id}</a>, wide: true },
            { name: text.service, cell: (q) => <a href={href(`/services/${encodeURIComponent(q.service)}`)}>{q.service}</a> },
            { name: text.tags, cell: (q) => q.tags.join(" ") },
            { name: text.template, cell: (q) => (q.template ? text.templateOf(q.name) : "") },
            { name: text.failover, cell: (q) => q.failover.join(" ") },
          ]}
          empty={page.all === 0 ? text.noQueries : text.noMatch}
        />
      )}
    </>
  );
}

/** indexes are what the catalog adds to an object: they are no part of it. */
const indexes = ["CreateIndex", "ModifyIndex", "Hash", "Status"];

type Thing = Record<string, unknown> & { ModifyIndex?: number };

const shown = (o: Thing): string => JSON.stringify(Object.fromEntries(Object.entries(o).filter(([k]) => !indexes.includes(k))), null, 2);

/** masked hides private keys until somebody edits them. */
const masked = (o: Thing): string => shown("PrivateKey" in o ? { ...o, PrivateKey: text.hidden } : o);

/** Of says where an object is read, how it is written and deleted, and what these hit. */
interface Of {
  title: string;
  back: string;
  /** read is its path in the catalog's API; "" where it is not there yet. */
  read: string;
  fresh: Thing;
  write: (body: string, index: number) => Write;
  remove: (index: number) => Write;
  hits: string;
}

/** Keep shows an object, and changes it against the index that was read. */
function Keep(props: { of: Of }) {
  const { of } = props;
  const [thing, setThing] = useState<Thing>();
  const [draft, setDraft] = useState<string>();
  const [problem, setProblem] = useState("");
  const said = (e: unknown) => setProblem(e instanceof Error ? e.message : String(e));
  const read = async (end?: AbortSignal): Promise<Thing | undefined> => {
    if (of.read === "") return undefined;
    try {
      const answer = await get<Thing | Thing[]>(as("catalog", of.read), end);
      return Array.isArray(answer) ? answer[0] : answer;
    } catch (e) {
      if (e instanceof Problem && e.status === 404) return undefined;
      throw e;
    }
  };
  const load = async (end?: AbortSignal) => {
    try {
      const now = await read(end);
      setThing(now ?? of.fresh);
      setDraft(now ? undefined : shown(of.fresh));
      setProblem("");
    } catch (e) {
      if (!end?.aborted) said(e);
    }
  };
  useEffect(() => {
    const end = new AbortController();
    void load(end.signal);
    return () => end.abort();
  }, [of.read]);
  if (!thing) return <Head of={of} problem={problem} />;
  const index = thing.ModifyIndex ?? 0;
  const before = shown(thing);
  const write = of.write(draft ?? "", index);
  const save = async () => {
    try {
      JSON.parse(draft ?? "");
      if (((await read())?.ModifyIndex ?? 0) !== index || (await perform(write)) === false) {
        setProblem(text.changedMeanwhile);
        return;
      }
      if (of.read === "") go(of.back);
      else await load();
    } catch (e) {
      said(e);
    }
  };
  const remove = () => {
    asking.value = { title: text.deleteTitle(of.title), hits: <p>{of.hits}</p>, write: of.remove(index), done: () => go(of.back) };
  };
  return (
    <>
      <Head of={of} problem={problem} />
      {draft === undefined ? (
        <>
          <pre class="value" tabIndex={0} aria-label={of.title}>
            {masked(thing)}
          </pre>
          {thing["Status"] !== undefined && (
            <>
              <h2>{text.state}</h2>
              <pre class="value" tabIndex={0} aria-label={text.state}>
                {JSON.stringify(thing["Status"], null, 2)}
              </pre>
            </>
          )}
          <button type="button" class="primary" onClick={() => setDraft(before)}>
            {text.edit}
          </button>
          <button type="button" onClick={remove}>
            {text.delete_}
          </button>
        </>
      ) : (
        <>
          <Difference before={index === 0 ? "" : before} after={draft} />
          <label>
            <span class="unseen">{text.value}</span>
            <textarea rows={16} spellcheck={false} value={draft} onInput={(e) => setDraft(e.currentTarget.value)} />
          </label>
          <p class="words">
            {of.hits} {text.saveHits}
          </p>
          <pre class="curl">{curl(write)}</pre>
          <button type="button" class="primary" disabled={draft === before && index !== 0} onClick={() => void save()}>
            {text.save}
          </button>
          <Copy what={curl(write)} label={text.copyCommand} />
          <button type="button" onClick={() => (index === 0 ? go(of.back) : void load())}>
            {text.cancel}
          </button>
        </>
      )}
    </>
  );
}

function Head(props: { of: Of; problem: string }) {
  return (
    <>
      <Title>{props.of.title}</Title>
      <Kept />
      {props.problem !== "" && (
        <p class="problem" role="alert">
          {props.problem}
        </p>
      )}
    </>
  );
}

/** Entry is a config entry; name is kind/name. */
export function Entry(props: { name: string }) {
  const [kind = "", ...rest] = props.name.split("/");
  const name = rest.join("/");
  const at = `/v1/config/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`;
  return (
    <Keep
      of={{
        title: `${kind} ${name}`,
        back: "/entries",
        read: at,
        fresh: { Kind: kind, Name: name },
        write: (body, index) => ({ plane: "catalog", method: "PUT", path: `/v1/config?cas=${index}`, body }),
        remove: (index) => ({ plane: "catalog", method: "DELETE", path: `${at}?cas=${index}` }),
        hits: text.entryHits,
      }}
    />
  );
}

/** Query is a prepared query by its id; "new" is one that is to be made. */
export function Query(props: { id: string }) {
  const fresh = props.id === "new";
  const at = fresh ? "" : `/v1/query/${encodeURIComponent(props.id)}`;
  return (
    <Keep
      of={{
        title: fresh ? text.newQuery : text.queryOf(props.id),
        back: "/queries",
        read: at,
        fresh: { Name: "", Service: { Service: "", OnlyPassing: true } },
        write: (body) => ({ plane: "catalog", method: fresh ? "POST" : "PUT", path: fresh ? "/v1/query" : at, body }),
        remove: () => ({ plane: "catalog", method: "DELETE", path: at }),
        hits: text.queryHits,
      }}
    />
  );
}
