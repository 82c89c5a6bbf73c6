import { Title } from "../lib/parts";
import { text } from "../text";

/** Jobs says why there is nothing to see where the plane is not on this server. */
export function Jobs(props: { here: boolean }) {
  return (
    <>
      <Title>{text.jobs}</Title>
      {!props.here && <p class="empty">{text.noJobs}</p>}
    </>
  );
}
