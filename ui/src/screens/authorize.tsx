// The last step of a login at another program: it sent the browser here, to Corbel as its provider of OpenID Connect.
import { useEffect, useState } from "preact/hooks";
import { as } from "../lib/act";
import { get, Problem } from "../lib/api";
import { Title } from "../lib/parts";
import { path } from "../lib/route";
import { text } from "../text";

/** isAuthorize tells whether a path is the authorization endpoint of a provider. */
export const isAuthorize = (path: string): boolean => /^\/vault\/identity\/oidc\/provider\/[^/]+\/authorize$/.test(path);

interface Refusal {
  error?: string;
  error_description?: string;
}

/** said is why the provider refuses, in its words. */
function said(e: unknown): string {
  if (!(e instanceof Problem)) return String(e);
  try {
    const { error, error_description } = JSON.parse(e.message) as Refusal;
    return error_description ?? error ?? e.message;
  } catch {
    return e.message;
  }
}

/** Authorize gets a code for the person who is logged in, and goes back with it to the program that asked. */
export function Authorize() {
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const provider = path.value.split("/")[5] ?? "";
    const back = new URLSearchParams(location.search).get("redirect_uri") ?? "";
    const ask = async () => {
      try {
        const given = await get<{ code: string; state?: string }>(
          as("secrets", `/v1/identity/oidc/provider/${provider}/authorize${location.search}`),
        );
        const to = new URL(back); // the provider knows it as the program's: it gives no code for another
        to.searchParams.set("code", given.code);
        if (given.state !== undefined) to.searchParams.set("state", given.state);
        location.replace(to);
      } catch (e) {
        setProblem(said(e));
      }
    };
    void ask();
  }, []);
  return (
    <>
      <Title>{text.authorize}</Title>
      {problem === "" ? <p class="empty">{text.authorizing}</p> : <p role="alert">{problem}</p>}
    </>
  );
}
