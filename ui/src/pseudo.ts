// A language that nobody speaks, for whoever looks for words that stand in no table, and for lines that a longer
// language would break: /ui?pseudo, or /ui?pseudo=rtl for one that is read from the right.

const marks: Record<string, string> = { a: "á", e: "é", i: "í", o: "ó", u: "ú", A: "Á", E: "É", I: "Í", O: "Ó", U: "Ú" };

const longer = 0.4; // of a text is added: that many more letters other languages need

function stretched(words: string): string {
  if (words === "") return words;
  return `⟦${words.replace(/[aeiouAEIOU]/g, (c) => marks[c] ?? c)}${"~".repeat(Math.ceil(words.length * longer))}⟧`;
}

/** pseudo is a table of texts in that language. */
export function pseudo<T>(words: T): T {
  if (typeof words === "string") return stretched(words) as T;
  if (typeof words === "function") return ((...args: unknown[]) => stretched(String(words(...args)))) as T;
  return Object.fromEntries(Object.entries(words as object).map(([k, v]) => [k, pseudo(v as unknown)])) as T;
}

/** wanted tells whether the address asks for it, and turns the page around where that is asked. */
export function wanted(): boolean {
  if (typeof location === "undefined") return false; // not in a browser
  const how = new URLSearchParams(location.search).get("pseudo");
  if (how === "rtl") document.documentElement.dir = "rtl";
  return how !== null;
}
