// The address of the page is its state: each view, filter and selection is a bookmark.
import { computed, signal } from "@preact/signals";

const base = "/ui";

function read(): { path: string; query: URLSearchParams } {
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : "";
  return { path: path === "" ? "/" : path, query: new URLSearchParams(location.search) };
}

const here = signal(read());

/** path is where the person is, below /ui. */
export const path = computed(() => here.value.path);

/** param is a part of the query, "" without it. */
export function param(name: string): string {
  return here.value.query.get(name) ?? "";
}

/** go moves to a path, with an entry in the browser's history. */
export function go(to: string): void {
  history.pushState(null, "", base + (to === "/" ? "" : to));
  here.value = read();
}

/** setParam changes the query in place: a filter that is being typed leaves no trail. */
export function setParam(name: string, value: string): void {
  const query = new URLSearchParams(here.value.query);
  if (value === "") query.delete(name);
  else query.set(name, value);
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text === "" ? "" : "?" + text));
  here.value = read();
}

/** href is a link's address. */
export const href = (to: string): string => base + (to === "/" ? "" : to);

/** listen follows the browser's buttons and the page's own links. */
export function listen(): void {
  addEventListener("popstate", () => {
    here.value = read();
  });
  document.addEventListener("click", (e) => {
    const link = e.target instanceof Element ? e.target.closest("a[href]") : null; // of HTML or of a drawing
    if (!link || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    const to = new URL(link.getAttribute("href") ?? "", location.href);
    if (to.origin !== location.origin || !to.pathname.startsWith(base) || link.hasAttribute("target")) return;
    e.preventDefault();
    go(to.pathname.slice(base.length) + to.search);
  });
}
