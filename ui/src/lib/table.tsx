// A table of any length: only the rows that are seen are in the document, each is one dense line, and live changes
// move neither the scroll nor the selection.
import { useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { useKeys } from "./use";
import { go } from "./route";
import { text } from "../text";
import { count } from "./time";

export interface Column<R> {
  name: string;
  /** cell is what a row shows; a number is set to the right. */
  cell: (row: R) => ComponentChildren;
  number?: boolean;
  wide?: boolean;
}

const rowHeight = 28; // px, as in style.css
const beyond = 8; // rows above and below what is seen

export function Table<R>(props: {
  label: string;
  rows: R[];
  id: (row: R) => string;
  columns: Column<R>[];
  href?: (row: R) => string;
  empty: ComponentChildren;
}) {
  const { rows, columns, id } = props;
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [selected, select] = useState("");
  const height = box.current?.clientHeight ?? 600;
  const from = Math.max(0, Math.floor(top / rowHeight) - beyond);
  const to = Math.min(rows.length, Math.ceil((top + height) / rowHeight) + beyond);

  // Keys come faster than renderings: what they see is kept beside.
  const state = useRef({ rows, selected });
  state.current.rows = rows;
  const choose = (name: string) => {
    state.current.selected = name;
    select(name);
  };
  const move = (by: number) => {
    const list = state.current.rows;
    const at = list.findIndex((r) => id(r) === state.current.selected);
    const next = Math.min(list.length - 1, Math.max(0, at + by));
    const row = list[next];
    if (row === undefined || !box.current) return;
    choose(id(row));
    const height = box.current.clientHeight;
    const y = next * rowHeight;
    if (y < box.current.scrollTop) box.current.scrollTop = y;
    else if (y + rowHeight > box.current.scrollTop + height - rowHeight) box.current.scrollTop = y + 2 * rowHeight - height;
  };
  const keys = useMemo(
    () => [
      { keys: "j", what: text.keyDown, run: () => move(1) },
      { keys: "k", what: text.keyUp, run: () => move(-1) },
      {
        keys: "Enter",
        what: text.keyOpen,
        run: () => {
          const row = state.current.rows.find((r) => id(r) === state.current.selected);
          if (row !== undefined && props.href) go(props.href(row));
        },
      },
    ],
    [],
  );
  useKeys(keys);

  if (rows.length === 0) return <p class="empty">{props.empty}</p>;
  const shown = rows.slice(from, to);
  return (
    <div class="table" role="table" aria-label={props.label} aria-rowcount={rows.length + 1}>
      <div class="row head" role="row" aria-rowindex={1}>
        {columns.map((c) => (
          <span role="columnheader" class={kind(c)}>
            {c.name}
          </span>
        ))}
      </div>
      <div class="body" role="rowgroup" tabIndex={0} ref={box} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
        <div class="space" role="presentation" style={{ height: `${rows.length * rowHeight}px` }}>
          {shown.map((row, i) => (
            <div
              key={id(row)}
              role="row"
              aria-rowindex={from + i + 2}
              aria-selected={id(row) === selected}
              class={id(row) === selected ? "row selected" : "row"}
              style={{ transform: `translateY(${(from + i) * rowHeight}px)` }}
              onClick={() => choose(id(row))}
              onDblClick={() => props.href && go(props.href(row))}
            >
              {columns.map((c) => (
                <span role="cell" class={kind(c)}>
                  {c.cell(row)}
                </span>
              ))}
            </div>
          ))}
        </div>
      </div>
      <p class="count">{text.rows(count(rows.length))}</p>
    </div>
  );
}

function kind<R>(c: Column<R>): string {
  return c.number ? "cell number" : c.wide ? "cell wide" : "cell";
}
