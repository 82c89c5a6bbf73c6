import { Health, Mark, type State, Title } from "../lib/parts";
import { ago, count } from "../lib/time";
import { href } from "../lib/route";
import { useLive } from "../lib/use";
import { text } from "../text";
import { type Incident, incidentPath } from "./incident";

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
  /** incidents are the worst ones; null where this session may see none. */
  incidents: Incident[] | null;
  /** doctor says why there are no findings to see. */
  doctor?: string;
  /** catalog says why there are no services to see. */
  catalog?: string;
}

interface Changed {
  at: number;
  kind: string;
  name: string;
  what: string;
  path: string;
}

const shown = 5; // of what changed

/** Recent is what came, went and was deployed in the last hour: the first suspects of what fails. */
function Recent() {
  const live = useLive<Changed[]>("changes?before=0");
  const all = live.value.value ?? [];
  return (
    <section>
      <h2>{text.changedLast}</h2>
      {live.problem.value !== "" && <p class="problem">{live.problem.value}</p>}
      {all.length === 0 && <p class="empty">{text.nothingChangedLast}</p>}
      {all.length > 0 && (
        <ul class="lines">
          {all.slice(0, shown).map((c) => (
            <li key={`${c.at} ${c.kind} ${c.name}`}>
              <span class="first">
                <a href={href(c.path)}>{c.name}</a>
              </span>
              <span class="words">
                {c.kind}: {c.what}
              </span>
              <span class="words push">{ago(c.at)}</span>
            </li>
          ))}
        </ul>
      )}
      {all.length > shown && <p class="words">{text.moreChanges(count(all.length - shown))}</p>}
    </section>
  );
}

/** Failing are the worst incidents: what, where, since when, and who is told. */
function Failing(props: { incidents: Incident[] }) {
  return (
    <section>
      <h2>{text.failingNow}</h2>
      {props.incidents.length === 0 && <p class="empty">{text.noIncidents}</p>}
      {props.incidents.length > 0 && (
        <ul class="lines incidents">
          {props.incidents.map((i) => (
            <li key={`${i.namespace}/${i.entity}/${i.check}`}>
              <Mark state={i.state}>
                <a href={href(incidentPath(i))}>{i.check}</a>
              </Mark>
              <span class="words">
                {i.entity}
                {i.output !== "" && `: ${i.output}`}
              </span>
              <span class="words push">
                {i.handlers.length > 0 ? text.tells(i.handlers.join(" ")) : text.tellsNobody}, {ago(i.since > 0 ? i.since : i.last)}
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
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
            {data.incidents && <Failing incidents={data.incidents} />}
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
            <Recent />
          </div>
        </>
      )}
    </>
  );
}
