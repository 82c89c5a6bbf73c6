import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { follow, type Live } from "./live";
import { type Key, local } from "./keys";
import { type Page, pageAround } from "./page";

/** useLive follows a topic while the component is shown. */
export function useLive<T>(name: string): Live<T> {
  const [live, end] = useMemo(() => follow<T>(name), [name]);
  useEffect(() => end, [name]);
  return live;
}

/**
 * usePages follows the page of a list that is around the middle of what is seen. While another page is on its way the
 * one before is shown.
 */
export function usePages<R>(name: string): { live: Live<Page<R>>; page: Page<R> | undefined; onMiddle: (n: number) => void } {
  const [range, setRange] = useState(pageAround(0));
  const live = useLive<Page<R>>(`${name}${name.includes("?") ? "&" : "?"}${range}`);
  const last = useRef<Page<R> | undefined>(undefined);
  last.current = live.value.value ?? last.current;
  return { live, page: last.current, onMiddle: (n) => setRange(pageAround(n)) };
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
