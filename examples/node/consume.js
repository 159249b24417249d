// Prints the committed records of one partition: partition, offset and value, separated by tabs.
// The leader holds a fetch until there is something to read, so waiting costs nothing.
import { Cluster } from "./cluster.js";
import { options } from "./options.js";

const given = options({ topic: "tides", partition: 0, offset: 0, count: 0, for: 60 });
const { topic } = given;
const [partition, count] = [Number(given.partition), Number(given.count)];
const signal = AbortSignal.timeout(1000 * Number(given.for));
const cluster = new Cluster(given.bootstrap);

let offset = BigInt(given.offset);
let seen = 0;
while ((count === 0 || seen < count) && !signal.aborted) {
  const { records, next } = await cluster.fetch(signal, topic, partition, offset, 1000);
  offset = next;
  for (const record of records) {
    console.log(`${partition}\t${record.offset}\t${record.value ?? ""}`);
    if (++seen === count) break;
  }
}
cluster.close();
process.exitCode = count > seen ? 1 : 0;
