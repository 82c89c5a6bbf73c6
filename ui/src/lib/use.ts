import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { follow, type Live } from "./live";
import { type Key, local } from "./keys";

/** useLive follows a topic while the component is shown. */
export function useLive<T>(name: string): Live<T> {
  const [live, end] = useMemo(() => follow<T>(name), [name]);
  useEffect(() => end, [name]);
  return live;
}

/** useKeys gives the screen's own keys to the keyboard while it is shown. */
export function useKeys(keys: Key[]): void {
  useLayoutEffect(() => {
    local.value = keys;
    return () => {
      if (local.value === keys) local.value = [];
    };
  }, [keys]);
}
