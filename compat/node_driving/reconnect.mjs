// The broker is restarted under a producer and a consumer; records are sent continuously, and all acknowledged ones are read.

import { restarted } from './changing.mjs'
import { PLAIN, PROMPT, readyTopic, using } from './records.mjs'
import { PARTITIONS, place, plainRecord } from './samples.mjs'
import { Lacks, pause, until } from './waiting.mjs'

const ENOUGH = 50 // records before and after

export async function reconnect(client, topic) {
  await readyTopic(client, topic)
  await using(openProducer(client), producer => using(client.openConsumer(topic, PARTITIONS, PROMPT), async consumer => {
    const ledger = { acked: [], read: new Set(), last: new Map(), refused: null, problem: null, stopped: false }
    const sending = keepSending(producer, topic, ledger)
    void keepReading(consumer, ledger)
    try {
      await more(ledger, 'before the restart')
      await restarted(topic)
      await more(ledger, 'after the restart')
    } finally {
      ledger.stopped = true
      await sending
    }
    await until(() => {
      if (ledger.problem) throw ledger.problem
      return ledger.acked.every(value => ledger.read.has(value))
    }, 'all acknowledged records are read')
  }))
}

async function openProducer(client) {
  try {
    return await client.openProducer({ ...PLAIN, idempotent: true })
  } catch (problem) {
    if (problem instanceof Lacks) return client.openProducer(PLAIN)
    throw problem
  }
}

async function keepSending(producer, topic, ledger) {
  for (let i = 0; !ledger.stopped; i++) {
    const value = `record ${i}`
    try {
      await producer.send(topic, [plainRecord(i % PARTITIONS, -1, value)])
      ledger.acked.push(value)
    } catch (problem) {
      ledger.refused = problem
      await pause()
    }
  }
}

async function keepReading(consumer, ledger) {
  while (!ledger.problem) {
    try {
      for (const record of await consumer.arrived.next()) {
        if (record.offset <= (ledger.last.get(record.partition) ?? -1)) {
          ledger.problem ??= new Error(`${place(record)} arrived after offset ${ledger.last.get(record.partition)}`)
        }
        ledger.last.set(record.partition, record.offset)
        ledger.read.add(record.value.toString())
      }
    } catch (problem) {
      ledger.problem ??= problem
    }
  }
}

// More records are acknowledged, and the last of them is read.
async function more(ledger, when) {
  const goal = ledger.acked.length + ENOUGH
  await until(() => {
    if (ledger.problem) throw ledger.problem
    return ledger.acked.length >= goal && ledger.read.has(ledger.acked[goal - 1])
  }, () => `${ENOUGH} records ${when} (${ledger.acked.length} acknowledged, ${ledger.read.size} read, sender: ${ledger.refused})`)
}
