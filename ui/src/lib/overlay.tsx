// What lies over the screen: the list of keys and the way to anything.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get } from "./api";
import { begun, global, helping, type Key, local, palette, screens } from "./keys";
import { go } from "./route";
import { text } from "../text";

export function Help() {
  if (!helping.value) return null;
  return (
    <Dialog label={text.keyHelp} end={() => (helping.value = false)}>
      <Keys of={[...local.value, ...global]} />
    </Dialog>
  );
}

function Keys(props: { of: Key[] }) {
  return (
    <dl class="keys">
      {props.of.map((k) => (
        <div key={k.keys}>
          <dt>
            <kbd>{k.keys}</kbd>
          </dt>
          <dd>{k.what}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Hint shows what may follow the first key of a pair. It takes no focus: the second key goes where the first went. */
export function Hint() {
  if (begun.value === "") return null;
  return (
    <div class="hint" role="status" aria-label={text.keyNext(begun.value)}>
      <Keys of={[...local.value, ...global].filter((k) => k.keys.startsWith(begun.value + " "))} />
    </div>
  );
}

interface Place {
  name: string;
  /** kind is the word for what it is; path leads to it, below /ui. */
  kind: string;
  path: string;
}

const pause = 120; // ms after the last key before the server is asked

/** named are the screens whose names have the text in them. */
function named(query: string): Place[] {
  const word = query.trim().toLowerCase();
  if (word === "") return [];
  return screens.flatMap((g) => g.links.filter((l) => l.name.toLowerCase().includes(word)).map((l) => ({ name: l.name, kind: text.keyScreen, path: l.path })));
}

export function Palette() {
  const [query, setQuery] = useState("");
  const [places, setPlaces] = useState<Place[]>([]);
  const [at, setAt] = useState(0);
  const open = palette.value;
  useEffect(() => {
    if (!open) return;
    const end = new AbortController();
    const timer = setTimeout(() => {
      get<Place[]>(`/ui/api/search?q=${encodeURIComponent(query)}`, end.signal).then(
        (list) => {
          setPlaces([...list, ...named(query)]);
          setAt(0);
        },
        () => setPlaces(named(query)),
      );
    }, pause);
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, [query, open]);
  if (!open) return null;
  const end = () => {
    palette.value = false;
    setQuery("");
  };
  const pick = (p: Place | undefined) => {
    if (!p) return;
    end();
    go(p.path);
  };
  return (
    <Dialog label={text.keyPalette} end={end}>
      <input
        aria-label={text.keyPalette}
        aria-controls="places"
        value={query}
        spellcheck={false}
        onInput={(e) => setQuery(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "ArrowDown") setAt(Math.min(at + 1, places.length - 1));
          else if (e.key === "ArrowUp") setAt(Math.max(at - 1, 0));
          else if (e.key === "Enter") pick(places[at]);
          else return;
          e.preventDefault();
        }}
      />
      <ul id="places" role="listbox" aria-label={text.keyPalette}>
        {places.map((p, i) => (
          <li key={p.path} role="option" aria-selected={i === at} onClick={() => pick(p)}>
            {p.name} <span class="words">{p.kind}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

export function Dialog(props: { label: string; end: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    box.current?.showModal(); // before the next key can come
  }, []);
  return (
    <dialog ref={box} aria-label={props.label} onClose={props.end}>
      {props.children}
    </dialog>
  );
}
