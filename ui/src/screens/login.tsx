import { useEffect, useRef, useState } from "preact/hooks";
import { get, Problem, send } from "../lib/api";
import { text } from "../text";

const words = (e: unknown): string => (e instanceof Problem ? e.message : String(e));

interface Method {
  id: string;
  name: string;
}

/** Due is what a login lacks: of each of its asks a passcode of one of the methods. */
interface Due {
  handle: string;
  asks: { name: string; methods: Method[] }[];
}

/** Answer is that of a login: without a factor that is due, there is a session. */
interface Answer {
  factor?: Due;
}

const needsRole = "role:"; // begins what the server says when a login needs one

const left = "corbel-left"; // where the person was when they left for a provider's page

/** isBack tells whether a path is one that providers send the browser back to. */
export const isBack = (path: string): boolean => /^\/(vault\/auth\/.+\/)?oidc\/callback$/.test(path);

/** Ask takes a passcode, and where there are several methods, which one it is of. */
function Ask(props: { methods: Method[] }) {
  const { methods } = props;
  const [chosen, choose] = useState(methods[0]);
  return (
    <>
      {methods.length > 1 && (
        <label>
          {text.loginWhich}
          <select value={chosen?.id} onChange={(e) => choose(methods.find((m) => m.id === e.currentTarget.value))}>
            {methods.map((m) => (
              <option key={m.id} value={m.id}>
                {m.name}
              </option>
            ))}
          </select>
        </label>
      )}
      <label>
        {text.loginCode(chosen?.name ?? "")}
        <input name={chosen?.id} inputMode="numeric" autocomplete="one-time-code" required />
      </label>
    </>
  );
}

/** Factor ends a login with the passcodes that it lacks. The server lets it wait for some minutes, and a few tries. */
function Factor(props: { of: Due; done: () => void; again: () => void }) {
  const { of } = props;
  const [problem, setProblem] = useState("");
  const [asking, setAsking] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const focus = () => form.current?.querySelector("input")?.focus();
  useEffect(focus, []);
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    if (asking || !form.current) return; // a code is good once: pressed twice, the second one would be refused
    setAsking(true);
    try {
      await send("POST", "/ui/api/login/factor", { handle: of.handle, codes: Object.fromEntries(new FormData(form.current)) });
      props.done();
    } catch (e) {
      setProblem(words(e));
      setAsking(false);
      for (const one of form.current?.querySelectorAll("input") ?? []) one.value = "";
      focus();
    }
  };
  return (
    <main class="login">
      <h1>{text.loginTitle}</h1>
      <form ref={form} onSubmit={submit}>
        <p class="words">{text.loginFactor}</p>
        {of.asks.map((a) => (
          <Ask key={a.name} methods={a.methods} />
        ))}
        <button type="submit">{text.loginSubmit}</button>{" "}
        <button type="button" onClick={props.again}>
          {text.loginAgain}
        </button>
      </form>
      {problem !== "" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </main>
  );
}

/** Provider begins a login at a provider: the browser leaves the page, and comes back to Back. */
function Provider(props: { of: Method; fail: (why: string) => void }) {
  const { of } = props;
  const [role, setRole] = useState(false); // whether the person has to name one
  const begin = async (e: SubmitEvent) => {
    e.preventDefault();
    const role = new FormData(e.currentTarget as HTMLFormElement).get("role") ?? "";
    try {
      const { address } = await send<{ address: string }>("POST", "/ui/api/login/begin", {
        method: of.id,
        role,
        origin: location.origin,
      });
      sessionStorage.setItem(left, location.pathname + location.search);
      location.assign(address);
    } catch (e) {
      if (!role && words(e).startsWith(needsRole)) setRole(true);
      else props.fail(words(e));
    }
  };
  return (
    <form onSubmit={begin}>
      {role && (
        <label>
          {text.loginRole}
          <input name="role" autocomplete="off" required autofocus ref={(e) => e?.focus()} />
        </label>
      )}
      <button type="submit">{text.loginWith(of.name)}</button>
    </form>
  );
}

/** Back ends a login that was begun here, with what the provider sent along. */
export function Back(props: { done: (to: string) => void }) {
  const [problem, setProblem] = useState("");
  const [due, setDue] = useState<Due>();
  const entered = () => {
    const to = sessionStorage.getItem(left) ?? "";
    sessionStorage.removeItem(left);
    props.done(to.startsWith("/ui/") && to !== "/ui/login" ? to.slice("/ui".length) : "/");
  };
  useEffect(() => {
    const query = new URLSearchParams(location.search);
    history.replaceState(null, "", location.pathname); // the code is nobody's to read again
    const end = async () => {
      try {
        const { factor } = await send<Answer>("POST", "/ui/api/login/end", {
          state: query.get("state") ?? "",
          code: query.get("code") ?? "",
          error: query.get("error") ?? "",
        });
        if (factor) setDue(factor);
        else entered();
      } catch (e) {
        setProblem(words(e));
      }
    };
    void end();
  }, []);
  if (due) return <Factor of={due} done={entered} again={() => location.assign("/ui/login")} />;
  return (
    <main class="login">
      <h1>{text.loginTitle}</h1>
      {problem === "" ? (
        <p role="status">{text.loginEnding}</p>
      ) : (
        <>
          <p class="problem" role="alert">
            {problem}
          </p>
          <p>
            <a href="/ui/login">{text.loginAgain}</a>
          </p>
        </>
      )}
    </main>
  );
}

/** Login hands the token to the server, which keeps it; the browser gets a cookie that no script can read. */
export function Login(props: { done: () => void }) {
  const [problem, setProblem] = useState("");
  const [due, setDue] = useState<Due>();
  const [methods, setMethods] = useState<Method[]>([]);
  useEffect(() => {
    const end = new AbortController();
    get<Method[]>("/ui/api/logins", end.signal).then(setMethods, () => undefined);
    return () => end.abort();
  }, []);
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const data = new FormData(form);
    try {
      const { factor } = await send<Answer>("POST", "/ui/api/login", {
        method: data.get("method") ?? "",
        token: data.get("token") ?? "",
        user: data.get("user") ?? "",
        password: data.get("password") ?? "",
      });
      form.reset();
      setProblem("");
      if (factor) setDue(factor);
      else props.done();
    } catch (e) {
      setProblem(words(e));
    }
  };
  if (due) return <Factor of={due} done={props.done} again={() => setDue(undefined)} />;
  return (
    <main class="login">
      <h1>{text.loginTitle}</h1>
      <form onSubmit={submit}>
        <label>
          {text.loginToken}
          <input name="token" type="password" autocomplete="off" required />
        </label>
        <p class="words">{text.loginHint}</p>
        <button type="submit">{text.loginSubmit}</button>
      </form>
      <form onSubmit={submit}>
        <label>
          {text.loginUser}
          <input name="user" autocomplete="username" required />
        </label>
        <label>
          {text.loginPassword}
          <input name="password" type="password" autocomplete="current-password" required />
        </label>
        <button type="submit">{text.loginSubmit}</button>
      </form>
      {methods.map((m) => (
        <Provider key={m.id} of={m} fail={setProblem} />
      ))}
      <details>
        <summary>{text.loginMethods}</summary>
        <form onSubmit={submit}>
          <label>
            {text.loginMethod}
            <input name="method" autocomplete="off" required />
          </label>
          <label>
            {text.loginProof}
            <input name="token" type="password" autocomplete="off" required />
          </label>
          <button type="submit">{text.loginSubmit}</button>
        </form>
      </details>
      {problem !== "" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </main>
  );
}
