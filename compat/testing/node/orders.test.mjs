// A test with a broker of txbroker: a rule for faults is set over HTTP, and the client and the journal are checked.
// `node --test`; TXBROKER is the command `txbroker`, if it is not on the PATH, and CLIENT_PLACE the folder where kafkajs is installed.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'

const require = createRequire(path.join(process.env.CLIENT_PLACE ?? import.meta.dirname, 'orders.test.js'))
const { Kafka, logLevel } = require('kafkajs')

let process_, folder, broker

// The broker ends with its standard input, which this process keeps open, and so also when this process is killed.
before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'orders-'))
  const ready = path.join(folder, 'ready.json')
  const flags = ['test-server', '--stop-with-input', '--topic', 'orders', '--ready-file', ready]
  process_ = spawn(process.env.TXBROKER ?? 'txbroker', flags, { stdio: ['pipe', 'ignore', 'inherit'] })
  for (const begun = Date.now(); !fs.existsSync(ready); await pause(20)) {
    assert.equal(process_.exitCode, null, 'the broker has ended')
    assert.ok(Date.now() - begun < 60_000, 'the broker does not start')
  }
  broker = JSON.parse(fs.readFileSync(ready, 'utf8'))
})

after(async () => {
  const ended = once(process_, 'exit')
  process_.stdin.end()
  await ended
  fs.rmSync(folder, { recursive: true })
})

async function control(method, path, body) {
  const headers = { 'Content-Type': 'application/json' }
  const response = await fetch(`${broker.control_url}/v1${path}`, { method, headers, body: body && JSON.stringify(body) })
  const answer = await response.json()
  assert.equal(response.status, 200, answer.error)
  return answer
}

test('an order is stored once although the first request is refused', async () => {
  const rule = await control('POST', '/rules', { api: 'Produce', topic: 'orders', action: 'error', error: 'NOT_LEADER_OR_FOLLOWER' })

  const kafka = new Kafka({ brokers: broker.bootstrap_servers.split(','), logLevel: logLevel.NOTHING })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: 'orders', messages: [{ value: 'order 1' }] })
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: 'readers' })
  await consumer.connect()
  await consumer.subscribe({ topic: 'orders', fromBeginning: true })
  const value = await new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject)
  })
  await consumer.disconnect()
  assert.equal(value, 'order 1')

  assert.equal((await control('GET', `/rules/${rule.id}`)).hits, 1)
  const { entries } = await control('GET', '/journal?since=0')
  const produced = entries.filter((entry) => entry.api === 'Produce').map((entry) => entry.errors)
  assert.deepEqual(produced, [['NOT_LEADER_OR_FOLLOWER'], []])
})
