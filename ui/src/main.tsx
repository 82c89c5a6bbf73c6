import { render } from "preact";
import { signal } from "@preact/signals";
import { Problem, get, send } from "./lib/api";
import { listenKeys } from "./lib/keys";
import { begin, paused, signedOut } from "./lib/live";
import { Help, Palette } from "./lib/overlay";
import { href, listen, param, path } from "./lib/route";
import { Doctor } from "./screens/doctor";
import { Folder, Key } from "./screens/kv";
import { Login } from "./screens/login";
import { Overview } from "./screens/overview";
import { Instances, Services } from "./screens/services";
import { text } from "./text";

interface Me {
  /** name is who is logged in, "" where nobody has to be. */
  name: string;
}

const me = signal<Me | undefined>(undefined);
const trouble = signal("");

async function look(): Promise<void> {
  try {
    me.value = await get<Me>("/ui/api/me");
    signedOut.value = false;
    trouble.value = "";
  } catch (e) {
    if (e instanceof Problem && e.status === 401) signedOut.value = true;
    else trouble.value = e instanceof Error ? e.message : String(e);
  }
}

async function logout(): Promise<void> {
  await send("POST", "/ui/api/logout");
  me.value = undefined;
  signedOut.value = true;
}

const links: [string, string][] = [
  ["/", text.overview],
  ["/services", text.services],
  ["/kv", text.kv],
  ["/doctor", text.doctor],
];

function Screen() {
  const at = path.value;
  const [, first = "", ...rest] = at.split("/");
  const name = rest.map(decodeURIComponent).join("/");
  switch (first) {
    case "":
      return <Overview />;
    case "services":
      return name === "" ? <Services /> : <Instances key={name} service={name} />;
    case "kv":
      return param("key") === "" ? <Folder key={name} prefix={name} /> : <Key key={name} name={name} />;
    case "doctor":
      return <Doctor />;
    default:
      return <p class="empty">{text.nowhere}</p>;
  }
}

function App() {
  if (signedOut.value) return <Login done={() => void look()} />;
  if (!me.value) return <p class="empty">{trouble.value === "" ? text.loading : trouble.value}</p>;
  return (
    <>
      <header>
        <nav aria-label={text.product}>
          <strong>{text.product}</strong>
          {links.map(([to, name]) => (
            <a key={to} href={href(to)} aria-current={current(to) ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <button type="button" aria-pressed={paused.value} onClick={() => (paused.value = !paused.value)}>
          {paused.value ? text.resume : text.pause}
        </button>
        {me.value.name !== "" && (
          <button type="button" onClick={() => void logout()}>
            {text.logout} {me.value.name}
          </button>
        )}
      </header>
      <main>
        <Screen />
      </main>
      <Help />
      <Palette />
    </>
  );
}

function current(to: string): boolean {
  return to === "/" ? path.value === "/" : path.value === to || path.value.startsWith(to + "/");
}

listen();
listenKeys();
begin();
void look();
render(<App />, document.getElementById("app") as HTMLElement);
