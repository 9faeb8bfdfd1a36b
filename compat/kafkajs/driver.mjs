// What kafkajs can. Prints a line of JSON a feature, as compat/README.md says.

import assert from 'node:assert/strict'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

// The client is installed in the cache, not beside this file.
const require = createRequire(path.join(process.env.CLIENT_PLACE, 'driver.js'))
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const PARTITIONS = 3
const COUNT = 330
const BASE_TIMESTAMP = 1_700_000_000_000
const STEP_MS = 100
const PATIENCE_MS = 30_000
const KEEP = [{ name: 'retention.ms', value: '-1' }]

const [address, ...wanted] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compat', brokers: [address], logLevel: logLevel.ERROR, logCreator: () => said })
const admin = kafka.admin()

function said({ log }) {
  console.error(`${log.message} ${log.error ?? ''}`)
}

// ---- codecs that kafkajs takes from other packages

async function registerCodecs() {
  // Kafka and its Java clients read LZ4 frames with independent blocks only; not every package writes them.
  const lz4 = require('lz4-napi')
  const zstd = await new Promise(resolve => require('zstd-codec').ZstdCodec.run(found => resolve(new found.Simple())))
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
  CompressionCodecs[CompressionTypes.LZ4] = codec(data => lz4.compressFrameSync(data), data => lz4.decompressFrameSync(data))
  CompressionCodecs[CompressionTypes.ZSTD] = codec(data => zstd.compress(data), data => zstd.decompress(data))
}

function codec(compress, decompress) {
  return () => ({
    compress: async encoder => Buffer.from(compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(decompress(buffer)),
  })
}

// ---- records

function samples(count = COUNT) {
  const entries = JSON.parse(fs.readFileSync(new URL('../records.json', import.meta.url), 'utf8'))
  return Array.from({ length: count }, (_, i) => {
    const entry = entries[i % entries.length]
    const value = decoded(entry.value)
    return {
      partition: i % PARTITIONS,
      offset: Math.floor(i / PARTITIONS),
      timestamp: BASE_TIMESTAMP + STEP_MS * i,
      key: decoded(entry.key),
      value: value && Buffer.concat(Array(entry.repeat).fill(value)),
      headers: entry.headers.map(([name, data]) => [name, decoded(data)]),
    }
  })
}

function decoded(text) {
  return text === null ? null : Buffer.from(text, 'base64')
}

// kafkajs holds headers in an object; repeated names are an array.
function headersObject(pairs) {
  const made = {}
  for (const [name, value] of pairs) made[name] = name in made ? [made[name], value].flat() : value
  return made
}

function headersPairs(object) {
  return Object.entries(object ?? {}).flatMap(([name, values]) => [values].flat().map(value => [name, value]))
}

function received(partition, message) {
  return {
    partition, offset: Number(message.offset), timestamp: Number(message.timestamp), key: message.key, value: message.value,
    headers: headersPairs(message.headers),
  }
}

function check(read, expected) {
  const place = record => `${record.partition}-${record.offset}`
  const left = new Map(expected.map(record => [place(record), record]))
  const last = new Map()
  for (const record of read) {
    assert(record.offset > (last.get(record.partition) ?? -1), `${place(record)} came after ${last.get(record.partition)}`)
    last.set(record.partition, record.offset)
    assert(left.has(place(record)), `${place(record)} should not be there`)
    assert.deepEqual(record, left.get(place(record)))
    left.delete(place(record))
  }
  assert.equal(left.size, 0, `${left.size} records were not read`)
}

// ---- what the features are made of

async function createTopic(topic, numPartitions = PARTITIONS, configEntries = []) {
  const created = { topic, numPartitions, replicationFactor: 1, configEntries: [...KEEP, ...configEntries] }
  assert.equal(await admin.createTopics({ topics: [created], waitForLeaders: true }), true)
  // Kafka names leaders before they know it. A producer that meets one sends everything again, also what others have taken.
  await until(() => admin.fetchTopicOffsets(topic).then(() => true, () => false), 'every leader answers')
}

async function produce(topic, records, { compression = CompressionTypes.None, acks = -1, idempotent = false, sends = 1 } = {}) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1, allowAutoTopicCreation: false })
  await producer.connect()
  try {
    const size = Math.ceil(records.length / sends)
    for (let start = 0; start < records.length; start += size) {
      const messages = records.slice(start, start + size).map(({ partition, timestamp, key, value, headers }) => (
        { partition, timestamp: String(timestamp), key, value, headers: headersObject(headers) }))
      await producer.send({ topic, acks, compression, messages })
    }
  } finally {
    await producer.disconnect()
  }
}

// A new member of a group reads `count` records, commits what it read and leaves; kafkajs reads in no other way.
async function readInGroup(topic, groupId, count) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 200 })
  const read = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (read.length < count) read.push(received(partition, message))
    },
  })
  await until(() => read.length === count, `${count} records`)
  const next = new Map(read.map(record => [record.partition, record.offset + 1]))
  await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
  await consumer.disconnect()
  return read
}

function read(topic, count) {
  return readInGroup(topic, `${topic}-reader`, count)
}

async function member(topic, groupId) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 200 })
  const found = { assigned: [], close: () => consumer.disconnect() }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { found.assigned = payload.memberAssignment[topic] ?? [] })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic] })
  await consumer.run({ eachMessage: async () => {} })
  return found
}

async function until(condition, what) {
  const deadline = Date.now() + PATIENCE_MS
  for (;;) {
    if (await condition()) return
    assert(Date.now() < deadline, `after ${PATIENCE_MS / 1000} s still not: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

function shared(members) {
  const owned = members.flatMap(({ assigned }) => assigned)
  return members.every(({ assigned }) => assigned.length) && owned.length === 4 && new Set(owned).size === 4
}

async function config(topic, name) {
  const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
  return resources[0].configEntries.find(({ configName }) => configName === name).configValue
}

// ---- the features

function withCodec(compression) {
  return async topic => {
    await createTopic(topic)
    await produce(topic, samples(), { compression, sends: 2 })
    check(await read(topic, COUNT), samples())
  }
}

const features = {
  async topics(topic) {
    await createTopic(topic, 3, [{ name: 'segment.bytes', value: '1048576' }])
    assert((await admin.listTopics()).includes(topic), 'the topic is not in the list')
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.equal(topics[0].partitions.length, 3)
    assert.equal(await config(topic, 'segment.bytes'), '1048576')
    await admin.deleteTopics({ topics: [topic] })
    await until(async () => !(await admin.listTopics()).includes(topic), 'the topic goes')
  },
  none: withCodec(CompressionTypes.None),
  gzip: withCodec(CompressionTypes.GZIP),
  snappy: withCodec(CompressionTypes.Snappy),
  lz4: withCodec(CompressionTypes.LZ4),
  zstd: withCodec(CompressionTypes.ZSTD),
  async acks(topic) {
    await createTopic(topic)
    const records = samples(66)
    await produce(topic, records.slice(0, 33), { acks: 1 })
    await produce(topic, records.slice(33), { acks: 0 })
    check(await read(topic, records.length), records)
  },
  async idempotence(topic) {
    await createTopic(topic)
    const records = samples(990)
    await produce(topic, records, { idempotent: true, sends: 20 })
    check(await read(topic, records.length), records)
  },
  async group(topic) {
    await createTopic(topic)
    const records = samples(99)
    await produce(topic, records)
    const first = await readInGroup(topic, topic, 40)
    check([...first, ...await readInGroup(topic, topic, records.length - 40)], records)
  },
  async eager(topic) {
    await createTopic(topic, 4)
    const first = await member(topic, topic)
    await until(() => shared([first]), 'one member has four partitions')
    const second = await member(topic, topic)
    await until(() => shared([first, second]), 'two members share four partitions')
    await second.close()
    await until(() => shared([first]), 'the member that stayed has all')
    await first.close()
  },
  async offsets(topic) {
    await createTopic(topic)
    await produce(topic, samples(99))
    const at = async timestamp => {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
      return Number(found.find(({ partition }) => partition === 0).offset)
    }
    const { low, high } = (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 0)
    assert.deepEqual([low, high], ['0', '33'])
    const tenth = BASE_TIMESTAMP + 10 * PARTITIONS * STEP_MS
    assert.deepEqual([await at(tenth), await at(tenth + 1)], [10, 11])
  },
  async delete_records(topic) {
    await createTopic(topic)
    const records = samples(99)
    await produce(topic, records)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '20' }] })
    const left = records.filter(({ partition, offset }) => partition !== 0 || offset >= 20)
    check(await read(topic, left.length), left)
  },
  async configs(topic) {
    await createTopic(topic, PARTITIONS, [{ name: 'max.message.bytes', value: '500000' }])
    assert.equal(await config(topic, 'max.message.bytes'), '500000')
    assert.equal(await config(topic, 'cleanup.policy'), 'delete')
    const changed = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'max.message.bytes', value: '600000' }] }
    await admin.alterConfigs({ validateOnly: false, resources: [changed] })
    await until(async () => await config(topic, 'max.message.bytes') === '600000', 'the changed config')
  },
  async groups(topic) {
    await createTopic(topic)
    await produce(topic, samples(9))
    await readInGroup(topic, topic, 9)
    const listed = async () => (await admin.listGroups()).groups.some(({ groupId }) => groupId === topic)
    assert(await listed(), 'the group is not in the list')
    await until(async () => (await admin.describeGroups([topic])).groups[0].state === 'Empty', 'the group is empty')
    await admin.deleteGroups([topic])
    await until(async () => !await listed(), 'the group goes')
  },
}

function print(line) {
  fs.writeSync(1, JSON.stringify(line) + '\n')
}

function inTime(feature) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`not done after ${3 * PATIENCE_MS / 1000} s`)), 3 * PATIENCE_MS)
  })
  return Promise.race([feature, late])
}

await registerCodecs()
await admin.connect()
print({ client: 'kafkajs', version: require('kafkajs/package.json').version })
for (const feature of wanted.length ? wanted : Object.keys(features)) {
  if (!(feature in features)) {
    print({ feature, ok: null, detail: 'the driver does not know it' })
    continue
  }
  try {
    await inTime(features[feature](`compat-kafkajs-${feature}-${Date.now()}`))
    print({ feature, ok: true, detail: '' })
  } catch (problem) {
    console.error(problem)
    print({ feature, ok: false, detail: `${problem.name}: ${problem.message}` })
  }
}
// Whatever a feature that failed has left open must not keep the process.
process.exit(0)
