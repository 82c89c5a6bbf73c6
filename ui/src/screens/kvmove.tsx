import { useRef, useState } from "preact/hooks";
import { as, asking, quoted } from "../lib/act";
import { get, Problem, send } from "../lib/api";
import { go } from "../lib/route";
import { count } from "../lib/time";
import { text } from "../text";

/** Exported is a key as consul kv export writes it; value is base64. */
interface Exported {
  key: string;
  flags: number;
  value: string;
}

const most = { keys: 64, bytes: 256 * 1024 }; // of one transaction: what the catalog takes

/** groups cuts a list into transactions. */
function groups(list: Exported[]): Exported[][] {
  const out: Exported[][] = [];
  let bytes = 0;
  for (const x of list) {
    const last = out.at(-1);
    if (!last || last.length === most.keys || bytes + x.value.length > most.bytes) {
      out.push([x]);
      bytes = x.value.length;
    } else {
      last.push(x);
      bytes += x.value.length;
    }
  }
  return out;
}

/** read takes a file apart; undefined when it is no export. */
function read(content: string): Exported[] | undefined {
  try {
    const list = JSON.parse(content) as Exported[];
    const whole = Array.isArray(list) && list.every((x) => typeof x.key === "string" && x.key !== "" && typeof x.value === "string");
    return whole ? list.map((x) => ({ key: x.key, flags: x.flags ?? 0, value: x.value })) : undefined;
  } catch {
    return undefined;
  }
}

/** store writes keys, each group as one transaction. */
async function store(list: Exported[]): Promise<void> {
  for (const group of groups(list)) {
    const body = group.map((x) => ({ KV: { Verb: "set", Key: x.key, Value: x.value, Flags: x.flags } }));
    await send("PUT", as("catalog", "/v1/txn"), body);
  }
}

/** Move writes the keys below a prefix to a file, and those of a file to the store, in the form of consul kv export. */
export function Move(props: { prefix: string }) {
  const file = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState("");
  const path = props.prefix.split("/").map(encodeURIComponent).join("/");
  const out = async () => {
    try {
      const pairs = await get<{ Key: string; Flags: number; Value: string | null }[]>(as("catalog", `/v1/kv/${path}?recurse`));
      const list = pairs.map((p): Exported => ({ key: p.Key, flags: p.Flags, value: p.Value ?? "" }));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(list, null, "\t") + "\n"], { type: "application/json" }));
      link.download = `${props.prefix.replaceAll("/", "-") || "kv"}.json`.replace("-.", ".");
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      setProblem("");
    } catch (e) {
      setProblem(e instanceof Problem && e.status === 404 ? text.noKeys : e instanceof Error ? e.message : String(e));
    }
  };
  const take = async (f: File | undefined) => {
    const list = f && read(await f.text());
    if (file.current) file.current.value = "";
    if (!list) {
      setProblem(text.importWrong);
      return;
    }
    setProblem("");
    asking.value = {
      title: text.importTitle(count(list.length)),
      hits: <p>{text.importHits(count(list.length), `${count(Math.ceil(list.reduce((n, x) => n + x.value.length * 0.75, 0) / 1024))} kB`)}</p>,
      twin: `corbel kv import ${quoted(`@${f.name}`)}`,
      run: () => store(list),
      done: () => undefined,
    };
  };
  const copy = async (e: SubmitEvent) => {
    e.preventDefault();
    const to = String(new FormData(e.currentTarget as HTMLFormElement).get("to")).replace(/^\/+|\/*$/g, "") + "/";
    if (to === "/" || to === props.prefix) return;
    try {
      const pairs = await get<{ Key: string; Flags: number; Value: string | null }[]>(as("catalog", `/v1/kv/${path}?recurse`));
      const list = pairs.map((p): Exported => ({ key: to + p.Key.slice(props.prefix.length), flags: p.Flags, value: p.Value ?? "" }));
      const at = to.split("/").map(encodeURIComponent).join("/");
      const there = new Set(await get<string[]>(as("catalog", `/v1/kv/${at}?keys`)).catch(() => []));
      setProblem("");
      asking.value = {
        title: text.copyTitle(props.prefix, to),
        hits: <p>{text.copyHits(count(list.length), to, count(list.filter((x) => there.has(x.key)).length))}</p>,
        twin: `corbel kv export ${quoted(props.prefix)} | sed ${quoted(`s|"key": "${props.prefix}|"key": "${to}|`)} | corbel kv import -`,
        run: () => store(list),
        done: () => go(`/kv/${at}`),
      };
    } catch (e) {
      setProblem(e instanceof Problem && e.status === 404 ? text.noKeys : e instanceof Error ? e.message : String(e));
    }
  };
  return (
    <>
      <button type="button" onClick={() => void out()}>
        {text.exportKeys}
      </button>
      <button type="button" onClick={() => file.current?.click()}>
        {text.importKeys}
      </button>
      <input ref={file} type="file" accept="application/json,.json" hidden aria-label={text.importKeys} onChange={(e) => void take(e.currentTarget.files?.[0])} />
      {props.prefix !== "" && (
        <form onSubmit={(e) => void copy(e)}>
          <input name="to" aria-label={text.copyFolderTo} placeholder={text.copyFolderTo} required /> <button type="submit">{text.copyFolder}</button>
        </form>
      )}
      {problem !== "" && (
        <span class="problem" role="alert">
          {problem}
        </span>
      )}
    </>
  );
}
