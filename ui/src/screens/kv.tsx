import { useEffect, useRef, useState } from "preact/hooks";
import { asking, as, curl, type Write } from "../lib/act";
import { Problem, get, send } from "../lib/api";
import { Difference } from "../lib/difference";
import { Copy, Filter, Title } from "../lib/parts";
import { go, href, param, setParam } from "../lib/route";
import { Table } from "../lib/table";
import { useLive, usePages } from "../lib/use";
import { ago, bytes, clock, count } from "../lib/time";
import { text } from "../text";
import { Move } from "./kvmove";

interface Entry {
  /** key is the whole key; a folder ends in "/". */
  key: string;
  folder: boolean;
  keys: number;
  bytes: number;
  /** at is when it was written last, in seconds since 1970; 0 is unknown. */
  at: number;
}

/** Folder lists what is directly below a prefix. */
export function Folder(props: { prefix: string }) {
  const { prefix } = props;
  const all = param("all");
  const create = (e: SubmitEvent) => {
    e.preventDefault();
    const name = String(new FormData(e.currentTarget as HTMLFormElement).get("name"));
    go(`/kv/${encode(prefix + name)}?key=1`);
  };
  const { live, page, onMiddle } = usePages<Entry>(
    `kv?prefix=${encodeURIComponent(prefix)}&q=${encodeURIComponent(param("q"))}&all=${all}`,
  );
  const to = (e: Entry) => (e.folder ? `/kv/${encode(e.key)}` : `/kv/${encode(e.key)}?key=1`);
  return (
    <>
      <Title of={live}>{text.kv}</Title>
      <Crumbs prefix={prefix} />
      <div class="bar">
        <Filter hint={text.kvHint} problem={page?.problem} />
        <button type="button" aria-pressed={all !== ""} onClick={() => setParam("all", all === "" ? "1" : "")}>
          {text.recursive}
        </button>
        <Move prefix={prefix} />
        <form onSubmit={create}>
          <input name="name" aria-label={text.newKey} placeholder={text.newKey} required />{" "}
          <button type="submit">{text.create}</button>
        </form>
      </div>
      {page && (
        <Table
          label={text.kv}
          page={page}
          onMiddle={onMiddle}
          id={(e) => e.key}
          columns={[
            { name: text.key, cell: (e) => <a href={href(to(e))}>{e.key.slice(prefix.length)}</a>, wide: true },
            { name: text.keysCount, cell: (e) => (e.folder ? count(e.keys) : ""), number: true },
            { name: text.size, cell: (e) => bytes(e.bytes), number: true },
            { name: text.written, cell: (e) => (e.at > 0 ? ago(e.at * 1000) : ""), number: true },
          ]}
          href={to}
          empty={page.all === 0 ? text.noKeys : text.noMatch}
        />
      )}
    </>
  );
}

const encode = (key: string): string => key.split("/").map(encodeURIComponent).join("/");

function Crumbs(props: { prefix: string }) {
  const parts = props.prefix.split("/").filter((p) => p !== "");
  return (
    <nav class="crumbs" aria-label={text.folder}>
      <a href={href("/kv")}>/</a>
      {parts.map((p, i) => (
        <a key={i} href={href(`/kv/${encode(parts.slice(0, i + 1).join("/"))}/`)}>
          {p}/
        </a>
      ))}
    </nav>
  );
}

/** Pair is an entry as the catalog's API has it; Value is base64, null without one. */
interface Pair {
  Key: string;
  Value: string | null;
  Flags: number;
  ModifyIndex: number;
  Session?: string;
}

/** Last is who wrote a key last, and when; index is 0 while there is none. */
interface Last {
  index: number;
  at: number;
  /** by is the accessor of a token, name its description for those who may read that. */
  by?: string;
  name?: string;
  /** holder is the session that holds the key's lock. */
  holder?: string;
}

/** said are the words for who wrote a key last, and when. */
function said(last: Last): string {
  const words = [];
  if (last.at > 0) words.push(text.writtenAt(ago(last.at * 1000), clock(last.at * 1000)));
  if (last.by) words.push(last.name ? text.writtenBy(last.name, last.by) : text.writtenByToken(last.by));
  if (last.holder) words.push(text.lockedBy(last.holder));
  return words.join(" · ");
}

/** at is a key in the catalog's own API. */
const at = (name: string): string => `/v1/kv/${encode(name)}`;

/** Key shows a value first; it changes only after Edit, with check-and-set, and its flags are kept. */
export function Key(props: { name: string }) {
  const { name } = props;
  const [pair, setPair] = useState<Pair>();
  const [draft, setDraft] = useState<string>();
  const [problem, setProblem] = useState("");
  const live = useLive<Last>(`key?name=${encodeURIComponent(name)}`);
  const last = live.value.value;
  const load = async (end?: AbortSignal) => {
    try {
      const list = await get<Pair[]>(as("catalog", at(name)), end);
      setPair(list[0]);
      setProblem("");
    } catch (e) {
      if (e instanceof Problem && e.status === 404) {
        setPair({ Key: name, Value: "", Flags: 0, ModifyIndex: 0 });
        setDraft("");
      } else if (!end?.aborted) setProblem(e instanceof Problem ? e.message : String(e));
    }
  };
  useEffect(() => {
    const end = new AbortController();
    void load(end.signal);
    return () => end.abort();
  }, [name]);
  // What is read follows the key; what is written stays, and says that the key has changed beneath it.
  // An older index is of before the newest save, whose news are on their way.
  const read = pair?.ModifyIndex ?? 0;
  const seen = useRef(0);
  const newer = last !== undefined && read > 0 && last.index > read;
  const gone = last?.index === 0 && read > 0 && seen.current === read;
  if (last && last.index > 0) seen.current = last.index;
  useEffect(() => {
    if (!newer || draft !== undefined) return;
    const end = new AbortController();
    void load(end.signal);
    return () => end.abort();
  }, [last?.index]);
  const stale = gone ? text.deletedMeanwhile : newer && draft !== undefined ? text.changedMeanwhile : "";
  const shown = pair && decode(pair.Value ?? "");
  const write: Write = {
    plane: "catalog",
    method: "PUT",
    path: `${at(name)}?cas=${pair?.ModifyIndex ?? 0}&flags=${pair?.Flags ?? 0}`,
    body: draft,
  };
  const folder = `/kv/${encode(name.slice(0, name.lastIndexOf("/") + 1))}`;
  const remove = () => {
    asking.value = {
      title: text.deleteTitle(name),
      hits: <p>{text.deleteHits}</p>,
      write: { plane: "catalog", method: "DELETE", path: `${at(name)}?cas=${pair?.ModifyIndex ?? 0}` },
      done: () => go(folder),
    };
  };
  const save = async () => {
    if (!pair || draft === undefined) return;
    try {
      const done = await send<boolean>(write.method, as("catalog", write.path), draft);
      if (!done) {
        setProblem(text.changedMeanwhile);
        return;
      }
      setDraft(undefined);
      await load();
    } catch (e) {
      setProblem(e instanceof Problem ? e.message : String(e));
    }
  };
  return (
    <>
      <Title of={live} words={pair && pair.ModifyIndex > 0 && `${text.flags} ${pair.Flags}`}>
        {name}
      </Title>
      <Crumbs prefix={name.slice(0, name.lastIndexOf("/") + 1)} />
      {last && last.index > 0 && <p class="words">{said(last)}</p>}
      {stale !== "" && stale !== problem && (
        <p class="problem" role="status">
          {stale}
        </p>
      )}
      {problem !== "" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {shown && draft === undefined && (
        <>
          {shown.binary && <p class="words">{text.binary}</p>}
          <pre class="value">{shown.text}</pre>
          {!shown.binary && (
            <button type="button" class="primary" onClick={() => setDraft(shown.text)}>
              {text.edit}
            </button>
          )}
          <button type="button" onClick={remove}>
            {text.delete_}
          </button>
        </>
      )}
      {shown && draft !== undefined && (
        <>
          <Difference before={shown.text} after={draft} />
          <label>
            <span class="unseen">{text.value}</span>
            <textarea rows={16} spellcheck={false} value={draft} onInput={(e) => setDraft(e.currentTarget.value)} />
          </label>
          <p class="words">{text.saveHits}</p>
          <pre class="curl">{curl(write)}</pre>
          <button type="button" class="primary" disabled={draft === shown.text && pair?.ModifyIndex !== 0} onClick={save}>
            {text.save}
          </button>
          <Copy what={curl(write)} label={text.copyCommand} />
          <button
            type="button"
            onClick={() => {
              setDraft(undefined);
              void load();
            }}
          >
            {text.cancel}
          </button>
        </>
      )}
      <p>
        <button type="button" onClick={() => go(folder)}>
          {text.close}
        </button>
      </p>
    </>
  );
}

function decode(value: string): { text: string; binary: boolean } {
  const bytes = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), binary: false };
  } catch {
    return { text: value, binary: true };
  }
}
