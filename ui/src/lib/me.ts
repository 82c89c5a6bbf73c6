// Who looks, and at which server.
import { signal } from "@preact/signals";

export interface Me {
  /** name is who is logged in, "" where nobody has to be; open says that nobody had to. */
  name: string;
  open: boolean;
  datacenter: string;
  /** planes are those of the server. */
  planes?: Record<string, boolean>;
}

export const me = signal<Me | undefined>(undefined);

/** secretsAlone tells that the server runs the secrets plane and nothing else. */
export const secretsAlone = (): boolean => me.value?.planes?.["secrets"] === true && me.value.planes["catalog"] !== true;
