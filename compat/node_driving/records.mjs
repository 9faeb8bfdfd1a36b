// Features about records: codecs, acknowledgements, waiting, sizes. And helpers for other features.

import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { moved } from './changing.mjs'
import { check, COUNT, PARTITIONS, plainRecord, samples } from './samples.mjs'
import { patiently, until } from './waiting.mjs'

const AT_ONCE = 66 // records in one send: several batches
const LARGE_BYTES = 10_000_000
const MESSAGE_BYTES_MAX = 12_000_000
export const PLAIN = { codec: 'none', acks: 'all', idempotent: false }
export const PROMPT = { maxWaitMs: 200, maxBytes: 1 << 20 }
// The longest wait of a fetch; clients abort requests after 30 s.
const LONG_WAIT_MS = 15_000

export async function readyTopic(client, topic, partitions = PARTITIONS, configs = {}) {
  await client.createTopic(topic, partitions, { 'retention.ms': '-1', ...configs }) // the sample records have old timestamps
  await led(client, topic, partitions)
}

// Kafka confirms a topic before every broker knows it, and reports leaders before they know.
export async function led(client, topic, partitions) {
  let problem = null
  const works = step => step().catch(found => { problem = found })
  await until(async () => await works(() => client.partitionsWithLeaders(topic)) === partitions, () => `${partitions} partitions with leaders (${problem})`)
  for (let partition = 0; partition < partitions; partition++) {
    await until(() => works(() => client.firstAndLast(topic, partition)), () => `every leader answers (${problem})`)
  }
}

// Use a resource, and close it in any case.
export async function using(opened, work) {
  const open = await opened
  try {
    return await work(open)
  } finally {
    await open.close()
  }
}

export async function send(client, topic, records, how = {}) {
  await using(client.openProducer({ ...PLAIN, ...how }), producer => sendThrough(producer, topic, records))
}

async function sendThrough(producer, topic, records) {
  for (let start = 0; start < records.length; start += AT_ONCE) {
    await producer.send(topic, records.slice(start, start + AT_ONCE))
  }
}

// Read all records of the topic; nothing may follow them.
export async function readBack(client, topic, expected, fetching = PROMPT) {
  const ends = new Map()
  for (const { partition, offset } of expected) ends.set(partition, Math.max(ends.get(partition) ?? 0, offset + 1))
  for (const [partition, end] of ends) assert.equal((await patiently(() => client.firstAndLast(topic, partition)))[1], end, `the end of ${partition}`)
  await using(client.openConsumer(topic, ends.size, fetching), async consumer => {
    check(await consumer.arrived.take(expected.length), expected)
  })
}

// Through one producer; the leaders move in the middle.
function throughAndBack(how, count = COUNT) {
  return async (client, topic) => {
    const records = samples(count)
    const half = PARTITIONS * Math.floor(count / PARTITIONS / 2)
    await readyTopic(client, topic)
    await using(client.openProducer({ ...PLAIN, ...how }), async producer => {
      await sendThrough(producer, topic, records.slice(0, half))
      await moved(topic)
      await sendThrough(producer, topic, records.slice(half))
    })
    await readBack(client, topic, records)
  }
}

async function acks(client, topic) {
  const records = samples(66)
  await readyTopic(client, topic)
  await send(client, topic, records.slice(0, 33), { acks: '1' })
  await moved(topic)
  await send(client, topic, records.slice(33), { acks: '0' })
  for (let partition = 0; partition < PARTITIONS; partition++) {
    await until(async () => (await patiently(() => client.firstAndLast(topic, partition)))[1] === 22, 'records sent without acknowledgement')
  }
  await readBack(client, topic, records)
}

// Records reach a waiting consumer. If responses came at the end of each wait only, ten would take ten waits.
async function longPoll(client, topic) {
  await readyTopic(client, topic, 1)
  await using(client.openConsumer(topic, 1, { ...PROMPT, maxWaitMs: LONG_WAIT_MS }), consumer =>
    using(client.openProducer(PLAIN), async producer => {
      let took = 0
      for (let i = 0; i < 10; i++) {
        if (i === 5) await moved(topic)
        const begun = Date.now()
        const record = plainRecord(0, i, `record ${i}`)
        await producer.send(topic, [record])
        check(await consumer.arrived.take(1), [record])
        took += Date.now() - begun
        await patiently(() => client.firstAndLast(topic, 0)) // meanwhile the consumer sends its next fetch
      }
      assert(took < LONG_WAIT_MS, `ten records took ${took} ms, with a longest wait of ${LONG_WAIT_MS} ms for one`)
    }))
}

async function large(client, topic) {
  await readyTopic(client, topic, PARTITIONS, { 'max.message.bytes': String(MESSAGE_BYTES_MAX) })
  const records = Array.from({ length: 2 * PARTITIONS }, (_, i) =>
    plainRecord(i % PARTITIONS, Math.floor(i / PARTITIONS), crypto.randomBytes(LARGE_BYTES)))
  await using(client.openProducer(PLAIN), async producer => {
    for (const record of records) await producer.send(topic, [record])
  })
  await moved(topic)
  await readBack(client, topic, records, { ...PROMPT, maxBytes: MESSAGE_BYTES_MAX })
}

export const recordFeatures = {
  none: throughAndBack({ codec: 'none' }),
  gzip: throughAndBack({ codec: 'gzip' }),
  snappy: throughAndBack({ codec: 'snappy' }),
  lz4: throughAndBack({ codec: 'lz4' }),
  zstd: throughAndBack({ codec: 'zstd' }),
  acks,
  idempotence: throughAndBack({ idempotent: true }, 3 * COUNT),
  long_poll: longPoll,
  large,
}
