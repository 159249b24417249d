// Prints every change of a partition's leader and ISR as the controller tells it.
import { setTimeout as pause } from "node:timers/promises";

import { Cluster } from "./cluster.js";
import { options } from "./options.js";

const PAUSE_MS = 500;

const given = options({ for: 60 });
const deadline = Date.now() + 1000 * Number(given.for);
const cluster = new Cluster(given.bootstrap);
const reported = new Map();

function tell(topic, partition) {
  const index = partition.partition_index ?? 0;
  const key = `${topic.topic_id}-${index}`;
  const epoch = partition.partition_epoch ?? 0;
  if (reported.get(key) === epoch) return;
  reported.set(key, epoch);
  const leader = partition.leader_id === undefined ? "nobody" : `node ${partition.leader_id}`;
  console.log(`${topic.name}-${index} leader ${leader} epoch ${partition.leader_epoch ?? 0} isr ${partition.isr ?? []}`);
}

while (Date.now() < deadline) {
  // The stream ends when the controller does; its next snapshot tells what was missed.
  try {
    for await (const message of cluster.controller.WatchMetadata({}, { deadline })) {
      for (const topic of message.metadata?.topics ?? []) {
        for (const partition of topic.partitions ?? []) tell(topic, partition);
      }
    }
  } catch (error) {
    if (Date.now() >= deadline) break;
    console.error(`the watch ended, asking again: ${error.message}`);
  }
  await pause(Math.min(PAUSE_MS, Math.max(0, deadline - Date.now())));
}
cluster.close();
