import { Filter, Mark, type State, Title } from "../lib/parts";
import { count } from "../lib/time";
import { href, param, setParam } from "../lib/route";
import { Table } from "../lib/table";
import { usePages } from "../lib/use";
import { text } from "../text";

interface Node {
  name: string;
  address: string;
  state: State;
  instances: number;
  failing: number;
  output?: string;
  meta?: Record<string, string>;
}

/** Nodes is the list, with a map of squares above it: grouped by a key of their metadata where the address names one. */
export function Nodes() {
  const q = param("q");
  const by = param("by");
  const { live, page, onMiddle } = usePages<Node>(`nodes?q=${encodeURIComponent(q)}`);
  const groups = new Map<string, Node[]>();
  for (const n of page?.rows ?? []) {
    const name = by === "" ? "" : (n.meta?.[by] ?? "-");
    groups.set(name, [...(groups.get(name) ?? []), n]);
  }
  const keys = [...new Set((page?.rows ?? []).flatMap((n) => Object.keys(n.meta ?? {})))].sort();
  return (
    <>
      <Title of={live}>{text.nodes}</Title>
      <div class="bar">
        <Filter hint={text.nodesHint} problem={page?.problem} />
        <label>
          {text.groupBy}{" "}
          <select value={by} onChange={(e) => setParam("by", e.currentTarget.value)}>
            <option value="">{text.nothing}</option>
            {keys.map((k) => (
              <option key={k} value={k}>
                {k}
              </option>
            ))}
          </select>
        </label>
      </div>
      {[...groups].sort().map(([name, nodes]) => (
        <section key={name} aria-label={name === "" ? text.nodes : name}>
          {name !== "" && (
            <h2>
              {by} {name}, {count(nodes.length)}
            </h2>
          )}
          <div class="squares">
            {nodes.map((n) => (
              <a
                key={n.name}
                class={n.state}
                href={href(`/nodes?q=${encodeURIComponent(`name:${n.name}`)}`)}
                aria-label={`${n.name}: ${n.state}`}
                title={`${n.name}: ${n.state}${n.output ? `, ${n.output}` : ""}`}
              />
            ))}
          </div>
        </section>
      ))}
      {page && (
        <Table
          label={text.nodes}
          page={page}
          onMiddle={onMiddle}
          id={(n) => n.name}
          href={(n) => `/instances?q=${encodeURIComponent(`node:${n.name}`)}`}
          columns={[
            { name: text.node, cell: (n) => <Mark state={n.state}>{n.name}</Mark> },
            { name: text.address, cell: (n) => n.address },
            { name: text.instances, cell: (n) => count(n.instances), number: true },
            { name: text.failing, cell: (n) => count(n.failing), number: true },
            { name: text.output, cell: (n) => n.output ?? "", wide: true },
          ]}
          empty={page.all === 0 ? text.noNodes : text.noMatch}
        />
      )}
    </>
  );
}
