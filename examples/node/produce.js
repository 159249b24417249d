// Appends the lines of stdin to a topic and prints where they are, once every replica in sync has them.
// A batch whose answer was lost is sent again, so after a failure its lines may be there twice: at least once.
import readline from "node:readline";

import { Cluster, call, check } from "./cluster.js";
import { options } from "./options.js";

const BATCH_LINES = 500;

const { bootstrap, topic, timeout } = options({ topic: "tides", timeout: 60 });
const cluster = new Cluster(bootstrap);
const limit = () => AbortSignal.timeout(1000 * Number(timeout));
const partitions = await cluster.partitions(limit(), topic);

async function send(partition, lines) {
  const simple_records = lines.map((line) => ({ value: Buffer.from(line) }));
  const request = { topic_data: [{ name: topic, partition_data: [{ index: partition, simple_records }] }] };
  const result = await cluster.askLeader(limit(), topic, partition, async (leader) =>
    check((await call(leader, "Produce", request)).responses[0].partition_responses[0]));
  const first = Number(result.base_offset);
  console.log(`${topic}-${partition} ${first} to ${first + lines.length - 1}`);
}

let batch = [];
let sent = 0;
for await (const line of readline.createInterface({ input: process.stdin })) {
  batch.push(line);
  if (batch.length === BATCH_LINES) await send(sent++ % partitions, batch.splice(0));
}
if (batch.length) await send(sent % partitions, batch);
cluster.close();
