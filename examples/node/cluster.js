// Finds who leads a partition, and finds it again when that has changed.
import fs from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const PROTOS = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../protos");
const CALL_MS = 5_000;
const FIRST_PAUSE_MS = 50;
const MOST_PAUSE_MS = 1_000;

const definition = loader.loadSync(
  ["controller", "leader", "group"].map((service) => `strandline/v1/${service}_service.proto`),
  { includeDirs: [PROTOS], keepCase: true, longs: String, enums: String, defaults: false },
);
const { LeaderService, ControllerService, GroupService } = grpc.loadPackageDefinition(definition).strandline.v1;

// After these, another attempt may succeed.
const TRANSIENT = new Set([
  "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "LEADER_NOT_AVAILABLE",
  "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
  "REQUEST_TIMED_OUT", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
  "UNSTABLE_OFFSET_COMMIT",
].map((name) => `ERROR_CODE_${name}`));
const TRANSIENT_STATUS = new Set([
  grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.RESOURCE_EXHAUSTED,
]);

// What a partition, or a call as a whole, was refused with.
export class Refused extends Error {
  constructor(code, sentence) {
    super(sentence);
    this.isTransient = TRANSIENT.has(code);
  }
}

// Throws if an answer has an error code; a field that is absent has its zero value.
export function check(answer) {
  if (answer.error_code && answer.error_code !== "ERROR_CODE_UNSPECIFIED") {
    throw new Refused(answer.error_code, answer.error_message);
  }
  return answer;
}

// A unary call as a promise, with a deadline.
export function call(client, method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, { deadline: Date.now() + CALL_MS }, (error, answer) =>
      error ? reject(error) : resolve(answer));
  });
}

// Attempts until something else than a passing failure happens or `signal` ends it, with growing pauses.
export async function retry(signal, attempt) {
  for (let wait = FIRST_PAUSE_MS; ; wait = Math.min(2 * wait, MOST_PAUSE_MS)) {
    try {
      return await attempt();
    } catch (error) {
      if (!error.isTransient && !TRANSIENT_STATUS.has(error.code)) throw error;
      if (signal.aborted) throw error;
      await pause(wait, undefined, { signal }).catch(() => { throw error; });
    }
  }
}

// gRPC would follow http_proxy in the environment.
const NO_PROXY = { "grpc.enable_http_proxy": 0 };

// A view of one cluster.
export class Cluster {
  #credentials = transport();
  #clients = new Map();
  #coordinators = new Map();
  #nodes = new Map();
  #topics = new Map();

  constructor(bootstrap) {
    // The controller is the first of a list.
    this.controller = new ControllerService(bootstrap.split(",")[0], this.#credentials, NO_PROXY);
  }

  close() {
    this.controller.close();
    for (const client of [...this.#clients.values(), ...this.#coordinators.values()]) client.close();
  }

  // How many partitions a topic has; waits for the topic.
  async partitions(signal, topic) {
    return retry(signal, async () => {
      await this.#refresh();
      const found = this.#topics.get(topic);
      if (!found) throw new Refused("ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION", `there is no topic ${topic}`);
      return found.length;
    });
  }

  // Calls `ask` with the partition's leader until it is answered; after a failure the leader is looked up again.
  async askLeader(signal, topic, partition, ask) {
    return retry(signal, async () => {
      try {
        return await ask(this.#leader(topic, partition));
      } catch (error) {
        await this.#refresh();
        throw error;
      }
    });
  }

  // Calls `ask` with the group's coordinator, which any node names, until it is answered.
  async askCoordinator(signal, group, ask) {
    return retry(signal, async () => {
      await this.#refresh();
      let failed = new Refused("ERROR_CODE_COORDINATOR_NOT_AVAILABLE", "no node is known");
      for (const node of this.#nodes.values()) {
        let coordinator;
        try {
          const answer = await call(this.#groups(node), "FindCoordinator", { coordinator_keys: [group] });
          coordinator = this.#groups(check(answer.coordinators[0]));
        } catch (error) {
          failed = error;
          continue;
        }
        return ask(coordinator);
      }
      throw failed;
    });
  }

  // A partition's records from `offset` on, without those of transactions that are open or aborted, and where to go on;
  // the leader waits for some for `waitMs`.
  async fetch(signal, topic, partition, offset, waitMs) {
    const request = {
      max_wait_ms: waitMs,
      decode: true,
      isolation_level: "ISOLATION_LEVEL_READ_COMMITTED",
      topics: [{ topic, partitions: [{ partition, fetch_offset: String(offset) }] }],
    };
    return this.askLeader(signal, topic, partition, async (leader) => {
      const answer = check(await call(leader, "Fetch", request));
      const { simple_records, next_offset } = check(answer.responses[0].partitions[0]);
      // Behind the records, and behind markers and aborted records that were left out.
      return { records: simple_records ?? [], next: BigInt(next_offset ?? offset) };
    });
  }

  async #refresh() {
    const { metadata } = await call(this.controller, "GetMetadata", {});
    this.#nodes = new Map((metadata.nodes ?? []).map((node) => [node.node_id, node.endpoints.client]));
    this.#topics = new Map((metadata.topics ?? []).map((topic) => [topic.name, topic.partitions]));
  }

  #groups({ host, port }) {
    const address = `${host}:${port}`;
    if (!this.#coordinators.has(address)) {
      this.#coordinators.set(address, new GroupService(address, this.#credentials, NO_PROXY));
    }
    return this.#coordinators.get(address);
  }

  #leader(topic, partition) {
    const endpoint = this.#nodes.get(this.#topics.get(topic)?.[partition]?.leader_id);
    if (!endpoint) throw new Refused("ERROR_CODE_LEADER_NOT_AVAILABLE", `${topic}-${partition} has no leader`);
    const address = `${endpoint.host}:${endpoint.port}`;
    if (!this.#clients.has(address)) this.#clients.set(address, new LeaderService(address, this.#credentials, NO_PROXY));
    return this.#clients.get(address);
  }
}

// TLS if STRANDLINE_TLS_CERT, _KEY and _CA name files.
function transport() {
  const { STRANDLINE_TLS_CERT: cert, STRANDLINE_TLS_KEY: key, STRANDLINE_TLS_CA: ca } = process.env;
  if (!cert) return grpc.credentials.createInsecure();
  return grpc.credentials.createSsl(...[ca, key, cert].map((name) => fs.readFileSync(name)));
}
