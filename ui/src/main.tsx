import { Fragment, render } from "preact";
import { signal } from "@preact/signals";
import { Problem, get, send } from "./lib/api";
import { Confirm } from "./lib/act";
import { listenKeys, screens } from "./lib/keys";
import { me, type Me, secretsAlone } from "./lib/me";
import { begin, paused, signedOut } from "./lib/live";
import { Help, Hint, Palette } from "./lib/overlay";
import { Copy, Title } from "./lib/parts";
import { reading } from "./lib/reads";
import { go, href, listen, param, path } from "./lib/route";
import { Authorize, isAuthorize } from "./screens/authorize";
import { Cluster } from "./screens/cluster";
import { Doctor } from "./screens/doctor";
import { Federation } from "./screens/federation";
import { Incidents } from "./screens/incidents";
import { Jobs } from "./screens/jobs";
import { Folder, Key } from "./screens/kv";
import { Back, isBack, Login } from "./screens/login";
import { Nodes } from "./screens/nodes";
import { Overview } from "./screens/overview";
import { Propagation } from "./screens/propagation";
import { Secrets } from "./screens/secrets";
import { Instances, Services } from "./screens/services";
import { Entries, Entry, isKept, Kept, Queries, Query } from "./screens/stored";
import { Topology } from "./screens/topology";
import { Usage } from "./screens/usage";
import { text } from "./text";

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

function Screen() {
  const at = path.value;
  if (isAuthorize(at)) return <Authorize />;
  const [, first = "", ...rest] = at.split("/");
  const name = rest.map(decodeURIComponent).join("/");
  if (secretsAlone() && !["", "secrets", "doctor"].includes(first)) return <Elsewhere />;
  switch (first) {
    case "":
      return <Overview />;
    case "services":
      return name === "" ? <Services /> : <Instances key={name} service={name} />;
    case "instances":
      return <Instances key="" service="" />;
    case "nodes":
      return <Nodes />;
    case "topology":
      return <Topology />;
    case "propagation":
      return <Propagation />;
    case "secrets":
      return <Secrets />;
    case "incidents":
      return <Incidents />;
    case "federation":
      return <Federation />;
    case "jobs":
      return <Jobs key={name} here={me.value?.planes?.["jobs"] === true} name={name} />;
    case "usage":
      return <Usage here={me.value?.planes?.["usage"] === true} />;
    case "kv":
      return (
        <>
          <Kept />
          {param("key") === "" ? <Folder key={name} prefix={name} /> : <Key key={name} name={name} />}
        </>
      );
    case "entries":
      return name === "" ? <Entries /> : <Entry key={name} name={name} />;
    case "queries":
      return name === "" ? <Queries /> : <Query key={name} id={name} />;
    case "doctor":
      return <Doctor />;
    case "cluster":
      return <Cluster />;
    default:
      return <p class="empty">{text.nowhere}</p>;
  }
}

/** Elsewhere is a screen of a plane that this server does not run. */
function Elsewhere() {
  return (
    <>
      <Title>{screens.flatMap((g) => g.links).find((l) => l.path !== "/" && current(l.path))?.name ?? text.product}</Title>
      <p class="empty">{text.secretsAlone}</p>
    </>
  );
}

function App() {
  if (isBack(path.value)) return <Back done={entered} />;
  if (signedOut.value || path.value === "/login") return <Login done={() => entered("/")} />;
  if (!me.value) return <p class="empty">{trouble.value === "" ? text.loading : trouble.value}</p>;
  const { name, open, datacenter } = me.value;
  return (
    <>
      <header class="side">
        <div class="brand">
          <strong>{text.product}</strong>
          <span class="words">{datacenter}</span>
        </div>
        <nav aria-label={text.sidebar}>
          {screens.map((g) => (
            <Fragment key={g.name}>
              <span class="group">{g.name}</span>
              {g.links.map((l) => (
                <a key={l.path} href={href(l.path)} aria-current={current(l.path) ? "page" : undefined}>
                  {l.name} <kbd aria-hidden="true">g {l.key}</kbd>
                </a>
              ))}
            </Fragment>
          ))}
        </nav>
        <div class="foot">
          <button type="button" aria-pressed={paused.value} onClick={() => (paused.value = !paused.value)}>
            {paused.value ? text.resume : text.pause}
          </button>
          <Twin />
          {name !== "" && <span>{name}</span>}
          {open ? (
            <a href={href("/login")}>{text.login}</a>
          ) : (
            <button type="button" onClick={() => void logout()}>
              {text.logout}
            </button>
          )}
        </div>
      </header>
      <main>
        <Screen />
      </main>
      <Help />
      <Hint />
      <Palette />
      <Confirm />
    </>
  );
}

/** Twin copies the command that reads what is shown. */
function Twin() {
  const command = reading(path.value, param);
  return (
    <span class="twin" title={command}>
      <Copy what={command} label={text.copyAsCurl} />
    </span>
  );
}

/** entered goes on after a login, from its own pages to a path. */
function entered(to: string): void {
  if (path.value === "/login" || isBack(path.value)) go(to);
  void look();
}

function current(to: string): boolean {
  if (to === "/kv") return isKept(path.value);
  return to === "/" ? path.value === "/" : path.value === to || path.value.startsWith(to + "/");
}

listen();
listenKeys();
begin();
void look();
render(<App />, document.getElementById("app") as HTMLElement);
