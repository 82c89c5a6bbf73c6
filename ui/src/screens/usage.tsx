import { Title } from "../lib/parts";
import { text } from "../text";

/** Usage says why there is nothing to see where the plane is not on this server. */
export function Usage(props: { here: boolean }) {
  return (
    <>
      <Title>{text.usage}</Title>
      {!props.here && <p class="empty">{text.noUsage}</p>}
    </>
  );
}
