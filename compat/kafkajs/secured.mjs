// kafkajs on a secured listener.

import { createRequire } from 'node:module'
import path from 'node:path'
import { driveSecured, tlsOf } from '../node_driving/secured.mjs'

const require = createRequire(path.join(process.env.CLIENT_PLACE, 'driver.js'))
const { Kafka, logLevel } = require('kafkajs')

// It would try again without an end that is near: the first error counts.
const ONCE = { retries: 0, restartOnFailure: async () => false }

async function exchange(one) {
  const { address, topic, group, mechanism, user, password, token } = one
  const proof = token ? { oauthBearerProvider: async () => ({ value: token }) } : { username: user, password }
  const login = mechanism && { mechanism: mechanism.toLowerCase(), ...proof }
  const kafka = new Kafka({ clientId: 'secured', brokers: [address], ssl: tlsOf(one), sasl: login || undefined, retry: ONCE, logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ retry: ONCE })
  try {
    await producer.connect()
    await producer.send({ topic, messages: [{ value: 'secured' }] })
  } finally {
    await producer.disconnect()
  }
  const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 200, retry: ONCE })
  try {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({ eachMessage: async () => resolve() }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
}

await driveSecured('kafkajs', exchange)
