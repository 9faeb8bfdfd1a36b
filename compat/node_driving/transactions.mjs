// Features of transactions. An adapter with transactions has
//
//   openTransactions(transactionalId) -> begin(): initializes the first time, which fences, send(topic, records), end(commit), close(),
//                                        sendOffsets(group, topic, {partition: offset}): in the transaction; these are the ends of what was written
//
// and openConsumer reads with read_committed if it is given `committed`.

import assert from 'node:assert/strict'
import { PROMPT, readyTopic, send, using } from './records.mjs'
import { PARTITIONS, place, samples } from './samples.mjs'
import { Lacks } from './waiting.mjs'

const COMMITTED = { ...PROMPT, committed: true }

function opened(client, id) {
  if (!client.openTransactions) throw new Lacks('it has no transactions')
  return client.openTransactions(id)
}

async function written(producer, topic, records, commit) {
  await producer.begin()
  await producer.send(topic, records)
  await producer.end(commit)
}

async function commit(client, topic) {
  const records = samples(99)
  await using(opened(client, topic), async producer => {
    await readyTopic(client, topic)
    await written(producer, topic, records.slice(0, 66), true)
    await written(producer, topic, records.slice(66), true)
  })
  await readWith(client, topic, records, COMMITTED)
}

async function abort(client, topic) {
  const records = samples(99)
  await using(opened(client, topic), async producer => {
    await readyTopic(client, topic)
    await written(producer, topic, records.slice(0, 33), false)
    await written(producer, topic, records.slice(33), true)
  })
  await readWith(client, topic, records.slice(33), COMMITTED)
  await readWith(client, topic, records, { ...PROMPT, committed: false })
}

// What follows an open transaction in its partition is not read before its end; other partitions are read.
async function readCommitted(client, topic) {
  const records = samples(66)
  const before = records.slice(0, 33).filter(({ partition }) => partition === 0)
  const after = records.slice(33)
  await using(opened(client, `${topic}-1`), first => using(opened(client, `${topic}-2`), async second => {
    await readyTopic(client, topic)
    await first.begin()
    await first.send(topic, before)
    await written(second, topic, after, true)
    await using(client.openConsumer(topic, PARTITIONS, COMMITTED), async consumer => {
      const read = await consumer.arrived.take(22)
      assert(read.every(({ partition }) => partition !== 0), 'a record was read that follows an open transaction')
      await first.end(true)
      inOrder([...read, ...await consumer.arrived.take(22)], [...before, ...after])
    })
  }))
}

async function txnOffsets(client, topic) {
  const records = samples(30)
  await using(opened(client, topic), async producer => {
    await readyTopic(client, topic)
    let last = 0
    for (const [offset, commit] of [[5, true], [8, false]]) {
      await send(client, topic, records.filter(record => record.offset >= last && record.offset < offset))
      await producer.begin()
      await producer.sendOffsets(topic, topic, { 0: offset, 1: offset, 2: offset })
      await producer.end(commit)
      last = offset
    }
    await send(client, topic, records.filter(({ offset }) => offset >= last))
  })
  const rest = records.filter(({ offset }) => offset >= 5)
  await using(client.join(topic, { group: topic }), async member => inOrder(await member.arrived.take(rest.length), rest))
}

async function fencing(client, topic) {
  const records = samples(66)
  await using(opened(client, topic), zombie => using(opened(client, topic), async producer => {
    await readyTopic(client, topic)
    await zombie.begin()
    await zombie.send(topic, records.slice(0, 33))
    await written(producer, topic, records.slice(33), true) // its first transaction aborts that of the zombie
    await assert.rejects(() => zombie.end(true), 'a producer that was fenced commits')
  }))
  await readWith(client, topic, records.slice(33), COMMITTED)
}

async function readWith(client, topic, expected, fetching) {
  await using(client.openConsumer(topic, PARTITIONS, fetching), async consumer => inOrder(await consumer.arrived.take(expected.length), expected))
}

// The expected records, in the order of each partition; their offsets have gaps, where markers and aborted records are.
function inOrder(read, expected) {
  const left = Array.from({ length: PARTITIONS }, (_, partition) => expected.filter(record => record.partition === partition))
  for (const record of read) {
    const wanted = left[record.partition].shift()
    assert(wanted, `${place(record)} is unexpected`)
    assert.deepEqual({ ...record, offset: 0 }, { ...wanted, offset: 0 }, place(record))
  }
  assert.equal(left.flat().length, 0, `${left.flat().length} records were not read`)
}

export const transactionFeatures = { commit, abort, read_committed: readCommitted, txn_offsets: txnOffsets, fencing }
