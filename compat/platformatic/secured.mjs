// @platformatic/kafka on a secured listener.

import { driveSecured, tlsOf } from '../node_driving/secured.mjs'
import { kafka } from './client.mjs'

const { Consumer, Producer, stringDeserializers, stringSerializers } = kafka

async function exchange(one) {
  const { address, topic, group, mechanism, user, password, token } = one
  const proof = token ? { token } : { username: user, password }
  const options = {
    clientId: 'secured', bootstrapBrokers: [address], tls: tlsOf(one), sasl: mechanism ? { mechanism, ...proof } : undefined, retries: 0,
  }
  const producer = new Producer({ ...options, serializers: stringSerializers })
  try {
    await producer.send({ messages: [{ topic, value: 'secured' }] })
  } finally {
    await producer.close()
  }
  const consumer = new Consumer({ ...options, groupId: group, deserializers: stringDeserializers })
  try {
    const stream = await consumer.consume({ topics: [topic], autocommit: false, maxWaitTime: 200, mode: 'earliest' })
    for await (const message of stream) if (message) break
  } finally {
    await consumer.close(true)
  }
}

await driveSecured('@platformatic/kafka', exchange)
