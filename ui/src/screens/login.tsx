import { useState } from "preact/hooks";
import { Problem, send } from "../lib/api";
import { text } from "../text";

/** Login hands the token to the server, which keeps it; the browser gets a cookie that no script can read. */
export function Login(props: { done: () => void }) {
  const [problem, setProblem] = useState("");
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const data = new FormData(form);
    try {
      await send("POST", "/ui/api/login", {
        token: data.get("token") ?? "",
        user: data.get("user") ?? "",
        password: data.get("password") ?? "",
      });
      form.reset();
      props.done();
    } catch (e) {
      setProblem(e instanceof Problem ? e.message : String(e));
    }
  };
  return (
    <div class="login">
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
      {problem !== "" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}
