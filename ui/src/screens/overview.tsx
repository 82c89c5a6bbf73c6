import { Age, Mark, type State } from "../lib/parts";
import { ago } from "../lib/time";
import { href } from "../lib/route";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Plane {
  name: string;
  state: State;
  /** words say in a line what is going on. */
  words: string;
  /** path is the screen that says more, below /ui. */
  path?: string;
}

interface Finding {
  id: string;
  severity: State;
  title: string;
  since: number;
}

interface OverviewData {
  planes: Plane[];
  findings: Finding[];
}

export function Overview() {
  const live = useLive<OverviewData>("overview");
  const data = live.value.value;
  return (
    <>
      <h1>{text.overview}</h1>
      <Age of={live} />
      {data && (
        <>
          <section aria-label={text.planes}>
            <ul class="planes">
              {data.planes.map((p) => (
                <li key={p.name}>
                  <Mark state={p.state}>{p.path ? <a href={href(p.path)}>{p.name}</a> : p.name}</Mark>
                  <span class="words">{p.words}</span>
                </li>
              ))}
            </ul>
          </section>
          <section>
            <h2>{text.doctor}</h2>
            {data.findings.length === 0 && <p class="empty">{text.allWell}</p>}
            <ul class="findings">
              {data.findings.map((f) => (
                <li key={f.id}>
                  <Mark state={f.severity}>
                    <a href={href(`/doctor?finding=${encodeURIComponent(f.id)}`)}>{f.title}</a>
                  </Mark>
                  <span class="words">{ago(f.since)}</span>
                </li>
              ))}
            </ul>
          </section>
        </>
      )}
    </>
  );
}
