import { Age, Filter, Mark, type State } from "../lib/parts";
import { count } from "../lib/time";
import { href, param } from "../lib/route";
import { type Column, Table } from "../lib/table";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Service {
  name: string;
  instances: number;
  passing: number;
  warning: number;
  critical: number;
  tags: string[];
}

interface ServicesData {
  /** services match the filter, worst first. */
  services: Service[];
  /** total is how many there are that the person may see. */
  total: number;
  /** problem says what is wrong with the filter. */
  problem?: string;
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
  { name: text.instances, cell: (s) => count(s.instances), number: true },
  { name: text.passing, cell: (s) => count(s.passing), number: true },
  { name: text.warning, cell: (s) => count(s.warning), number: true },
  { name: text.critical, cell: (s) => count(s.critical), number: true },
  { name: text.tags, cell: (s) => s.tags.join(" "), wide: true },
];

export function Services() {
  const q = param("q");
  const live = useLive<ServicesData>(`services?q=${encodeURIComponent(q)}`);
  const data = live.value.value;
  return (
    <>
      <h1>{text.services}</h1>
      <Filter hint={text.servicesHint} problem={data?.problem} />
      <Age of={live} />
      {data && (
        <Table
          label={text.services}
          rows={data.services}
          id={(s) => s.name}
          columns={columns}
          href={(s) => `/services/${encodeURIComponent(s.name)}`}
          empty={data.total === 0 ? text.noServices : text.noMatch}
        />
      )}
    </>
  );
}

interface Instance {
  id: string;
  node: string;
  address: string;
  state: State;
  /** output is what the worst check says, its first line. */
  output: string;
  tags: string[];
}

interface InstancesData {
  instances: Instance[];
  total: number;
  problem?: string;
}

const instanceColumns: Column<Instance>[] = [
  { name: text.instance, cell: (i) => <Mark state={i.state}>{i.id}</Mark>, wide: true },
  { name: text.node, cell: (i) => i.node },
  { name: text.address, cell: (i) => i.address },
  { name: text.output, cell: (i) => i.output, wide: true },
];

/** Instances are those of one service, the unhealthy ones first, with the reason in the row. */
export function Instances(props: { service: string }) {
  const q = param("q");
  const live = useLive<InstancesData>(
    `instances?service=${encodeURIComponent(props.service)}&q=${encodeURIComponent(q)}`,
  );
  const data = live.value.value;
  return (
    <>
      <h1>{props.service}</h1>
      <Filter hint={text.instancesHint} problem={data?.problem} />
      <Age of={live} />
      {data && (
        <Table
          label={props.service}
          rows={data.instances}
          id={(i) => `${i.node}/${i.id}`}
          columns={instanceColumns}
          empty={data.total === 0 ? text.noInstances : text.noMatch}
        />
      )}
    </>
  );
}
