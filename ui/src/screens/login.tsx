import { useEffect, useState } from "preact/hooks";
import { get, Problem, send } from "../lib/api";
import { text } from "../text";

const words = (e: unknown): string => (e instanceof Problem ? e.message : String(e));

interface Method {
  id: string;
  name: string;
}

const needsRole = "role:"; // begins what the server says when a login needs one

const left = "corbel-left"; // where the person was when they left for a provider's page

/** isBack tells whether a path is one that providers send the browser back to. */
export const isBack = (path: string): boolean => /^\/(vault\/auth\/.+\/)?oidc\/callback$/.test(path);

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
  useEffect(() => {
    const query = new URLSearchParams(location.search);
    history.replaceState(null, "", location.pathname); // the code is nobody's to read again
    const end = async () => {
      try {
        await send("POST", "/ui/api/login/end", {
          state: query.get("state") ?? "",
          code: query.get("code") ?? "",
          error: query.get("error") ?? "",
        });
        const to = sessionStorage.getItem(left) ?? "";
        sessionStorage.removeItem(left);
        props.done(to.startsWith("/ui/") && to !== "/ui/login" ? to.slice("/ui".length) : "/");
      } catch (e) {
        setProblem(words(e));
      }
    };
    void end();
  }, []);
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
      await send("POST", "/ui/api/login", {
        method: data.get("method") ?? "",
        token: data.get("token") ?? "",
        user: data.get("user") ?? "",
        password: data.get("password") ?? "",
      });
      form.reset();
      props.done();
    } catch (e) {
      setProblem(words(e));
    }
  };
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
