// What the three programs are asked with: --name value, with a default for each.
import { parseArgs } from "node:util";

export function options(defaults) {
  const wanted = { bootstrap: process.env.STRANDLINE_BOOTSTRAP ?? "127.0.0.1:9092", ...defaults };
  const { values } = parseArgs({
    options: Object.fromEntries(Object.entries(wanted).map(([name, value]) => [name, { type: "string", default: String(value) }])),
  });
  return values;
}
