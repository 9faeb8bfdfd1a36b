// The driver of kafkajs: HOST:PORT,... [FEATURE ...]; kafkajs/run installs and runs it.

import { createRequire } from 'node:module'
import path from 'node:path'
import { drive } from '../node_driving/driving.mjs'
import { Arrivals, Lacks } from '../node_driving/waiting.mjs'
import './secured.mjs' // which ends the process if there are cases to try

// The client is installed in the cache, not next to this file.
const require = createRequire(path.join(process.env.CLIENT_PLACE, 'driver.js'))
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const TOPIC_CONFIG_SOURCE = 1
const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}
const ACKS = { 0: 0, 1: 1, all: -1 }

const [address, ...wanted] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compat', brokers: address.split(','), logLevel: logLevel.ERROR, logCreator: () => said })
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

function toSend(records) {
  return records.map(({ partition, timestamp, key, value, headers }) => (
    { partition, timestamp: String(timestamp), key, value, headers: headersObject(headers) }))
}

async function openProducer({ codec, acks, idempotent }) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1, allowAutoTopicCreation: false })
  await producer.connect()
  return {
    send: (topic, records) => producer.send({ topic, acks: ACKS[acks], compression: CODECS[codec], messages: toSend(records) }),
    renew() {},
    close: () => producer.disconnect(),
  }
}

async function openTransactions(transactionalId) {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1, allowAutoTopicCreation: false })
  await producer.connect()
  let transaction
  return {
    async begin() { transaction = await producer.transaction() },
    send: (topic, records) => transaction.send({ topic, messages: toSend(records) }),
    sendOffsets: (consumerGroupId, topic, offsets) => transaction.sendOffsets({
      consumerGroupId,
      topics: [{ topic, partitions: Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: String(offset) })) }],
    }),
    end: commit => commit ? transaction.commit() : transaction.abort(),
    close: () => producer.disconnect(),
  }
}

// kafkajs reads in groups only.
async function consume(topic, groupId, options = {}, isNew = () => true) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 200, ...options })
  const arrived = new Arrivals()
  consumer.on(consumer.events.CRASH, ({ payload }) => { if (!payload.restart) arrived.fail(payload.error) })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const run = () => consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => { if (isNew(partition, Number(message.offset))) arrived.push(received(partition, message)) },
  })
  return { consumer, arrived, run }
}

async function openConsumer(topic, partitions, { maxWaitMs, maxBytes, committed = false }) {
  // This group commits nothing: a member that rejoins starts at the first offset again.
  const next = new Map()
  const isNew = (partition, offset) => {
    if (offset < (next.get(partition) ?? 0)) return false
    next.set(partition, offset + 1)
    return true
  }
  const group = `${topic}-reader-${Date.now()}`
  const { consumer, arrived, run } = await consume(topic, group, { maxWaitTimeInMs: maxWaitMs, maxBytesPerPartition: maxBytes, readUncommitted: !committed }, isNew)
  await run()
  return {
    arrived,
    renew() {
      next.clear()
      for (let partition = 0; partition < partitions; partition++) consumer.seek({ topic, partition, offset: '0' })
    },
    close: () => consumer.disconnect(),
  }
}

async function join(topic, { group, cooperative, instance }) {
  if (cooperative) throw new Lacks('its assignors are eager')
  if (instance) throw new Lacks('it does not support static members')
  const { consumer, arrived, run } = await consume(topic, group)
  let assigned = []
  let rebalances = 0
  const revoked = []
  consumer.on(consumer.events.REBALANCING, () => {
    revoked.push(...assigned)
    assigned = []
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    assigned = payload.memberAssignment[topic] ?? []
    rebalances++
  })
  await run()
  return {
    arrived,
    commit(records) {
      const next = new Map(records.map(record => [record.partition, record.offset + 1]))
      return consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
    },
    assignment: () => assigned,
    revoked: () => revoked,
    rebalances: () => rebalances,
    close: () => consumer.disconnect(),
  }
}

// ---- administration

async function partitionsWithLeaders(topic) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return topics[0].partitions.filter(({ leader }) => leader >= 0).length
}

async function firstAndLast(topic, partition) {
  const { low, high } = (await admin.fetchTopicOffsets(topic)).find(found => found.partition === partition)
  return [Number(low), Number(high)]
}

async function offsetAt(topic, partition, timestamp) {
  return Number((await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)).find(found => found.partition === partition).offset)
}

async function configs(topic) {
  const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
  return resources[0].configEntries
}

// kafkajs replaces a topic's configs as a whole.
async function setConfig(topic, key, value) {
  const others = (await configs(topic)).filter(entry => entry.configSource === TOPIC_CONFIG_SOURCE && entry.configName !== key)
  const configEntries = others.map(({ configName, configValue }) => ({ name: configName, value: configValue }))
  if (value !== null) configEntries.push({ name: key, value })
  await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
}

const client = {
  async createTopic(topic, numPartitions, given) {
    const configEntries = Object.entries(given).map(([name, value]) => ({ name, value }))
    await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: -1, configEntries }], waitForLeaders: false })
  },
  topics: () => admin.listTopics(),
  partitionsWithLeaders,
  addPartitions: (topic, count) => admin.createPartitions({ topicPartitions: [{ topic, count }] }),
  topicId() { throw new Lacks('it does not show topic ids') },
  deleteTopic: topic => admin.deleteTopics({ topics: [topic] }),
  openProducer, openTransactions, openConsumer, join, firstAndLast, offsetAt,
  deleteRecords: (topic, partition, before) => admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] }),
  config: async (topic, key) => (await configs(topic)).find(({ configName }) => configName === key).configValue,
  setConfig,
  groups: async () => (await admin.listGroups()).groups.map(({ groupId }) => groupId),
  async group(name) {
    const { groups: [{ state, members }] } = await admin.describeGroups([name])
    return { state, members: members.length }
  },
  deleteGroup: name => admin.deleteGroups([name]),
  setGroupOffsets: (groupId, topic, offsets) => admin.setOffsets({
    groupId, topic, partitions: Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: String(offset) })),
  }),
}

await registerCodecs()
await admin.connect()
await drive('kafkajs', client, wanted)
