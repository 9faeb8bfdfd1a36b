// Features about groups.

import assert from 'node:assert/strict'
import { moved } from './changing.mjs'
import { readyTopic, send, using } from './records.mjs'
import { check, place, plainRecord, samples } from './samples.mjs'
import { patiently, until } from './waiting.mjs'

const SHARED = 4 // partitions that members share
const BURST = 5 // records to each of them

// A new member reads `count` records, commits them and leaves.
function readInGroup(client, topic, group, count) {
  return using(client.join(topic, { group }), async member => {
    const read = (await member.arrived.take(count)).slice(0, count)
    await member.commit(read)
    return read
  })
}

async function group(client, topic) {
  const records = samples(99)
  await readyTopic(client, topic)
  await send(client, topic, records)
  const first = await readInGroup(client, topic, topic, 40)
  await moved(topic)
  check([...first, ...await readInGroup(client, topic, topic, records.length - 40)], records)
}

async function reset(client, topic) {
  const records = samples(99)
  await readyTopic(client, topic)
  await send(client, topic, records)
  await readInGroup(client, topic, topic, records.length)
  for (const to of [{ 0: 0, 1: 0, 2: 0 }, { 0: 20, 1: 30, 2: 33 }]) {
    await emptied(client, topic)
    await moved(topic)
    await patiently(() => client.setGroupOffsets(topic, topic, to))
    const expected = records.filter(({ partition, offset }) => offset >= to[partition])
    check(await readInGroup(client, topic, topic, expected.length), expected)
  }
}

async function emptied(client, name) {
  await until(async () => {
    const { state, members } = await patiently(() => client.group(name))
    return state.toLowerCase() === 'empty' && members === 0
  }, 'the group is empty')
}

async function groups(client, topic) {
  await readyTopic(client, topic, SHARED)
  await using(attend(client, topic, { group: topic }), async member => {
    await untilShared(member)
    assert((await client.groups()).includes(topic), 'the group is not in the list')
    const { state, members } = await client.group(topic)
    assert.deepEqual([state.toLowerCase(), members], ['stable', 1])
  })
  await moved(topic)
  await emptied(client, topic)
  await patiently(() => client.deleteGroup(topic))
  await until(async () => !(await patiently(() => client.groups())).includes(topic), 'the group is deleted')
}

// Two members share four partitions, then one leaves and the other gets all; nothing is lost or read twice.
function rebalanced(cooperative) {
  return async (client, topic) => {
    const as = { group: topic, cooperative }
    await readyTopic(client, topic, SHARED)
    await using(attend(client, topic, as), async first => {
      await untilShared(first)
      await burst(client, topic, 0)
      await untilRead(1, first)
      let given
      const second = await attend(client, topic, as)
      await using(second, async () => {
        await untilShared(first, second)
        given = second.assignment()
        await moved(topic)
        await burst(client, topic, 1)
        await untilRead(2, first, second)
      })
      await untilShared(first)
      await burst(client, topic, 2)
      await untilRead(3, first, second)
      // A cooperative assignor never revokes partitions that remain with a member.
      if (cooperative) assert.deepEqual(first.revoked().sort(), given, 'what was revoked, and what moved')
      else assert(first.revoked().length, 'nothing was revoked from the member that remained')
    })
  }
}

// A member that returns gets its partitions back, and the other sees no rebalance.
async function statically(client, topic) {
  await readyTopic(client, topic, SHARED)
  const names = ['one', 'two']
  const members = []
  for (const instance of names) members.push(await attend(client, topic, { group: topic, instance }))
  const all = [...members]
  try {
    await untilShared(...members)
    for (const [i, instance] of names.entries()) {
      const [leaver, stayer] = [members[i], members[1 - i]]
      const [had, before] = [leaver.assignment(), stayer.rebalances()]
      await leaver.close()
      await moved(topic)
      members[i] = await attend(client, topic, { group: topic, instance })
      all.push(members[i])
      await untilShared(...members)
      assert.deepEqual(members[i].assignment(), had, `what ${instance} has and had`)
      // Both continue; by then a rebalance would have been noticed.
      await burst(client, topic, i)
      await untilRead(i + 1, ...all)
      assert.equal(stayer.rebalances(), before, `rebalances of the other when ${instance} returned`)
    }
  } finally {
    for (const member of members) await member.close()
  }
}

// Send the n-th few records to each partition.
async function burst(client, topic, n) {
  const records = []
  for (let partition = 0; partition < SHARED; partition++) {
    for (let offset = n * BURST; offset < (n + 1) * BURST; offset++) records.push(plainRecord(partition, offset, bursting(partition, offset)))
  }
  await send(client, topic, records)
}

function bursting(partition, offset) {
  return `record ${offset} of partition ${partition}`
}

// A member that reads and commits continuously; `read` has committed records only.
async function attend(client, topic, as) {
  const member = await client.join(topic, as)
  const attendee = {
    read: [],
    problem: null,
    ended: false,
    assignment: () => [...member.assignment()].sort(),
    revoked: () => [...member.revoked()],
    rebalances: () => member.rebalances(),
    close: async () => {
      if (attendee.ended) return
      attendee.ended = true
      await member.close()
    },
  }
  const goOn = async () => {
    while (!attendee.ended) {
      const some = await member.arrived.next()
      await patiently(() => member.commit(some)) // the coordinator may have moved
      attendee.read.push(...some)
    }
  }
  goOn().catch(problem => { if (!attendee.ended) attendee.problem = problem })
  return attendee
}

function untilShared(...members) {
  return until(() => {
    for (const { problem } of members) if (problem) throw problem
    const owned = members.map(member => member.assignment())
    return owned.every(mine => mine.length) && owned.flat().length === SHARED && new Set(owned.flat()).size === SHARED
  }, () => `${members.length} members share ${SHARED} partitions, but have ${JSON.stringify(members.map(member => member.assignment()))}`)
}

// Wait until the members together have read that many bursts, each record once.
async function untilRead(bursts, ...members) {
  await until(() => {
    for (const { problem } of members) if (problem) throw problem
    return members.flatMap(({ read }) => read).length >= bursts * BURST * SHARED
  }, `${bursts} bursts are read`)
  const read = members.flatMap(member => member.read)
  assert.equal(new Set(read.map(place)).size, read.length, 'records arrived twice')
  for (const { partition, offset, value } of read) assert.equal(value.toString(), bursting(partition, offset))
}

export const groupFeatures = { group, reset, groups, eager: rebalanced(false), cooperative: rebalanced(true), static: statically }
