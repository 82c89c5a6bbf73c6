import { useEffect, useState } from "preact/hooks";
import { as, asking } from "../lib/act";
import { get, Problem } from "../lib/api";
import { Grid } from "../lib/grid";
import { Mark, type State } from "../lib/parts";
import { ago } from "../lib/time";
import { text } from "../text";
import { escape } from "./secrets";

interface Version {
  created_time: string;
  deletion_time: string;
  destroyed: boolean;
}

type Data = Record<string, unknown>;

const stateOf = (v: Version): "current" | "deleted" | "destroyed" =>
  v.destroyed ? "destroyed" : v.deletion_time !== "" && Date.parse(v.deletion_time) <= Date.now() ? "deleted" : "current";

const marks: Record<string, [State, string]> = {
  current: ["passing", text.current],
  deleted: ["warning", text.deletedState],
  destroyed: ["critical", text.destroyedState],
};

/** Secret shows the versions of a path. Values are read only for a comparison, and shown only to who asks. */
export function Secret(props: { mount: string; path: string }) {
  const { mount, path } = props;
  const [versions, setVersions] = useState<[number, Version][]>();
  const [problem, setProblem] = useState("");
  const [compared, setCompared] = useState<{ before: number; after: number; a: Data; b: Data }>();
  const at = (kind: string) => `/v1/${escape(`${mount}${kind}/${path}`)}`;
  const said = (e: unknown) => setProblem(e instanceof Error ? e.message : String(e));
  const load = (end?: AbortSignal) =>
    get<{ data: { versions: Record<string, Version> } }>(as("secrets", at("metadata")), end).then(
      (a) => {
        setVersions(Object.entries(a.data.versions).map(([n, v]): [number, Version] => [Number(n), v]).sort((x, y) => y[0] - x[0]));
        setProblem("");
      },
      (e) => !end?.aborted && said(e),
    );
  useEffect(() => {
    const end = new AbortController();
    void load(end.signal);
    return () => end.abort();
  }, [mount, path]);
  const change = (kind: "delete" | "undelete" | "destroy", n: number) => {
    const [title, hits] = {
      delete: [text.deleteVersionTitle(n, path), text.deleteVersionHits],
      undelete: [text.undeleteTitle(n, path), text.undeleteHits],
      destroy: [text.destroyTitle(n, path), text.destroyHits],
    }[kind] as [string, string];
    asking.value = {
      title,
      hits: <p>{hits}</p>,
      write: { plane: "secrets", method: "PUT", path: at(kind), body: { versions: [n] } },
      done: () => {
        setCompared(undefined);
        void load();
      },
    };
  };
  const data = async (n: number): Promise<Data> => {
    if (n === 0) return {};
    try {
      return (await get<{ data: { data: Data | null } }>(as("secrets", `${at("data")}?version=${n}`))).data.data ?? {};
    } catch (e) {
      if (e instanceof Problem && e.status === 404) return {}; // deleted, or no longer kept
      throw e;
    }
  };
  const compare = async (n: number) => {
    const before = versions?.find(([m, v]) => m < n && stateOf(v) === "current")?.[0] ?? 0;
    try {
      setCompared({ before, after: n, a: await data(before), b: await data(n) });
    } catch (e) {
      said(e);
    }
  };
  return (
    <>
      {problem !== "" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {versions && (
        <Grid
          label={text.versions}
          rows={versions}
          id={([n]) => String(n)}
          empty={text.nothing}
          columns={[
            { name: text.version, cell: ([n]) => String(n), number: true },
            { name: text.state, cell: ([, v]) => <Mark state={marks[stateOf(v)]?.[0] ?? "unknown"}>{marks[stateOf(v)]?.[1]}</Mark> },
            { name: text.created, cell: ([, v]) => ago(Date.parse(v.created_time)) },
            {
              name: text.change,
              cell: ([n, v]) => (
                <>
                  {stateOf(v) === "current" && <button onClick={() => void compare(n)}>{text.compare}</button>}{" "}
                  {stateOf(v) === "current" && <button onClick={() => change("delete", n)}>{text.delete_}</button>}{" "}
                  {stateOf(v) === "deleted" && <button onClick={() => change("undelete", n)}>{text.undelete}</button>}{" "}
                  {stateOf(v) !== "destroyed" && <button onClick={() => change("destroy", n)}>{text.destroy}</button>}
                </>
              ),
            },
          ]}
        />
      )}
      {compared && <Fields key={`${compared.before} ${compared.after}`} {...compared} />}
    </>
  );
}

const words = (v: unknown): string => (v === undefined ? "" : typeof v === "string" ? v : JSON.stringify(v));

/** Fields tells which fields differ between two versions; their values only when that is asked. */
function Fields(props: { before: number; after: number; a: Data; b: Data }) {
  const { a, b } = props;
  const [open, setOpen] = useState(false);
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].sort();
  const how = (name: string): [State, string] => {
    if (!(name in a)) return ["passing", text.fieldAdded];
    if (!(name in b)) return ["critical", text.fieldRemoved];
    return words(a[name]) === words(b[name]) ? ["unknown", text.fieldSame] : ["warning", text.fieldChanged];
  };
  const value = (v: unknown) => (v === undefined ? "" : open ? words(v) : text.hidden);
  return (
    <>
      <h2>{text.differs(props.before, props.after)}</h2>
      <Grid
        label={text.differs(props.before, props.after)}
        rows={names}
        id={(n) => n}
        empty={text.nothingDiffers}
        columns={[
          { name: text.field, cell: (n) => n },
          { name: text.change, cell: (n) => <Mark state={how(n)[0]}>{how(n)[1]}</Mark> },
          ...(props.before > 0 ? [{ name: `${text.version} ${props.before}`, cell: (n: string) => <code>{value(a[n])}</code> }] : []),
          { name: `${text.version} ${props.after}`, cell: (n) => <code>{value(b[n])}</code> },
        ]}
      />
      <p>
        <button type="button" aria-pressed={open} onClick={() => setOpen(!open)}>
          {open ? text.hideValues : text.showValues}
        </button>
      </p>
    </>
  );
}
