// Writing and reading records.

import { Arrivals, Lacks } from '../node_driving/waiting.mjs'
import { kafka, options } from './client.mjs'

const { compressionsAlgorithms, Consumer, FetchIsolationLevels, ProduceAcks, Producer } = kafka
const ACKS = { 0: ProduceAcks.NO_RESPONSE, 1: ProduceAcks.LEADER, all: ProduceAcks.ALL }

export function toSend(topic, { partition, timestamp, key, value, headers }) {
  return {
    topic, partition, timestamp: BigInt(timestamp), key: key ?? undefined, value: value ?? undefined,
    headers: new Map(headers.map(([name, data]) => [Buffer.from(name), data])),
  }
}

function received({ partition, offset, timestamp, key, value, headers }) {
  return {
    partition, offset: Number(offset), timestamp: Number(timestamp), key: key ?? null, value: value ?? null,
    headers: [...headers].map(([name, data]) => [name.toString(), data ?? null]),
  }
}

export async function openProducer({ codec, acks, idempotent }) {
  if (!compressionsAlgorithms[codec].available) throw new Lacks(`${codec} needs a newer Node than ${process.version}`)
  const producer = new Producer({ ...options, idempotent, compression: codec })
  return {
    send: (topic, records) => producer.send({ acks: ACKS[acks], messages: records.map(record => toSend(topic, record)) }),
    renew: () => producer.clearMetadata(),
    close: () => producer.close(),
  }
}

// A stream brings its records into `arrived` until it is closed; this client reads in groups only. A fetch that was in flight when a
// partition was revoked still returns its records: `mine` selects the records to accept.
export async function stream(consumer, topic, arrived, given, mine = () => true) {
  const opened = await consumer.consume({ topics: [topic], autocommit: false, maxWaitTime: 200, ...given })
  opened.on('data', message => { if (mine(message.partition)) arrived.push(received(message)) })
  opened.on('error', problem => arrived.fail(problem))
  return opened
}

export async function openConsumer(topic, partitions, { maxWaitMs, maxBytes, committed = false }) {
  const consumer = new Consumer({ ...options, groupId: `${topic}-reader-${Date.now()}` })
  const arrived = new Arrivals()
  const isolationLevel = committed ? FetchIsolationLevels.READ_COMMITTED : FetchIsolationLevels.READ_UNCOMMITTED
  const begin = () => stream(consumer, topic, arrived, {
    mode: 'earliest', maxWaitTime: maxWaitMs, maxBytesPerPartition: maxBytes, maxBytes: 8 * maxBytes, isolationLevel,
  })
  let opened = await begin()
  return {
    arrived,
    async renew() {
      await opened.close()
      consumer.clearMetadata()
      opened = await begin()
    },
    close: () => consumer.close(true),
  }
}
