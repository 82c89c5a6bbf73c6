// A table of any length: the server sends the rows around those that are seen, those that are seen are in the document,
// each is one dense line, and live changes move neither the scroll nor the selection.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Page } from "./page";
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
  /** acts is a column of buttons, as wide as they are. */
  acts?: boolean;
}

const rowHeight = 28; // px, as in style.css
const beyond = 8; // rows above and below what is seen

export function Table<R>(props: {
  label: string;
  page: Page<R>;
  /** onMiddle is told the number of the row in the middle of what is seen. */
  onMiddle: (n: number) => void;
  id: (row: R) => string;
  columns: Column<R>[];
  href?: (row: R) => string;
  /** actions are keys of the screen that do something with the selected row. */
  actions?: { keys: string; what: string; run: (row: R) => void }[];
  empty: ComponentChildren;
}) {
  const { page, columns, id } = props;
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [selected, select] = useState("");
  const height = box.current?.clientHeight ?? 600;
  const from = Math.max(page.from, Math.floor(top / rowHeight) - beyond);
  const to = Math.min(page.from + page.rows.length, Math.ceil((top + height) / rowHeight) + beyond);
  const middle = Math.floor((top + height / 2) / rowHeight);
  useEffect(() => props.onMiddle(middle), [Math.floor(middle / 20)]);

  // Keys come faster than renderings: what they see is kept beside.
  const state = useRef({ page, selected });
  state.current.page = page;
  const choose = (name: string) => {
    state.current.selected = name;
    select(name);
  };
  const move = (by: number) => {
    const { rows, from } = state.current.page;
    const at = rows.findIndex((r) => id(r) === state.current.selected);
    const next = Math.min(rows.length - 1, Math.max(0, at + by));
    const row = rows[next];
    if (row === undefined || !box.current) return;
    choose(id(row));
    const seen = box.current.clientHeight;
    const y = (from + next) * rowHeight;
    if (y < box.current.scrollTop) box.current.scrollTop = y;
    else if (y + 2 * rowHeight > box.current.scrollTop + seen) box.current.scrollTop = y + 2 * rowHeight - seen;
  };
  const keys = useMemo(
    () => [
      { keys: "j", what: text.keyDown, run: () => move(1) },
      { keys: "k", what: text.keyUp, run: () => move(-1) },
      {
        keys: "Enter",
        what: text.keyOpen,
        run: () => {
          const row = state.current.page.rows.find((r) => id(r) === state.current.selected);
          if (row !== undefined && props.href) go(props.href(row));
        },
      },
      ...(props.actions ?? []).map((a) => ({
        keys: a.keys,
        what: a.what,
        run: () => {
          const row = state.current.page.rows.find((r) => id(r) === state.current.selected);
          if (row !== undefined) a.run(row);
        },
      })),
    ],
    [],
  );
  useKeys(keys);

  if (page.matching === 0) return <p class="empty">{props.empty}</p>;
  const shown = page.rows.slice(from - page.from, Math.max(from, to) - page.from);
  return (
    <div class="table" role="table" aria-label={props.label} aria-rowcount={page.matching + 1}>
      <div class="row head" role="row" aria-rowindex={1}>
        {columns.map((c) => (
          <span key={c.name} role="columnheader" class={kind(c)}>
            {c.name}
          </span>
        ))}
      </div>
      <div class="body" role="rowgroup" tabIndex={0} aria-label={props.label} ref={box} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
        <div class="space" role="presentation" style={{ height: `${page.matching * rowHeight}px` }}>
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
                <span key={c.name} role="cell" class={kind(c)}>
                  {c.cell(row)}
                </span>
              ))}
            </div>
          ))}
        </div>
      </div>
      <p class="count">{text.rows(count(page.matching))}</p>
    </div>
  );
}

function kind<R>(c: Column<R>): string {
  return c.number ? "cell number" : c.wide ? "cell wide" : c.acts ? "cell acts" : "cell";
}
