// Transactions. Offsets are committed by the records that a consumer of the group has read.

import { kafka, options } from './client.mjs'
import { toSend } from './records.mjs'

const { Consumer, Producer } = kafka
const FAULTS = {
  abort: [/^0-0/, 'it returns aborted records if the marker of their transaction is not in the same response, as here, where it is in another segment'],
  fencing: [/initProducerId/i, 'it initializes as producer 0 with epoch 0, not as a new one, so that a second producer of an id is fenced itself'],
}

export function faultOf(feature, problem) {
  const [pattern, reason] = FAULTS[feature] ?? []
  return pattern?.test(problem.message) ? reason : undefined
}

export async function openTransactions(transactionalId) {
  const producer = new Producer({ ...options, transactionalId, idempotent: true })
  let transaction
  return {
    async begin() { transaction = await producer.beginTransaction() },
    send: (topic, records) => transaction.send({ messages: records.map(record => toSend(topic, record)) }),
    sendOffsets: (group, topic, offsets) => sendOffsets(transaction, group, topic, offsets),
    end: commit => commit ? transaction.commit() : transaction.abort(),
    close: () => producer.close(),
  }
}

async function sendOffsets(transaction, groupId, topic, offsets) {
  const consumer = new Consumer({ ...options, groupId })
  try {
    const messages = await consumer.consume({ topics: [topic], autocommit: false, maxWaitTime: 200, mode: 'committed', fallbackMode: 'earliest' })
    await transaction.addConsumer(consumer)
    let left = Object.keys(offsets).length
    for await (const message of messages) {
      if (Number(message.offset) !== offsets[message.partition] - 1) continue
      await transaction.addOffset(message)
      if (--left === 0) break
    }
  } finally {
    await consumer.close(true)
  }
}
