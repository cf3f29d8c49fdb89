// Shared by all drivers in Node: README.md describes the protocol.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { Redis } from "ioredis";

const require = createRequire(import.meta.url);
const say = (...words) => console.log(words.join(" ").replaceAll("\n", " "));

// Both libraries have the same API; they differ in their names and exports.
export async function serve(Redlock, name) {
  const clients = process.argv.slice(2).map((node) => new Redis(node));
  // A client without an error listener prints each lost connection to stderr.
  for (const client of clients) client.on("error", () => {});
  await Promise.all(clients.map((client) => client.ping()));
  const redlock = new Redlock(clients, { retryCount: 0 });
  redlock.on("error", () => {});
  const held = new Map();
  const verbs = {
    async acquire(resource, ttl) {
      const lock = await redlock.acquire([resource], Number(ttl));
      held.set(resource, lock);
      return ["acquired", Buffer.from(lock.value).toString("hex")];
    },
    async extend(resource, ttl) {
      held.set(resource, await held.get(resource).extend(Number(ttl)));
      return ["extended"];
    },
    async release(resource) {
      const lock = held.get(resource);
      held.delete(resource);
      await lock.release();
      return ["released"];
    },
  };
  const version = (name) => `${name} ${require(`./node_modules/${name}/package.json`).version}`;
  say("ready", `${version(name)}, ${version("ioredis")}, Node ${process.versions.node}`);
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, resource, ttl] = line.split(" ");
    try {
      say(...(await verbs[verb](resource, ttl)));
    } catch (error) {
      say("refused", `${error.name}: ${error.message}`);
    }
  }
  process.exit();
}
