// A member of a group.

import { Arrivals, Lacks } from '../node_driving/waiting.mjs'
import { kafka, options } from './client.mjs'
import { stream } from './records.mjs'

const { Consumer } = kafka

export async function join(topic, { group, cooperative, instance }) {
  if (cooperative) throw new Lacks('its assignors are eager')
  const consumer = new Consumer({ ...options, groupId: group, groupInstanceId: instance, heartbeatInterval: 300 })
  const arrived = new Arrivals()
  let assigned = []
  let rebalances = 0
  const revoked = []
  consumer.on('consumer:group:rebalance', () => {
    revoked.push(...assigned)
    assigned = []
  })
  consumer.on('consumer:group:join', ({ assignments }) => {
    assigned = assignments.find(one => one.topic === topic)?.partitions ?? []
    rebalances++
  })
  await stream(consumer, topic, arrived, { mode: 'committed', fallbackMode: 'earliest' }, partition => assigned.includes(partition))
  return {
    arrived,
    commit(records) {
      const next = new Map(records.map(record => [record.partition, record.offset + 1]))
      return consumer.commit({ offsets: [...next].map(([partition, offset]) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 })) })
    },
    assignment: () => assigned,
    revoked: () => revoked,
    rebalances: () => rebalances,
    close: () => consumer.close(true),
  }
}
