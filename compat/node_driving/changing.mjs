// Changes of the brokers, which a driver requests with a line on standard output from the process that runs it.

import fs from 'node:fs'
import readline from 'node:readline'
import { Lacks } from './waiting.mjs'

let answers = null

// The broker was restarted; of several brokers, the leader of the topic's first partition after kill -9.
export async function restarted(topic) {
  if (!await requested({ restart: topic })) throw new Lacks('the broker cannot be restarted here')
}

// The leaders of the topic, and of internal topics, are other brokers, if there are several.
export async function moved(topic) {
  await requested({ move: topic })
}

export function print(line) {
  fs.writeSync(1, JSON.stringify(line) + '\n')
}

// The answer; undefined if standard input is at its end.
async function requested(line) {
  print(line)
  answers ??= readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  return (await answers.next()).value
}
