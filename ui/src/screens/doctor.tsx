import { Copy, Mark, type State, Title } from "../lib/parts";
import { ago } from "../lib/time";
import { param } from "../lib/route";
import { useLive } from "../lib/use";
import { text } from "../text";
import { Flame } from "./flame";

interface Line {
  text: string;
}

interface Finding {
  id: string;
  severity: State;
  title: string;
  since: number;
  /** evidence and not are lines that the doctor measured, do is what to do. */
  evidence: Line[];
  not: Line[];
  do: string[];
}

interface DoctorData {
  findings: Finding[];
  fine: string[];
  /** asked is how many members answered; silent are those that did not. */
  asked: number;
  silent: { member: string; reason: string }[];
}

function List(props: { name: string; lines: string[] }) {
  if (props.lines.length === 0) return null;
  return (
    <>
      <h2>{props.name}</h2>
      <ul>
        {props.lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </>
  );
}

/** told is a finding as text, to paste where it is talked about. */
function told(f: Finding): string {
  const part = (name: string, lines: string[]) => (lines.length > 0 ? [`${name}:`, ...lines.map((l) => `  ${l}`)] : []);
  return [
    `${f.severity}: ${f.title}${f.since > 0 ? `, ${text.sinceTime(new Date(f.since).toISOString())}` : ""}`,
    ...part(text.evidence, f.evidence.map((l) => l.text)),
    ...part(text.isNot, f.not.map((l) => l.text)),
    ...part(text.remedy, f.do),
  ].join("\n");
}

export function Doctor() {
  const live = useLive<DoctorData>("doctor");
  const data = live.value.value;
  const open = param("finding");
  return (
    <>
      <Title of={live} words={data && text.asked(data.asked, data.asked + data.silent.length)}>
        {text.doctor}
      </Title>
      {data && (
        <>
          {data.findings.length === 0 && <p class="empty">{text.noFindings}</p>}
          {data.findings.map((f, i) => (
            <details key={f.id} class="finding" open={open === f.id || (open === "" && i === 0)}>
              <summary>
                <Mark state={f.severity}>{f.title}</Mark> <span class="words">{f.since > 0 && ago(f.since)}</span>
              </summary>
              <List name={text.evidence} lines={f.evidence.map((l) => l.text)} />
              <List name={text.isNot} lines={f.not.map((l) => l.text)} />
              <List name={text.remedy} lines={f.do} />
              <Copy what={told(f)} label={text.copyFinding} />
            </details>
          ))}
          <List name={text.silentMembers} lines={data.silent.map((s) => `${s.member}: ${s.reason}`)} />
          <List name={text.fine} lines={data.fine} />
          <Flame />
        </>
      )}
    </>
  );
}
