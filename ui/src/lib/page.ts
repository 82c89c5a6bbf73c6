// Lists come in pages: nobody sends or keeps 60,000 rows for the forty that are seen.

/** Page is a part of a list as the server tells of it. */
export interface Page<R> {
  rows: R[];
  /** from is the number of the first of rows, of matching; all is how many the person may see. */
  from: number;
  matching: number;
  all: number;
  /** problem says what is wrong with the filter. */
  problem?: string;
}

const pageRows = 200;

/** pageAround is the query of the page that has row n and what is near: pages overlap by half. */
export const pageAround = (n: number): string =>
  `from=${Math.max(0, Math.floor(n / (pageRows / 2)) - 1) * (pageRows / 2)}&rows=${pageRows}`;
