import { Grid } from "../lib/grid";
import { Mark, Problems, type State, Title } from "../lib/parts";
import { clock, count } from "../lib/time";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Product {
  name: string;
  kind: string;
  identity?: string[];
  windows?: string[];
  unit?: string;
}

interface Limit {
  name: string;
  tenant: string;
  product: string;
  window: string;
  value: number | string | null;
  now?: number | string;
  crossed?: number[];
  forecast?: string;
}

interface Top {
  product: string;
  unit: string;
  top: { tenant: string; value: number | string }[] | null;
}

interface UsageData {
  products?: Product[];
  limits?: Limit[];
  top?: Top[];
  problems: Record<string, string>;
}

const amount = (v: number | string | null | undefined): string => (typeof v === "number" ? count(v) : (v ?? ""));

function state(l: Limit): State {
  const most = Math.max(0, ...(l.crossed ?? []));
  return most >= 1 ? "critical" : most > 0 || l.forecast ? "warning" : "passing";
}

/** Usage shows limits with when they are crossed, and who counts for how much; where the plane is not here it says so. */
export function Usage(props: { here: boolean }) {
  const live = useLive<UsageData>("usage");
  const data = live.value.value;
  if (!props.here) {
    return (
      <>
        <Title>{text.usage}</Title>
        <p class="empty">{text.noUsage}</p>
      </>
    );
  }
  return (
    <>
      <Title of={live}>{text.usage}</Title>
      <Problems of={data?.problems} />
      {data && (
        <>
          <h2>{text.limits}</h2>
          <Grid
            label={text.limits}
            rows={data.limits ?? []}
            id={(l) => l.name}
            empty={text.noLimits}
            columns={[
              { name: text.limit, cell: (l) => <Mark state={state(l)}>{l.name}</Mark> },
              { name: text.tenant, cell: (l) => l.tenant },
              { name: text.product_, cell: (l) => l.product },
              { name: text.windowHead, cell: (l) => l.window },
              { name: text.nowHead, cell: (l) => amount(l.now), number: true },
              { name: text.most, cell: (l) => amount(l.value), number: true },
              { name: text.forecast, cell: (l) => (l.forecast ? clock(Date.parse(l.forecast)) : "") },
            ]}
          />
          <h2>{text.contributors}</h2>
          <Grid
            label={text.contributors}
            rows={(data.top ?? []).flatMap((t) => (t.top ?? []).map((one) => ({ ...one, product: t.product, unit: t.unit })))}
            id={(t) => `${t.product} ${t.tenant}`}
            empty={text.nothingCounted}
            columns={[
              { name: text.product_, cell: (t) => t.product },
              { name: text.tenant, cell: (t) => t.tenant },
              { name: text.amount, cell: (t) => amount(t.value), number: true },
              { name: text.unit, cell: (t) => t.unit },
            ]}
          />
          <h2>{text.products}</h2>
          <Grid
            label={text.products}
            rows={data.products ?? []}
            id={(p) => p.name}
            empty={text.nothingCounted}
            columns={[
              { name: text.product_, cell: (p) => p.name },
              { name: text.kind, cell: (p) => p.kind },
              { name: text.identity, cell: (p) => (p.identity ?? []).join(" ") },
              { name: text.windows, cell: (p) => (p.windows ?? []).join(" ") },
            ]}
          />
        </>
      )}
    </>
  );
}
