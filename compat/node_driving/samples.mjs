// The sample records, in the order in which they are sent, each with its expected offset; and their comparison.

import assert from 'node:assert/strict'
import fs from 'node:fs'

export const PARTITIONS = 3
export const COUNT = 330
export const BASE_TIMESTAMP = 1_700_000_000_000
export const STEP_MS = 100

export function samples(count = COUNT) {
  const entries = JSON.parse(fs.readFileSync(new URL('../records.json', import.meta.url), 'utf8'))
  return Array.from({ length: count }, (_, i) => {
    const entry = entries[i % entries.length]
    const value = decoded(entry.value)
    return {
      partition: i % PARTITIONS,
      offset: Math.floor(i / PARTITIONS),
      timestamp: BASE_TIMESTAMP + STEP_MS * i,
      key: decoded(entry.key),
      value: value && Buffer.concat(Array(entry.repeat).fill(value)),
      headers: entry.headers.map(([name, data]) => [name, decoded(data)]),
    }
  })
}

function decoded(text) {
  return text === null ? null : Buffer.from(text, 'base64')
}

export function plainRecord(partition, offset, value) {
  return { partition, offset, timestamp: BASE_TIMESTAMP, key: null, value: Buffer.from(value), headers: [] }
}

export function place({ partition, offset }) {
  return `${partition}-${offset}`
}

// Compares every byte, in the order of each partition.
export function check(read, expected) {
  const left = new Map(expected.map(record => [place(record), record]))
  const last = new Map()
  for (const record of read) {
    assert(record.offset > (last.get(record.partition) ?? -1), `${place(record)} arrived after ${last.get(record.partition)}`)
    last.set(record.partition, record.offset)
    const wanted = left.get(place(record))
    assert(wanted, `${place(record)} is unexpected`)
    for (const part of ['timestamp', 'headers']) assert.deepEqual(record[part], wanted[part], `${part} of ${place(record)}`)
    for (const part of ['key', 'value']) {
      const [got, want] = [record[part], wanted[part]]
      assert(got === want || (got !== null && want !== null && want.equals(got)), `${part} of ${place(record)}: ${shown(got)} instead of ${shown(want)}`)
    }
    left.delete(place(record))
  }
  assert.equal(left.size, 0, `${left.size} records were not read`)
}

function shown(data) {
  return data === null ? 'null' : JSON.stringify(data?.toString('latin1').slice(0, 40))
}
