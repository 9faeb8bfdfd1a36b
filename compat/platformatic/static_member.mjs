// A static member in its own thread. A consumer that is closed leaves its group, static or not; one whose thread ends does not.

import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { Arrivals } from '../node_driving/waiting.mjs'
import { join } from './member.mjs'

export async function joinInThread(topic, as) {
  const worker = new Worker(new URL(import.meta.url), { argv: process.argv.slice(2), workerData: { topic, as } })
  const arrived = new Arrivals()
  let state = { assignment: [], revoked: [], rebalances: 0 }
  let committed = () => {}
  worker.on('error', problem => arrived.fail(problem))
  worker.on('message', ({ records, state: changed, answer }) => {
    if (changed) state = changed
    if (answer) committed()
    for (const record of records ?? []) arrived.push({ ...record, key: record.key && Buffer.from(record.key), value: record.value && Buffer.from(record.value) })
  })
  return {
    arrived,
    commit: records => new Promise(resolve => {
      committed = resolve
      worker.postMessage(records)
    }),
    assignment: () => state.assignment,
    revoked: () => state.revoked,
    rebalances: () => state.rebalances,
    close: () => worker.terminate(),
  }
}

async function serve({ topic, as }) {
  const member = await join(topic, as)
  const tell = () => parentPort.postMessage({ state: { assignment: member.assignment(), revoked: member.revoked(), rebalances: member.rebalances() } })
  setInterval(tell, 20)
  parentPort.on('message', async records => {
    await member.commit(records)
    parentPort.postMessage({ answer: true })
  })
  for (;;) parentPort.postMessage({ records: await member.arrived.next() })
}

if (!isMainThread) await serve(workerData)
