import { useEffect, useState } from "preact/hooks";
import { Problem, get, send } from "../lib/api";
import { Age, Filter } from "../lib/parts";
import { go, href, param } from "../lib/route";
import { Table } from "../lib/table";
import { usePages } from "../lib/use";
import { text } from "../text";

interface Entry {
  /** key is the whole key; a folder ends in "/". */
  key: string;
  folder: boolean;
}

/** Folder lists what is directly below a prefix. */
export function Folder(props: { prefix: string }) {
  const { prefix } = props;
  const { live, page, onMiddle } = usePages<Entry>(
    `kv?prefix=${encodeURIComponent(prefix)}&q=${encodeURIComponent(param("q"))}`,
  );
  const to = (e: Entry) => (e.folder ? `/kv/${encode(e.key)}` : `/kv/${encode(e.key)}?key=1`);
  return (
    <>
      <h1>{text.kv}</h1>
      <Crumbs prefix={prefix} />
      <Filter hint={text.kvHint} problem={page?.problem} />
      <Age of={live} />
      {page && (
        <Table
          label={text.kv}
          page={page}
          onMiddle={onMiddle}
          id={(e) => e.key}
          columns={[{ name: text.key, cell: (e) => <a href={href(to(e))}>{e.key.slice(prefix.length)}</a>, wide: true }]}
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

/** at is a key in the catalog's own API, asked for as the person. */
const at = (name: string): string => `/ui/api/as/catalog/v1/kv/${encode(name)}`;

/** Key shows a value first; it changes only after Edit, with check-and-set, and its flags are kept. */
export function Key(props: { name: string }) {
  const { name } = props;
  const [pair, setPair] = useState<Pair>();
  const [draft, setDraft] = useState<string>();
  const [problem, setProblem] = useState("");
  const load = async (end?: AbortSignal) => {
    try {
      const list = await get<Pair[]>(at(name), end);
      setPair(list[0]);
      setProblem("");
    } catch (e) {
      if (!end?.aborted) setProblem(e instanceof Problem ? e.message : String(e));
    }
  };
  useEffect(() => {
    const end = new AbortController();
    void load(end.signal);
    return () => end.abort();
  }, [name]);
  const shown = pair && decode(pair.Value ?? "");
  const save = async () => {
    if (!pair || draft === undefined) return;
    try {
      const done = await send<boolean>("PUT", `${at(name)}?cas=${pair.ModifyIndex}&flags=${pair.Flags}`, draft);
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
      <h1>{name}</h1>
      <Crumbs prefix={name.slice(0, name.lastIndexOf("/") + 1)} />
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
            <button type="button" onClick={() => setDraft(shown.text)}>
              {text.edit}
            </button>
          )}
        </>
      )}
      {shown && draft !== undefined && (
        <>
          <Difference before={shown.text} after={draft} />
          <label>
            <span class="unseen">{text.value}</span>
            <textarea rows={16} spellcheck={false} value={draft} onInput={(e) => setDraft(e.currentTarget.value)} />
          </label>
          <button type="button" disabled={draft === shown.text} onClick={save}>
            {text.save}
          </button>
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
        <button type="button" onClick={() => go(`/kv/${encode(name.slice(0, name.lastIndexOf("/") + 1))}`)}>
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

/** Difference shows the lines that saving takes out and puts in: what is alike at both ends is left out. */
function Difference(props: { before: string; after: string }) {
  const before = props.before.split("\n");
  const after = props.after.split("\n");
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (
    tail < before.length - head &&
    tail < after.length - head &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  )
    tail++;
  const out = before.slice(head, before.length - tail);
  const put = after.slice(head, after.length - tail);
  if (out.length === 0 && put.length === 0) return null;
  return (
    <pre class="difference">
      {out.map((line, i) => (
        <del key={`o${i}`}>- {line}</del>
      ))}
      {put.map((line, i) => (
        <ins key={`p${i}`}>+ {line}</ins>
      ))}
    </pre>
  );
}
