import { Age, Filter, Mark, type State } from "../lib/parts";
import { count } from "../lib/time";
import { href, param } from "../lib/route";
import { type Column, Table } from "../lib/table";
import { usePages } from "../lib/use";
import { text } from "../text";

interface Service {
  name: string;
  instances: number;
  passing: number;
  warning: number;
  critical: number;
  tags: string[];
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
  const { live, page, onMiddle } = usePages<Service>(`services?q=${encodeURIComponent(q)}`);
  return (
    <>
      <h1>{text.services}</h1>
      <Filter hint={text.servicesHint} problem={page?.problem} />
      <Age of={live} />
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
  id: string;
  node: string;
  address: string;
  state: State;
  /** output is what the worst check says, its first line. */
  output: string;
  tags: string[];
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
  const { live, page, onMiddle } = usePages<Instance>(
    `instances?service=${encodeURIComponent(props.service)}&q=${encodeURIComponent(q)}`,
  );
  return (
    <>
      <h1>{props.service}</h1>
      <Filter hint={text.instancesHint} problem={page?.problem} />
      <Age of={live} />
      {page && (
        <Table
          label={props.service}
          page={page}
          onMiddle={onMiddle}
          id={(i) => `${i.node}/${i.id}`}
          columns={instanceColumns}
          empty={page.all === 0 ? text.noInstances : text.noMatch}
        />
      )}
    </>
  );
}
