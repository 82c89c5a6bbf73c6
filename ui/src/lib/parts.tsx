// Small parts that every screen has.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Live } from "./live";
import { count, now, span } from "./time";
import { param, setParam } from "./route";
import { text } from "../text";

export type State = "passing" | "warning" | "critical" | "unknown";

const shapes: Record<State, string> = { passing: "●", warning: "▲", critical: "■", unknown: "○" };

/** Mark shows a state by shape, colour and word: never by colour alone. */
export function Mark(props: { state: State; children?: ComponentChildren }) {
  return (
    <span class={`mark ${props.state}`}>
      <span aria-hidden="true">{shapes[props.state]}</span>{" "}
      {props.children ? <span class="unseen">{props.state}: </span> : props.state}
      {props.children}
    </span>
  );
}

/** Age says how old what is shown is, and why it is not newer. */
export function Age(props: { of: Live<unknown> }) {
  const at = props.of.at.value;
  const why = props.of.problem.value;
  if (at === 0) return <p class="age">{why === "" ? text.loading : why}</p>;
  const age = span(Math.max(100, now.value - at));
  return (
    <p class={why === "" ? "age" : "age stale"} role="status">
      {why === "" ? text.asOf(age) : text.stale(age, why)}
    </p>
  );
}

/** Title is the head of a screen. */
export function Title(props: { children: ComponentChildren; of?: Live<unknown>; words?: ComponentChildren }) {
  return (
    <div class="title">
      <h1>{props.children}</h1>
      {props.words && <span class="words">{props.words}</span>}
      {props.of && <Age of={props.of} />}
    </div>
  );
}

/** Health shows how many are in which state, beside the numbers that say so. */
export function Health(props: { passing: number; warning: number; critical: number }) {
  const bar = (name: State, n: number) => n > 0 && <span class={name} style={{ flexGrow: n }} />;
  return (
    <div class="health" aria-hidden="true">
      {bar("critical", props.critical)}
      {bar("warning", props.warning)}
      {bar("passing", props.passing)}
    </div>
  );
}

/** Share shows how much of something is used: a bar beside the words that say so. */
export function Share(props: { used: number; of: number; unit: string }) {
  const part = Math.min(1, Math.max(0, props.used / Math.max(1, props.of)));
  const state = part > 0.95 ? "critical" : part > 0.8 ? "warning" : "passing";
  return (
    <span class="share">
      <span class="health" aria-hidden="true">
        <span class={state} style={{ flexGrow: part }} />
        <span style={{ flexGrow: 1 - part }} />
      </span>
      {text.usedOf(`${Math.round(part * 100)} %`, count(props.of), props.unit)}
    </span>
  );
}

/** Problems tells which parts of a screen could not be had, and why. */
export function Problems(props: { of: Record<string, string> | undefined }) {
  const all = Object.entries(props.of ?? {});
  if (all.length === 0) return null;
  return (
    <ul class="problems">
      {all.map(([name, why]) => (
        <li key={name} class="problem">
          {name}: {why}
        </li>
      ))}
    </ul>
  );
}

/** Filter is the screen's search field; its text stands in the address. */
export function Filter(props: { hint: string; problem?: string }) {
  return (
    <label class="filter">
      <span class="unseen">{text.filterLabel}</span>
      <input
        data-filter
        type="search"
        spellcheck={false}
        autocomplete="off"
        placeholder={props.hint}
        value={param("q")}
        aria-invalid={props.problem ? "true" : undefined}
        onInput={(e) => setParam("q", e.currentTarget.value)}
      />
      {props.problem && <span class="problem">{props.problem}</span>}
    </label>
  );
}

/** put has the clipboard take text; pages that came neither by https nor from this host do so by a selection. */
async function put(what: string, beside: HTMLElement): Promise<void> {
  if ("clipboard" in navigator) return navigator.clipboard.writeText(what);
  const field = document.createElement("textarea");
  field.value = what;
  field.className = "unseen";
  beside.after(field); // within the dialog, if there is one: nothing else can be selected
  field.select();
  document.execCommand("copy");
  field.remove();
  beside.focus();
}

/** Copy puts text on the clipboard. */
export function Copy(props: { what: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = async (e: MouseEvent) => {
    await put(props.what, e.currentTarget as HTMLElement);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="copy" onClick={copy}>
      {done ? text.copied : props.label}
    </button>
  );
}

const month = 30 * 86_400_000; // ms: a certificate that ends sooner is a warning

/** Ends says in how long a certificate ends. */
export function Ends(props: { at: number }) {
  const left = props.at - Date.now();
  return <Mark state={left < 0 ? "critical" : left < month ? "warning" : "passing"}>{left < 0 ? text.ended : text.within(span(left))}</Mark>;
}
