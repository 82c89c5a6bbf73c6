// The keyboard does everything: one table of keys, shown by "?".
import { signal } from "@preact/signals";
import { go } from "./route";
import { text } from "../text";

export interface Key {
  /** keys as they are pressed: "/", "g s", "Ctrl-K" */
  keys: string;
  what: string;
  run: () => void;
}

/** helping is true while the list of keys is shown; palette while Ctrl-K is. */
export const helping = signal(false);
export const palette = signal(false);

/** begun is the first key of a pair, while its second is waited for: what may follow is shown meanwhile. */
export const begun = signal("");

/** local are the keys of the screen that is shown. */
export const local = signal<Key[]>([]);

/** screens are the ways to each screen, in groups. */
export const screens: { name: string; links: { path: string; name: string; key: string }[] }[] = [
  {
    name: text.groupNow,
    links: [
      { path: "/", name: text.overview, key: "o" },
      { path: "/incidents", name: text.incidents, key: "i" },
      { path: "/doctor", name: text.doctor, key: "d" },
    ],
  },
  {
    name: text.groupFleet,
    links: [
      { path: "/services", name: text.services, key: "s" },
      { path: "/nodes", name: text.nodes, key: "n" },
      { path: "/federation", name: text.federation, key: "f" },
      { path: "/kv", name: text.kv, key: "k" },
    ],
  },
  {
    name: text.groupMesh,
    links: [
      { path: "/topology", name: text.topology, key: "t" },
      { path: "/propagation", name: text.propagation, key: "p" },
    ],
  },
  {
    name: text.groupRun,
    links: [
      { path: "/secrets", name: text.secrets, key: "e" },
      { path: "/jobs", name: text.jobs, key: "j" },
      { path: "/usage", name: text.usage, key: "u" },
    ],
  },
  { name: text.groupSelf, links: [{ path: "/cluster", name: text.cluster, key: "c" }] },
];

export const global: Key[] = [
  ...screens.flatMap((g) => g.links.map((l) => ({ keys: `g ${l.key}`, what: l.name, run: () => go(l.path) }))),
  { keys: "/", what: text.keyFilter, run: () => focusOn("[data-filter]") },
  { keys: "Ctrl-K", what: text.keyPalette, run: () => (palette.value = !palette.value) },
  { keys: "?", what: text.keyHelp, run: () => (helping.value = !helping.value) },
];

function focusOn(selector: string): void {
  document.querySelector<HTMLElement>(selector)?.focus();
}

/** listenKeys hands keys to what is shown. Keys that are typed into a field belong to the field, but for Escape. */
export function listenKeys(): void {
  document.addEventListener("keydown", (e) => {
    const field = e.target instanceof HTMLElement && e.target.matches("input,textarea,select,[contenteditable]");
    if (e.key === "Escape") {
      if (field) (e.target as HTMLElement).blur();
      helping.value = palette.value = false;
      begun.value = "";
      document.querySelector<HTMLDialogElement>("dialog[open]")?.close();
      return;
    }
    if (["Shift", "Control", "Alt", "Meta"].includes(e.key)) return; // they are half of a key
    const held = e.ctrlKey || e.metaKey;
    if (e.altKey || (field && !held)) return;
    // Keys of the screen are not those of a dialog above it, and Enter is that of the button or link that has the focus.
    if (!held && e.key !== "?" && document.querySelector("dialog[open]")) return;
    if (e.key === "Enter" && e.target instanceof HTMLElement && e.target.matches("button,a,summary")) return;
    const name = held ? `Ctrl-${e.key.toUpperCase()}` : e.key;
    const pair = begun.value === "" ? "" : `${begun.value} ${name}`;
    const all = [...local.value, ...global];
    const key = all.find((k) => k.keys === pair) ?? all.find((k) => k.keys === name);
    begun.value = "";
    if (key) {
      e.preventDefault();
      key.run();
    } else if (!held && all.some((k) => k.keys.startsWith(name + " "))) {
      begun.value = name;
    }
  });
}
