// Drives node-redlock. The protocol is described in src/order.rs.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import Redis from "ioredis";
import Redlock from "redlock";

const [, , subject, ...nodes] = process.argv;
// With auto-pipelining, the requests of one turn of the event loop go to a server in one write.
const options = { redlock: {}, "redlock-pipelined": { enableAutoPipelining: true } }[subject];
if (!options) throw new Error(`there is no subject ${subject}`);
const clients = nodes.map((node) => new Redis(node, options));
await Promise.all(clients.map((client) => client.ping()));
// The delays from its README; it retries until it has the lock, like all subjects.
const redlock = new Redlock(clients, { retryCount: -1, retryDelay: 200, retryJitter: 200 });

const now = () => Number(process.hrtime.bigint() / 1000n);
const wallClock = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
const tasks = (count, run) => Promise.all(Array.from({ length: count }, (_, task) => run(task)));
const quantile = (times, part) => times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0;

async function cycles(order) {
  const start = now();
  const end = start + order.millis * 1000;
  const times = [];
  let failures = 0;
  await tasks(order.tasks, async (task) => {
    for (let [began, number] = [now(), 0]; began < end; began = now(), number += 1) {
      try {
        const lock = await redlock.acquire([`${order.name}/${task}/${number}`], order.ttl_millis);
        await lock.release();
        times.push(now() - began);
      } catch {
        failures += 1;
      }
    }
  });
  return findings(times, { count: times.length, all: times.length, failures, micros: now() - start });
}

async function contend(order) {
  const start = now();
  const end = order.work === "contend" ? start + order.millis * 1000 : start;
  const [handOvers, grants] = [[], Array.from({ length: order.tasks }, () => [])];
  let [all, failures, overlaps, held, ended] = [0, 0, 0, false, 0];
  await tasks(order.tasks, async (task) => {
    for (;;) {
      try {
        const lock = await redlock.acquire([order.name], order.ttl_millis);
        all += 1;
        if (order.work === "contend" && now() >= end) return await lock.release();
        grants[task].push(wallClock());
        if (held) overlaps += 1;
        held = true;
        if (ended) handOvers.push(now() - ended);
        await sleep(order.hold_millis);
        ended = now();
        held = false;
        await lock.release();
      } catch {
        failures += 1;
        continue;
      }
      if (now() >= end) return;
    }
  });
  const micros = order.work === "contend" ? order.millis * 1000 : now() - start;
  const count = grants.reduce((sum, began) => sum + began.length, 0);
  return findings(handOvers, { count, all, failures, overlaps, micros, grants });
}

function findings(times, others) {
  times.sort((a, b) => a - b);
  return { overlaps: 0, grants: [], ...others, p50: quantile(times, 0.5), p99: quantile(times, 0.99) };
}

const require = createRequire(import.meta.url);
const version = (name) => `${name} ${require(`./node_modules/${name}/package.json`).version}`;
console.log(JSON.stringify({ version: `${version("redlock")}, ${version("ioredis")}, Node ${process.versions.node}` }));
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  console.log(JSON.stringify(await (order.work === "cycles" ? cycles(order) : contend(order))));
}
process.exit();
