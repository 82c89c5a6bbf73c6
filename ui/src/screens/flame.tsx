import { useEffect, useMemo, useState } from "preact/hooks";
import { as } from "../lib/act";
import { get, Problem } from "../lib/api";
import { Grid } from "../lib/grid";
import { secretsAlone } from "../lib/me";
import { clock, count } from "../lib/time";
import { text } from "../text";

/** Frame is a function with what was spent in it and below. */
interface Frame {
  n: string;
  v: number;
  c?: Frame[];
}

interface Profile {
  at: number;
  root: Frame;
}

const profileOf = (kind: string): string =>
  secretsAlone()
    ? as("secrets", `/v1/sys/doctor/profile?kind=${kind}&format=tree`)
    : as("catalog", `/v1/doctor/profile?kind=${kind}&format=tree`);

const kinds = ["cpu", "blocked", "mutex", "waiting", "heap"];
const rowHeight = 18; // px
const thinnest = 0.001; // of the width, below which a frame is not drawn

/** Box is a frame as it is drawn: left and width are shares. */
interface Box {
  frame: Frame;
  path: string;
  level: number;
  left: number;
  width: number;
}

const join = (path: string, name: string): string => `${path}\n${name}`;

function boxes(root: Frame, path: string): Box[] {
  const out: Box[] = [];
  const walk = (frame: Frame, at: string, level: number, left: number): void => {
    const width = frame.v / root.v;
    if (!(width >= thinnest)) return;
    out.push({ frame, path: at, level, left, width });
    let x = left;
    for (const c of frame.c ?? []) {
      walk(c, join(at, c.n), level + 1, x);
      x += c.v / root.v;
    }
  };
  walk(root, path, 0, 0);
  return out;
}

/** shares are the shares of all frames of a profile by their paths. */
function shares(p: Profile): Map<string, number> {
  const out = new Map<string, number>();
  const walk = (f: Frame, path: string): void => {
    out.set(path, f.v / Math.max(p.root.v, 1));
    for (const c of f.c ?? []) walk(c, join(path, c.n));
  };
  walk(p.root, p.root.n);
  return out;
}

/** at is the frame of a path; undefined when a newer profile has none such. */
function at(root: Frame, path: string): Frame | undefined {
  let f: Frame | undefined = root;
  for (const name of path.split("\n").slice(1)) f = f?.c?.find((c) => c.n === name);
  return f;
}

const family = (name: string): string => (name.includes("corbel.dev/") ? "own" : name.includes(".") && !name.includes("/") ? "runtime" : "others");

/** kept are profiles to compare with, by kind: they stay while the page is open. */
const kept = new Map<string, Profile>();

/**
 * Flame is where this server's time goes: click to zoom, search to highlight, compare with an hour ago, or keep one
 * profile to compare the next.
 */
export function Flame() {
  const [kind, setKind] = useState("");
  const [profile, setProfile] = useState<Profile>();
  const [problem, setProblem] = useState("");
  const [zoom, setZoom] = useState("");
  const [word, setWord] = useState("");
  const [before, setBefore] = useState<Profile>();
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (kind === "") return;
    const end = new AbortController();
    get<Profile>(profileOf(kind), end.signal).then(
      (p) => {
        setProfile(p);
        setProblem("");
        setBefore(kept.get(kind));
      },
      (e) => {
        if (end.signal.aborted) return;
        setProfile(undefined);
        setProblem(e instanceof Problem && e.status === 404 ? text.noProfile : e instanceof Error ? e.message : String(e));
      },
    );
    return () => end.abort();
  }, [kind, turn]);
  const hourAgo = async () => {
    try {
      const old = await get<Profile>(`${profileOf(kind)}&ago=1h`);
      if (old.at === profile?.at) setProblem(text.noOldProfile);
      else setBefore(old);
    } catch (e) {
      setProblem(e instanceof Error ? e.message : String(e));
    }
  };
  const top = profile && (at(profile.root, zoom) ?? profile.root);
  const path = top === profile?.root ? (profile?.root.n ?? "") : zoom;
  const drawn = useMemo(() => (top ? boxes(top, path) : []), [top, path]);
  const own = useMemo(() => (top ? spent(top) : []), [top]);
  const was = useMemo(() => before && shares(before), [before]);
  const whole = Math.max(profile?.root.v ?? 1, 1);
  const hits = (f: Frame): boolean => word !== "" && f.n.toLowerCase().includes(word.toLowerCase());
  const levels = drawn.reduce((n, b) => Math.max(n, b.level), 0) + 1;
  return (
    <>
      <h2>{text.flame}</h2>
      <div class="ask">
        {kinds.map((k) => (
          <button
            key={k}
            type="button"
            aria-pressed={k === kind}
            onClick={() => {
              setZoom("");
              setKind(k);
              setTurn(turn + 1);
            }}
          >
            {k}
          </button>
        ))}
        {profile && (
          <>
            <input type="search" aria-label={text.highlight} placeholder={text.highlight} spellcheck={false} value={word} onInput={(e) => setWord(e.currentTarget.value)} />
            <button
              type="button"
              onClick={() => {
                kept.set(kind, profile);
                setBefore(profile);
              }}
            >
              {text.keepProfile}
            </button>
            <button type="button" onClick={() => void hourAgo()}>
              {text.hourAgo}
            </button>
            {top !== profile.root && (
              <button type="button" onClick={() => setZoom("")}>
                {text.wholeGraph}
              </button>
            )}
          </>
        )}
      </div>
      {problem !== "" && <p class="empty">{problem}</p>}
      {profile && (
        <p class="words" role="status">
          {text.taken(clock(profile.at))}
          {before && before.at !== profile.at && ` ${text.comparedWith(clock(before.at))}`}
          {word !== "" && ` ${text.highlighted(share(highlighted(profile.root, hits) / whole))}`}
        </p>
      )}
      {profile && (
        <div class="flames" tabIndex={0} role="group" aria-label={text.flameOf(kind)} style={{ height: `${levels * rowHeight}px` }}>
          {drawn.map((b) => {
            const part = b.frame.v / whole;
            const change = was && before?.at !== profile.at ? part - (was.get(b.path) ?? 0) : 0;
            const tone = change > 0.002 ? "more" : change < -0.002 ? "less" : family(b.frame.n);
            const words = `${b.frame.n}: ${share(part)}, ${count(b.frame.v)}${change === 0 ? "" : `, ${change > 0 ? "+" : "−"}${share(Math.abs(change))}`}`;
            return (
              <button
                key={b.path}
                type="button"
                class={`frame ${tone}${hits(b.frame) ? " hit" : ""}`}
                title={words}
                aria-label={words}
                tabIndex={b.width > 0.05 ? 0 : -1}
                style={{ left: `${b.left * 100}%`, width: `${b.width * 100}%`, bottom: `${b.level * rowHeight}px` }}
                onClick={() => setZoom(b.path)}
              >
                {b.width > 0.02 ? b.frame.n.slice(b.frame.n.lastIndexOf("/") + 1) : ""}
              </button>
            );
          })}
        </div>
      )}
      {top && (
        <Grid
          label={text.spentSelf}
          rows={own.filter(([name]) => word === "" || name.toLowerCase().includes(word.toLowerCase())).slice(0, mostSelf)}
          id={([name]) => name}
          empty={text.noMatch}
          columns={[
            { name: text.spentSelf, cell: ([name]) => name },
            { name: text.shareHead, cell: ([, v]) => share(v / whole), number: true },
          ]}
        />
      )}
    </>
  );
}

const mostSelf = 20; // functions that are named by what they spent themselves

/** spent are the functions of a profile by what they spent themselves, the greatest first. */
function spent(root: Frame): [string, number][] {
  const by = new Map<string, number>();
  const walk = (f: Frame): void => {
    const own = f.v - (f.c ?? []).reduce((n, c) => n + c.v, 0);
    if (own > 0) by.set(f.n, (by.get(f.n) ?? 0) + own);
    for (const c of f.c ?? []) walk(c);
  };
  walk(root);
  return [...by].sort((a, b) => b[1] - a[1]);
}

const share = (part: number): string => `${(part * 100).toFixed(1)} %`;

/** highlighted is what is spent in and below the frames that hit; one below another counts once. */
function highlighted(f: Frame, hits: (f: Frame) => boolean): number {
  return hits(f) ? f.v : (f.c ?? []).reduce((n, c) => n + highlighted(c, hits), 0);
}
