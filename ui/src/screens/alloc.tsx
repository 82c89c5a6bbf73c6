import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { as, asking, quoted } from "../lib/act";
import { paused } from "../lib/live";
import { param, setParam } from "../lib/route";
import { text } from "../text";

const keptText = 256 * 1024; // characters of a log or a session that the page keeps: the newest
const tailBytes = 64 * 1024; // of a log that are read when it is opened

/** clean takes out what steers a terminal: a page is none. */
export const clean = (s: string): string => s.replace(/\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]/g, "");

/** Allocation shows what the tasks of an allocation write, as they write it, and runs commands in them. */
export function Allocation(props: { id: string; namespace: string; tasks: string[] }) {
  const { tasks } = props;
  const task = tasks.includes(param("task")) ? param("task") : (tasks[0] ?? "");
  const kind = param("type") === "stderr" ? "stderr" : "stdout";
  if (task === "") return <p class="empty">{text.noTasks}</p>;
  return (
    <>
      <div class="bar">
        <label>
          {text.task}{" "}
          <select value={task} onChange={(e) => setParam("task", e.currentTarget.value)}>
            {tasks.map((t) => (
              <option key={t}>{t}</option>
            ))}
          </select>
        </label>
        {["stdout", "stderr"].map((k) => (
          <button key={k} type="button" aria-pressed={k === kind} onClick={() => setParam("type", k)}>
            {k}
          </button>
        ))}
      </div>
      <Log key={`${props.id} ${task} ${kind}`} id={props.id} namespace={props.namespace} task={task} kind={kind} />
      <Shell key={`${props.id} ${task}`} id={props.id} namespace={props.namespace} task={task} />
    </>
  );
}

/** Screen shows text from below: it goes on with what comes, unless the person reads further up. */
function Screen(props: { label: string; children: string; empty?: string }) {
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [props.children]);
  return (
    <pre
      ref={box}
      class="value screen"
      tabIndex={0}
      role="log"
      aria-label={props.label}
      onScroll={(e) => {
        const b = e.currentTarget;
        atEnd.current = b.scrollTop + b.clientHeight >= b.scrollHeight - 24;
      }}
    >
      {props.children || props.empty}
    </pre>
  );
}

function Log(props: { id: string; namespace: string; task: string; kind: string }) {
  const [shown, setShown] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const end = new AbortController();
    const all = { text: "", told: "" };
    const query = new URLSearchParams({
      task: props.task,
      type: props.kind,
      namespace: props.namespace,
      plain: "true",
      follow: "true",
      origin: "end",
      offset: String(tailBytes),
    });
    const read = async () => {
      const answer = await fetch(as("jobs", `/v1/client/fs/logs/${props.id}?${query}`), { credentials: "same-origin", signal: end.signal });
      if (!answer.ok || !answer.body) throw new Error((await answer.text()).trim() || answer.statusText);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        all.text = (all.text + clean(value)).slice(-keptText);
      }
    };
    read().catch((e) => !end.signal.aborted && setProblem(e instanceof Error ? e.message : String(e)));
    const timer = setInterval(() => {
      if (all.text === all.told || paused.value) return;
      all.told = all.text;
      setShown(all.text);
    }, 250);
    return () => {
      clearInterval(timer);
      end.abort();
    };
  }, []);
  return (
    <>
      <h2>{text.logsOf(props.task, props.kind)}</h2>
      {problem !== "" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <Screen label={text.logs} empty={text.noLog}>
        {shown}
      </Screen>
    </>
  );
}

interface Frame {
  stdout?: { data?: string };
  stderr?: { data?: string };
  exited?: boolean;
  result?: { exit_code: number };
}

const heartbeat = 10_000; // ms

function Shell(props: { id: string; namespace: string; task: string }) {
  const [command, setCommand] = useState("/bin/sh");
  const [shown, setShown] = useState("");
  const [open, setOpen] = useState(false);
  const socket = useRef<WebSocket>(undefined);
  useEffect(() => () => socket.current?.close(), []);
  const add = (s: string) => setShown((before) => (before + s).slice(-keptText));
  const words = command.split(" ").filter((w) => w !== "");
  const begin = (): Promise<void> => {
    const at = new URL(as("jobs", `/v1/client/allocation/${props.id}/exec`), location.href);
    at.protocol = at.protocol.replace("http", "ws");
    at.search = new URLSearchParams({ task: props.task, namespace: props.namespace, tty: "false", command: JSON.stringify(words) }).toString();
    const s = new WebSocket(at);
    s.binaryType = "arraybuffer";
    socket.current = s;
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    s.onmessage = (e) => {
      const f = JSON.parse(typeof e.data === "string" ? e.data : new TextDecoder().decode(e.data as ArrayBuffer)) as Frame;
      for (const name of ["stdout", "stderr"] as const) {
        const data = f[name]?.data;
        if (data) add(clean(decoders[name].decode(Uint8Array.from(atob(data), (c) => c.charCodeAt(0)), { stream: true })));
      }
      if (f.exited) {
        add(`\n${text.exited(f.result?.exit_code ?? 0)}\n`);
        s.close();
      }
    };
    const beat = setInterval(() => s.readyState === WebSocket.OPEN && s.send("{}"), heartbeat);
    s.onclose = (e) => {
      clearInterval(beat);
      setOpen(false);
      if (e.reason !== "") add(`\n${e.reason}\n`);
    };
    setShown("");
    return new Promise((done, failed) => {
      s.onopen = () => {
        setOpen(true);
        done();
      };
      s.onerror = () => failed(new Error(text.execEnded));
    });
  };
  const ask = (e: Event) => {
    e.preventDefault();
    if (words.length === 0) return;
    asking.value = {
      title: text.execTitle(command),
      hits: <p>{text.execHits(props.task)}</p>,
      twin: `corbel allocs exec --task ${quoted(props.task)} ${props.id.slice(0, 8)} ${words.map(quoted).join(" ")}`,
      run: begin,
      done: () => undefined,
    };
  };
  const type = (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const line = String(new FormData(form).get("line")) + "\n";
    const bytes = new TextEncoder().encode(line);
    socket.current?.send(JSON.stringify({ stdin: { data: btoa(String.fromCharCode(...bytes)) } }));
    add(`> ${line}`);
    form.reset();
  };
  return (
    <>
      <h2>{text.shell}</h2>
      {!open && (
        <form class="ask" onSubmit={ask}>
          <input aria-label={text.command} spellcheck={false} value={command} onInput={(e) => setCommand(e.currentTarget.value)} />
          <button type="submit">{text.run}</button>
        </form>
      )}
      {(open || shown !== "") && <Screen label={text.shell}>{shown}</Screen>}
      {open && (
        <form class="ask" onSubmit={type}>
          <input name="line" aria-label={text.input} autocomplete="off" spellcheck={false} maxLength={4096} autofocus />
          <button type="submit">{text.send}</button>
          <button type="button" onClick={() => socket.current?.close()}>
            {text.end}
          </button>
        </form>
      )}
    </>
  );
}
