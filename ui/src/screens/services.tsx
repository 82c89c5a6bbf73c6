import { Filter, Health, Mark, type State, Title } from "../lib/parts";
import { count } from "../lib/time";
import { href, param } from "../lib/route";
import { type Column, Table } from "../lib/table";
import { usePages } from "../lib/use";
import { text } from "../text";

interface Service {
  name: string;
  kind?: string;
  instances: number;
  passing: number;
  warning: number;
  critical: number;
  tags: string[];
  /** output is what the first of the worst instances says. */
  output?: string;
}

function state(s: Service): State {
  if (s.critical > 0) return "critical";
  if (s.warning > 0) return "warning";
  return s.instances > 0 ? "passing" : "unknown";
}

const columns: Column<Service>[] = [
  {
    name: text.service,
    cell: (s) => (
      <Mark state={state(s)}>
        <a href={href(`/services/${encodeURIComponent(s.name)}`)}>{s.name}</a>
      </Mark>
    ),
    wide: true,
  },
  { name: text.health, cell: (s) => <Health passing={s.passing} warning={s.warning} critical={s.critical} /> },
  { name: text.instances, cell: (s) => count(s.instances), number: true },
  { name: text.passing, cell: (s) => count(s.passing), number: true },
  { name: text.warning, cell: (s) => count(s.warning), number: true },
  { name: text.critical, cell: (s) => count(s.critical), number: true },
  { name: text.output, cell: (s) => s.output ?? "", wide: true },
  { name: text.tags, cell: (s) => s.tags.join(" ") },
];

export function Services() {
  const q = param("q");
  const { live, page, onMiddle } = usePages<Service>(`services?q=${encodeURIComponent(q)}`);
  return (
    <>
      <Title of={live} words={<a href={href("/instances?q=-state:passing")}>{text.allUnhealthy}</a>}>
        {text.services}
      </Title>
      <Filter hint={text.servicesHint} problem={page?.problem} />
      {page && (
        <Table
          label={text.services}
          page={page}
          onMiddle={onMiddle}
          id={(s) => s.name}
          columns={columns}
          href={(s) => `/services/${encodeURIComponent(s.name)}`}
          empty={page.all === 0 ? text.noServices : text.noMatch}
        />
      )}
    </>
  );
}

interface Instance {
  service: string;
  id: string;
  node: string;
  address: string;
  state: State;
  /** check is the worst one, output its first line. */
  check?: string;
  output?: string;
  tags: string[];
}

const instanceColumns: Column<Instance>[] = [
  { name: text.instance, cell: (i) => <Mark state={i.state}>{i.id}</Mark> },
  { name: text.node, cell: (i) => <a href={href(`/nodes?q=${encodeURIComponent(`name:${i.node}`)}`)}>{i.node}</a> },
  { name: text.address, cell: (i) => i.address },
  { name: text.check, cell: (i) => i.check ?? "" },
  { name: text.output, cell: (i) => i.output ?? "", wide: true },
];

/** Instances are those of one service, or of all, the unhealthy ones first, with the reason in the row. */
export function Instances(props: { service: string }) {
  const { service } = props;
  const q = param("q");
  const { live, page, onMiddle } = usePages<Instance>(
    `instances?service=${encodeURIComponent(service)}&q=${encodeURIComponent(q)}`,
  );
  return (
    <>
      <Title of={live} words={service !== "" && <a href={href(`/topology?s=${encodeURIComponent(service)}`)}>{text.whoCalls}</a>}>
        {service === "" ? text.allInstances : service}
      </Title>
      <Filter hint={text.instancesHint} problem={page?.problem} />
      {page && (
        <Table
          label={service === "" ? text.allInstances : service}
          page={page}
          onMiddle={onMiddle}
          id={(i) => `${i.node}/${i.id}`}
          columns={instanceColumns}
          empty={page.all === 0 ? (service === "" ? text.noServices : text.noInstances) : text.noMatch}
        />
      )}
    </>
  );
}
