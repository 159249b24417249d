// Reads a topic as a member of a consumer group: prints partition, offset and value, separated by tabs.
// Everything is done in turn, so whenever a heartbeat is sent, all that was read has been printed and committed, and a
// partition that is taken away can be given up at once.
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

import { Cluster, call, check } from "./cluster.js";
import { options } from "./options.js";

const SESSION_MS = 10_000;
const REBALANCE_MS = 60_000;
// The coordinator may give a member's partitions away when its session is over; a member stops earlier.
const LEASE_SHARE = 0.9;
const WAIT_MS = 100;
const LEAVE_EPOCH = -1;
const FENCED = new Set(["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH"]
  .map((name) => `ERROR_CODE_${name}`));

const given = options({ group: "example", topic: "tides", count: 0, for: 60 });
const { group, topic } = given;
const count = Number(given.count);
const signal = AbortSignal.timeout(1000 * Number(given.for));
const cluster = new Cluster(given.bootstrap);
const id = randomUUID();
const positions = new Map();
let epoch = 0;
let sequence = 0;
let commits = 0;
let topicId = "";
let due = 0;
let leaseEnd = 0;

// Joins with epoch 0, stays with the epoch of the last answer, and leaves with -1. It says everything each time, so an
// answer that was lost needs no care.
async function heartbeat(memberEpoch) {
  let sent = 0;
  const answer = await cluster.askCoordinator(signal, group, async (coordinator) => {
    sent = Date.now();
    const found = await call(coordinator, "ConsumerGroupHeartbeat", {
      group_id: group,
      member_id: id,
      member_epoch: memberEpoch,
      sequence: String(++sequence), // Every sending has a number of its own, so that a late copy changes nothing.
      subscribed_topic_names: { names: [topic] },
      topic_partitions: { topics: memberEpoch > 0 && positions.size ? [held()] : [] },
      session_timeout_ms: SESSION_MS,
      rebalance_timeout_ms: REBALANCE_MS,
    });
    return FENCED.has(found.error_code) ? found : check(found);
  });
  if (memberEpoch === LEAVE_EPOCH) return;
  if (FENCED.has(answer.error_code)) {
    // Others may own the partitions by now: join again, with the same id.
    epoch = 0;
    positions.clear();
    return;
  }
  epoch = answer.member_epoch;
  leaseEnd = sent + LEASE_SHARE * answer.session_timeout_ms;
  due = sent + answer.heartbeat_interval_ms;
  if (answer.assignment) await take(answer.assignment.topics ?? []);
}

const held = () => ({ topic_id: topicId, partitions: [...positions.keys()] });

// Reads what is assigned from where the group has committed, and nothing else any more.
async function take(topics) {
  let assigned = [];
  for (const row of topics) [topicId, assigned] = [row.topic_id, row.partitions];
  for (const partition of positions.keys()) {
    if (assigned.includes(partition)) continue;
    positions.delete(partition);
    due = 0; // The next heartbeat says that it is given up.
  }
  const fresh = assigned.filter((partition) => !positions.has(partition));
  if (!fresh.length) return;
  const rows = await cluster.askCoordinator(signal, group, async (coordinator) => {
    const answer = await call(coordinator, "OffsetFetch", {
      require_stable: true,
      groups: [{ group_id: group, member_id: id, member_epoch: epoch, topics: { topics: [{ topic, partitions: fresh }] } }],
    });
    return check(answer.groups[0]).topics[0].partitions.map(check);
  });
  // Without a committed offset at the beginning; an error is never taken for that.
  for (const row of rows) positions.set(row.partition_index ?? 0, BigInt(row.committed_offset ?? 0));
}

// Prints what there is in each partition, and commits it.
async function read(seen) {
  if (!positions.size) await pause(WAIT_MS);
  for (const [partition, position] of positions) {
    if (Date.now() >= Math.min(leaseEnd, due)) return seen;
    const fetched = await cluster.fetch(signal, topic, partition, position, WAIT_MS);
    let { next } = fetched;
    for (const record of fetched.records) {
      if (count && seen === count) {
        next = BigInt(record.offset ?? 0);
        break;
      }
      console.log(`${partition}\t${record.offset ?? 0}\t${record.value ?? ""}`);
      seen++;
    }
    if (next !== position) await commit(partition, next);
    if (count && seen === count) return seen;
  }
  return seen;
}

async function commit(partition, next) {
  const row = await cluster.askCoordinator(signal, group, async (coordinator) => {
    const answer = await call(coordinator, "OffsetCommit", {
      group_id: group,
      member_id: id,
      generation_id_or_member_epoch: epoch,
      sequence: String(++commits),
      topics: [{ name: topic, partitions: [{ partition_index: partition, committed_offset: String(next) }] }],
    });
    const found = answer.topics[0].partitions[0];
    return FENCED.has(found.error_code) ? found : check(found);
  });
  if (FENCED.has(row.error_code)) {
    // It is another member's, which reads it from the last commit on.
    positions.delete(partition);
    due = 0;
  } else {
    positions.set(partition, next);
  }
}

let seen = 0;
while ((count === 0 || seen < count) && !signal.aborted) {
  if (Date.now() >= due) await heartbeat(epoch);
  seen = await read(seen);
}
if (!signal.aborted) await heartbeat(LEAVE_EPOCH);
cluster.close();
process.exitCode = count > seen ? 1 : 0;
