import { Grid } from "../lib/grid";
import { Mark, Problems, type State, Title } from "../lib/parts";
import { clock, count } from "../lib/time";
import { href, param, setParam } from "../lib/route";
import { useLive } from "../lib/use";
import { text } from "../text";

interface Product {
  name: string;
  kind: string;
  tags?: string[];
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

/** Estimate is what a product comes to, how far it may be off, and how much of it is known. */
interface Estimate {
  value: number | string | null;
  unit?: string;
  error: { relative: number; low: number | string; high?: number | string; method: string };
  completeness: { ratio: number; shards_warm: number; shards: number; missing?: string[] };
  by?: { tag?: string; value: number | string; other?: boolean }[];
  series?: { time: string; value: number | string }[];
}

interface Counted {
  hour?: Estimate;
  day?: Estimate;
  by?: Estimate;
  problems: Record<string, string>;
}

interface Changed {
  at: number;
  kind: string;
  name: string;
  what: string;
  path: string;
}

const percent = (share: number): string => `${(share * 100).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %`;

/** Told is an estimate in words: what it is, between what it lies, and how much of it is known. */
function Told(props: { name: string; of: Estimate }) {
  const { of } = props;
  const whole = of.completeness.ratio >= 1;
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        <strong>
          {amount(of.value)} {of.unit}
        </strong>{" "}
        <span class="words">
          {of.error.relative === 0 ? text.exact : text.between(percent(of.error.relative), amount(of.error.low), amount(of.error.high))}
        </span>
      </dd>
      <dd>
        <Mark state={whole ? "passing" : "warning"}>
          {text.complete(percent(of.completeness.ratio), count(of.completeness.shards_warm), count(of.completeness.shards))}
        </Mark>
        {of.completeness.missing && <span class="words">{text.missingOf(of.completeness.missing.join(", "))}</span>}
      </dd>
    </div>
  );
}

/** Hours draws what each hour came to; the greatest rise is marked, and what changed before it is listed. */
function Hours(props: { series: { time: string; value: number | string }[] }) {
  const hours = props.series.map((p) => ({ at: Date.parse(p.time), value: Number(p.value) }));
  const top = Math.max(1, ...hours.map((h) => h.value));
  let jump = 0; // the hour that rose the most above the one before; 0 is none that says anything
  hours.forEach((_, i) => {
    const rise = (n: number) => (hours[n]?.value ?? 0) - (hours[n - 1]?.value ?? 0);
    if (i > 0 && rise(i) > 0.2 * top && (jump === 0 || rise(i) > rise(jump))) jump = i;
  });
  const risen = hours[jump];
  return (
    <>
      <svg class="bars" viewBox="0 0 240 60" preserveAspectRatio="none" role="img" aria-label={text.hoursOf(count(hours.length))}>
        {hours.map((h, i) => (
          <rect key={h.at} x={240 - (hours.length - i) * 10} y={58 - (56 * h.value) / top} width={8} height={(56 * h.value) / top + 1} class={i === jump && jump > 0 ? "jump" : undefined}>
            <title>{`${clock(h.at)}: ${count(h.value)}`}</title>
          </rect>
        ))}
      </svg>
      {jump > 0 && risen && <Jump at={risen.at} from={hours[jump - 1]?.value ?? 0} to={risen.value} />}
    </>
  );
}

const hour = 3_600_000; // ms

function Jump(props: { at: number; from: number; to: number }) {
  const changes = useLive<Changed[]>(`changes?before=${props.at + hour}`).value.value ?? [];
  return (
    <>
      <h2>{text.jump(count(props.from), count(props.to), clock(props.at))}</h2>
      <Grid
        label={text.changes}
        rows={changes}
        id={(c) => `${c.at} ${c.kind} ${c.name}`}
        empty={text.nothingChanged}
        columns={[
          { name: text.sinceHead, cell: (c) => clock(c.at) },
          { name: text.name, cell: (c) => <a href={href(c.path)}>{c.name}</a> },
          { name: text.kind, cell: (c) => c.kind },
          { name: text.change, cell: (c) => c.what },
        ]}
      />
    </>
  );
}

/** One is a product: an hour and a day of it with their error and completeness, hour by hour, and by a tag. */
function One(props: { product: string; tags: string[] }) {
  const tenant = param("tenant") || "default";
  const by = param("by");
  const q = `product=${encodeURIComponent(props.product)}&tenant=${encodeURIComponent(tenant)}&by=${encodeURIComponent(by)}`;
  const live = useLive<Counted>(`counted?${q}`);
  const data = live.value.value;
  return (
    <>
      <Title of={live} words={<a href={href("/usage")}>{text.usage}</a>}>
        {text.productOf(props.product, tenant)}
      </Title>
      <Problems of={data?.problems} />
      {data && (
        <>
          <dl class="facts">
            {data.hour && <Told name={text.thisHour} of={data.hour} />}
            {data.day && <Told name={text.lastDay} of={data.day} />}
          </dl>
          {(data.day?.series?.length ?? 0) > 0 && (
            <>
              <h2>{text.byHour}</h2>
              <Hours series={data.day?.series ?? []} />
            </>
          )}
          {props.tags.length > 0 && (
            <>
              <h2>{text.contributors}</h2>
              <div class="ask">
                {props.tags.map((t) => (
                  <button key={t} type="button" aria-pressed={t === by} onClick={() => setParam("by", t === by ? "" : t)}>
                    {text.byTag(t)}
                  </button>
                ))}
              </div>
              {by !== "" && (
                <Grid
                  label={text.contributors}
                  rows={data.by?.by ?? []}
                  id={(r) => r.tag ?? text.others}
                  empty={text.nothingCounted}
                  columns={[
                    { name: by, cell: (r) => (r.other ? text.others : r.tag || text.withoutTag) },
                    { name: text.amount, cell: (r) => amount(r.value), number: true },
                  ]}
                />
              )}
            </>
          )}
        </>
      )}
    </>
  );
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
  const product = data?.products?.find((p) => p.name === param("product"));
  if (product) return <One product={product.name} tags={product.tags ?? []} />;
  const to = (name: string, tenant = "default") => href(`/usage?product=${encodeURIComponent(name)}&tenant=${encodeURIComponent(tenant)}`);
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
              { name: text.product_, cell: (l) => <a href={to(l.product, l.tenant)}>{l.product}</a> },
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
              { name: text.product_, cell: (t) => <a href={to(t.product, t.tenant)}>{t.product}</a> },
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
              { name: text.product_, cell: (p) => <a href={to(p.name)}>{p.name}</a> },
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
