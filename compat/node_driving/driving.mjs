// The features that compat/README.md lists, for the clients with Node drivers.
//
// An adapter is an object with the methods that the features call on `client`. A method throws Lacks if the client has no API for it, with the
// reason, and Fault if the client is faulty on any broker. Records are objects {partition, offset, timestamp, key, value,
// headers}: numbers, Buffers or null, and pairs of a name and a Buffer or null.
//
//   createTopic(topic, partitions, configs)  topics()  partitionsWithLeaders(topic)  addPartitions(topic, total)  topicId(topic)  deleteTopic(topic)
//   openProducer({codec, acks, idempotent})  -> send(topic, records), renew(topic): it was recreated, close()
//   openConsumer(topic, partitions, {maxWaitMs, maxBytes})  -> arrived (Arrivals, from the first offsets on), renew(), close()
//   join(topic, {group, cooperative, instance})  -> arrived, commit(records), assignment(), revoked(): all partitions revoked so far,
//                                                   rebalances(): the number of assignments, close(): leaves, unless it is static
//   firstAndLast(topic, partition)  offsetAt(topic, partition, timestamp)  deleteRecords(topic, partition, before)
//   config(topic, key)  setConfig(topic, key, value): one key, null resets it to the default
//   openTransactions: see transactions.mjs
//   faultOf(feature, problem), if there is such: the reason if a feature fails because the client is faulty on any broker
//   groups()  group(name) -> {state, members}  deleteGroup(name)  setGroupOffsets(group, topic, {partition: offset})

import fs from 'node:fs'
import path from 'node:path'
import { print } from './changing.mjs'
import { groupFeatures } from './groups.mjs'
import { recordFeatures } from './records.mjs'
import { reconnect } from './reconnect.mjs'
import { topicFeatures } from './topics.mjs'
import { transactionFeatures } from './transactions.mjs'
import { Fault, Lacks } from './waiting.mjs'

const PATIENCE_MS = 180_000 // for a feature
const ORDER = [
  'topics', 'none', 'gzip', 'snappy', 'lz4', 'zstd', 'acks', 'idempotence', 'group', 'eager', 'cooperative', 'static', 'offsets', 'delete_records',
  'configs', 'groups', 'reset', 'topic_ids', 'long_poll', 'large', 'reconnect', 'commit', 'abort', 'read_committed', 'txn_offsets', 'fencing',
]
const features = { ...recordFeatures, ...groupFeatures, ...topicFeatures, reconnect, ...transactionFeatures }

// Run the features that are named, or all, and end the process; `name` is the client's package.
export async function drive(name, client, wanted) {
  const installed = path.join(process.env.CLIENT_PLACE, 'node_modules', name, 'package.json')
  print({ client: name, version: JSON.parse(fs.readFileSync(installed, 'utf8')).version })
  for (const feature of wanted.length ? wanted : ORDER) {
    print({ feature, ...await attempt(feature, client, `compat-${name.replace(/\W+/g, '-')}-${feature}-${Date.now()}`) })
  }
  // Resources that a failed feature left open must not keep the process alive.
  process.exit(0)
}

async function attempt(feature, client, topic) {
  if (!(feature in features)) return { ok: null, detail: 'the driver does not know this feature' }
  const ending = new AbortController()
  const late = new Promise((_, reject) => {
    const timer = setTimeout(() => reject(new Error(`not done after ${PATIENCE_MS / 1000} s`)), PATIENCE_MS)
    ending.signal.addEventListener('abort', () => clearTimeout(timer))
  })
  try {
    await Promise.race([features[feature](client, topic), late])
    return { ok: true, detail: '' }
  } catch (problem) {
    if (problem instanceof Lacks) return { ok: null, detail: problem.message }
    const fault = problem instanceof Fault ? problem.message : client.faultOf?.(feature, problem)
    if (fault) return { ok: null, fault }
    console.error(problem)
    return { ok: false, detail: `${problem.name}: ${problem.message}` }
  } finally {
    ending.abort()
  }
}
