// Waiting for conditions, and the two errors of adapters for features that the client lacks or gets wrong.

import assert from 'node:assert/strict'

const PATIENCE_MS = 60_000
const RETRYING_MS = 30_000

export class Lacks extends Error {}
export class Fault extends Error {}

export async function until(condition, what) {
  const deadline = Date.now() + PATIENCE_MS
  for (;;) {
    const value = await condition()
    if (value) return value
    assert(Date.now() < deadline, `after ${PATIENCE_MS / 1000} s still waiting for: ${typeof what === 'function' ? what() : what}`)
    await pause()
  }
}

// Retries a request of an admin client while leaders and coordinators move: these clients leave retries to the application.
export async function patiently(step) {
  const deadline = Date.now() + RETRYING_MS
  for (;;) {
    try {
      return await step()
    } catch (problem) {
      if (problem instanceof Lacks || problem instanceof Fault || Date.now() > deadline) throw problem
      await pause()
    }
  }
}

export function pause() {
  return new Promise(resolve => setTimeout(resolve, 50))
}

// Records on their way from a client's callbacks to their reader.
export class Arrivals {
  #records = []
  #problem = null
  #wake = () => {}

  push(record) {
    this.#records.push(record)
    this.#wake()
  }

  fail(problem) {
    this.#problem ??= problem
    this.#wake()
  }

  // All records that have arrived, or the next one; an error is thrown once.
  async next() {
    for (;;) {
      if (this.#records.length) return this.#records.splice(0)
      if (this.#problem) {
        const problem = this.#problem
        this.#problem = null
        throw problem
      }
      await new Promise(resolve => { this.#wake = resolve })
    }
  }

  async take(count) {
    const taken = []
    while (taken.length < count) taken.push(...await this.next())
    return taken
  }
}
