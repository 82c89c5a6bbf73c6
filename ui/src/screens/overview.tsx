import { Health, Mark, type State, Title } from "../lib/parts";
import { ago, count } from "../lib/time";
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

interface Service {
  name: string;
  instances: number;
  passing: number;
  warning: number;
  critical: number;
}

interface OverviewData {
  planes: Plane[];
  services: Service[];
  findings: Finding[];
  /** doctor says why there are no findings to see. */
  doctor?: string;
  /** catalog says why there are no services to see. */
  catalog?: string;
}

export function Overview() {
  const live = useLive<OverviewData>("overview");
  const data = live.value.value;
  return (
    <>
      <Title of={live}>{text.overview}</Title>
      {data && (
        <>
          <section aria-label={text.planes}>
            <ul class="planes lines">
              {data.planes.map((p) => (
                <li key={p.name}>
                  <Mark state={p.state}>{p.path ? <a href={href(p.path)}>{p.name}</a> : p.name}</Mark>
                  <span class="words">{p.words}</span>
                </li>
              ))}
            </ul>
          </section>
          <div class="columns">
            <section>
              <h2>{text.unhealthy}</h2>
              {data.services.length === 0 && <p class="empty">{data.catalog ?? text.allPass}</p>}
              {data.services.length > 0 && (
                <ul class="lines">
                  {data.services.map((s) => (
                    <li key={s.name}>
                      <Mark state={s.critical > 0 ? "critical" : "warning"}>
                        <a href={href(`/services/${encodeURIComponent(s.name)}`)}>{s.name}</a>
                      </Mark>
                      <span class="words">{text.ofPassing(count(s.passing), count(s.instances))}</span>
                      <span class="push">
                        <Health passing={s.passing} warning={s.warning} critical={s.critical} />
                      </span>
                    </li>
                  ))}
                </ul>
              )}
            </section>
            <section>
              <h2>{text.doctor}</h2>
              {data.findings.length === 0 && <p class="empty">{data.doctor ?? text.allWell}</p>}
              {data.findings.length > 0 && (
                <ul class="findings lines">
                  {data.findings.map((f) => (
                    <li key={f.id}>
                      <span>
                        <Mark state={f.severity}>
                          <a href={href(`/doctor?finding=${encodeURIComponent(f.id)}`)}>{f.title}</a>
                        </Mark>
                      </span>
                      <span class="words push">{f.since > 0 && ago(f.since)}</span>
                    </li>
                  ))}
                </ul>
              )}
            </section>
          </div>
        </>
      )}
    </>
  );
}
