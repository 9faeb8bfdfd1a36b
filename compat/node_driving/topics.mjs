// Features about topics, their ids, offsets and configurations.

import assert from 'node:assert/strict'
import { moved } from './changing.mjs'
import { led, PLAIN, PROMPT, readBack, readyTopic, send, using } from './records.mjs'
import { BASE_TIMESTAMP, check, PARTITIONS, samples, STEP_MS } from './samples.mjs'
import { patiently, until } from './waiting.mjs'

async function topics(client, topic) {
  await readyTopic(client, topic, 3, { 'segment.bytes': '1048576' })
  await until(async () => (await client.topics()).includes(topic), 'the topic is in the list')
  await moved(topic)
  assert.equal(await client.config(topic, 'segment.bytes'), '1048576')
  await client.addPartitions(topic, 5)
  await led(client, topic, 5)
  await gone(client, topic)
}

async function gone(client, topic) {
  await client.deleteTopic(topic)
  await until(async () => !(await client.topics()).includes(topic), 'the topic is deleted')
}

async function identified(client, topic) {
  await patiently(() => readyTopic(client, topic)) // it cannot be created again before its deletion has ended
  const id = await client.topicId(topic)
  assert(id, 'the topic has no id')
  return id
}

// One producer and one consumer continue when the topic is recreated with another id.
async function topicIds(client, topic) {
  const records = samples(33)
  const first = await identified(client, topic)
  await using(client.openProducer(PLAIN), producer => using(client.openConsumer(topic, PARTITIONS, PROMPT), async consumer => {
    const through = async some => {
      await producer.send(topic, some)
      check(await consumer.arrived.take(some.length), some)
    }
    await through(records)
    assert.equal(await client.topicId(topic), first, 'the id has changed')
    await gone(client, topic)
    assert.notEqual(await identified(client, topic), first, 'the new topic has the old id')
    await producer.renew(topic)
    await consumer.renew()
    await through(records.slice(0, 15))
    await moved(topic)
    await through(records.slice(15))
  }))
}

async function offsets(client, topic) {
  await readyTopic(client, topic)
  await send(client, topic, samples(99))
  await moved(topic)
  assert.deepEqual(await patiently(() => client.firstAndLast(topic, 0)), [0, 33])
  const tenth = BASE_TIMESTAMP + 10 * PARTITIONS * STEP_MS
  const at = time => patiently(() => client.offsetAt(topic, 0, time))
  assert.deepEqual([await at(tenth), await at(tenth + 1)], [10, 11])
}

async function deleteRecords(client, topic) {
  const records = samples(99)
  await readyTopic(client, topic)
  await send(client, topic, records)
  await moved(topic)
  await patiently(() => client.deleteRecords(topic, 0, 20))
  await moved(topic)
  assert.deepEqual(await patiently(() => client.firstAndLast(topic, 0)), [20, 33])
  await readBack(client, topic, records.filter(({ partition, offset }) => partition !== 0 || offset >= 20))
}

async function configs(client, topic) {
  const [changed, kept] = ['max.message.bytes', 'segment.bytes']
  await readyTopic(client, topic, PARTITIONS, { [changed]: '500000', [kept]: '1048576' })
  assert.equal(await client.config(topic, changed), '500000')
  assert.equal(await client.config(topic, 'cleanup.policy'), 'delete')
  await moved(topic)
  for (const [given, shown] of [['600000', '600000'], [null, '1048588']]) {
    await client.setConfig(topic, changed, given)
    await until(async () => await client.config(topic, changed) === shown, `${changed}=${shown}`)
    assert.equal(await client.config(topic, kept), '1048576', 'a config that was not changed')
  }
}

export const topicFeatures = { topics, topic_ids: topicIds, offsets, delete_records: deleteRecords, configs }
