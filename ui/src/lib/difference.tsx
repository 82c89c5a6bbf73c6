/** Difference shows the lines that saving takes out and puts in: what is alike at both ends is left out. */
export function Difference(props: { before: string; after: string }) {
  const before = props.before.split("\n");
  const after = props.after.split("\n");
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (
    tail < before.length - head &&
    tail < after.length - head &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  )
    tail++;
  const out = before.slice(head, before.length - tail);
  const put = after.slice(head, after.length - tail);
  if (out.length === 0 && put.length === 0) return null;
  return (
    <pre class="difference">
      {out.map((line, i) => (
        <del key={`o${i}`}>- {line}</del>
      ))}
      {put.map((line, i) => (
        <ins key={`p${i}`}>+ {line}</ins>
      ))}
    </pre>
  );
}
