// The driver of @platformatic/kafka: HOST:PORT,... [FEATURE ...]; platformatic/run installs and runs it.

import { drive } from '../node_driving/driving.mjs'
import { kafka, options } from './client.mjs'
import { join } from './member.mjs'
import { openConsumer, openProducer } from './records.mjs'
import './secured.mjs' // which ends the process if there are cases to try
import { joinInThread } from './static_member.mjs'
import { faultOf, openTransactions } from './transactions.mjs'

const { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes, ListOffsetTimestamps } = kafka

const wanted = process.argv.slice(3)
const admin = new Admin({ ...options, retries: 3, metadataMaxAge: 0 })

async function described(topic) {
  return (await admin.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic)
}

async function listed(topic, partition, timestamp) {
  const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: partition, timestamp }] }] })
  return Number(found.partitions[0].offset)
}

async function config(topic, key) {
  const asked = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: [key] }
  const [{ configs }] = await admin.describeConfigs({ resources: [asked] })
  return configs.find(({ name }) => name === key).value
}

async function setConfig(topic, name, value) {
  const change = value === null
    ? { name, configOperation: IncrementalAlterConfigOperationTypes.DELETE }
    : { name, value, configOperation: IncrementalAlterConfigOperationTypes.SET }
  await admin.incrementalAlterConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs: [change] }] })
}

const client = {
  createTopic: (topic, partitions, configs) => admin.createTopics({
    topics: [topic], partitions, replicas: -1, configs: Object.entries(configs).map(([name, value]) => ({ name, value })),
  }),
  topics: () => admin.listTopics(),
  partitionsWithLeaders: async topic => (await described(topic)).partitions.filter(({ leader }) => leader >= 0).length,
  addPartitions: (topic, count) => admin.createPartitions({ topics: [{ name: topic, count }] }),
  topicId: async topic => (await described(topic)).id,
  deleteTopic: topic => admin.deleteTopics({ topics: [topic] }),
  openProducer, openTransactions, openConsumer, faultOf,
  join: (topic, as) => as.instance ? joinInThread(topic, as) : join(topic, as),
  firstAndLast: async (topic, partition) => [
    await listed(topic, partition, ListOffsetTimestamps.EARLIEST), await listed(topic, partition, ListOffsetTimestamps.LATEST),
  ],
  offsetAt: (topic, partition, timestamp) => listed(topic, partition, BigInt(timestamp)),
  deleteRecords: (topic, partition, before) => admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition, offset: BigInt(before) }] }] }),
  config, setConfig,
  groups: async () => [...(await admin.listGroups()).keys()],
  async group(name) {
    const { state, members } = (await admin.describeGroups({ groups: [name] })).get(name)
    return { state, members: members.size }
  },
  deleteGroup: name => admin.deleteGroups({ groups: [name] }),
  setGroupOffsets: (groupId, topic, offsets) => admin.alterConsumerGroupOffsets({
    groupId,
    topics: [{ name: topic, partitionOffsets: Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: BigInt(offset) })) }],
  }),
}

await drive('@platformatic/kafka', client, wanted)
