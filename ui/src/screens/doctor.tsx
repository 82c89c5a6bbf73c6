import { Age, Mark, type State } from "../lib/parts";
import { ago } from "../lib/time";
import { param } from "../lib/route";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Line {
  text: string;
}

interface Finding {
  id: string;
  severity: State;
  title: string;
  since: number;
  /** evidence are lines that the doctor measured, remedy is what to do, commands what to paste. */
  evidence: Line[];
  not: Line[];
  do: string[];
}

interface DoctorData {
  findings: Finding[];
  /** asked is how many members answered, of how many. */
  asked: number;
  silent: { member: string; reason: string }[];
  fine: string[];
}

export function Doctor() {
  const live = useLive<DoctorData>("doctor");
  const data = live.value.value;
  const open = param("finding");
  return (
    <>
      <h1>{text.doctor}</h1>
      <Age of={live} />
      {data && (
        <>
          <p class="words">{text.asked(data.asked, data.asked + data.silent.length)}</p>
          {data.findings.length === 0 && <p class="empty">{text.noFindings}</p>}
          {data.findings.map((f, i) => (
            <details key={f.id} class="finding" open={open === f.id || (open === "" && i === 0)}>
              <summary>
                <Mark state={f.severity}>{f.title}</Mark> <span class="words">{ago(f.since)}</span>
              </summary>
              <h2>{text.evidence}</h2>
              <ul>
                {f.evidence.map((line) => (
                  <li key={line.text}>{line.text}</li>
                ))}
              </ul>
              <h2>{text.remedy}</h2>
              <ul>
                {f.do.map((line) => (
                  <li key={line}>{line}</li>
                ))}
              </ul>
            </details>
          ))}
        </>
      )}
    </>
  );
}
