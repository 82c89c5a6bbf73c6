// A short table, all of whose rows are in the document.
import type { ComponentChildren } from "preact";
import type { Column } from "./table";

export function Grid<R>(props: { label: string; rows: R[]; columns: Column<R>[]; id: (row: R) => string; empty: ComponentChildren }) {
  if (props.rows.length === 0) return <p class="empty">{props.empty}</p>;
  return (
    <div class="grid" tabIndex={0} role="region" aria-label={props.label}>
      <table>
        <thead>
          <tr>
            {props.columns.map((c) => (
              <th key={c.name} scope="col" class={c.number ? "number" : undefined}>
                {c.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={props.id(row)}>
              {props.columns.map((c) => (
                <td key={c.name} class={c.number ? "number" : undefined}>
                  {c.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
