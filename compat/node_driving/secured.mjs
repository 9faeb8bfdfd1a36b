// The cases of the file that the environment names, for the clients with Node drivers.

import fs from 'node:fs'
import path from 'node:path'
import { print } from './changing.mjs'

const PATIENCE_MS = 30_000 // for a case

// The settings of TLS of a case, for tls.connect; fields that are not needed are empty.
export function tlsOf({ ca, certificate, key }) {
  const settings = { ca: [fs.readFileSync(ca, 'utf8')] }
  return certificate ? { ...settings, cert: fs.readFileSync(certificate, 'utf8'), key: fs.readFileSync(key, 'utf8') } : settings
}

// Tries each case, and ends the process; returns if the environment names no file. `exchange` produces a record and consumes one, or throws.
export async function driveSecured(name, exchange) {
  const file = process.env.COMPAT_SECURITY
  if (!file) return
  const installed = path.join(process.env.CLIENT_PLACE, 'node_modules', name, 'package.json')
  print({ client: name, version: JSON.parse(fs.readFileSync(installed, 'utf8')).version })
  for (const one of JSON.parse(fs.readFileSync(file, 'utf8'))) print({ feature: one.name, ...await attempt(exchange, one) })
  process.exit(0)
}

async function attempt(exchange, one) {
  let timer
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`not done after ${PATIENCE_MS / 1000} s`)), PATIENCE_MS) })
  try {
    await Promise.race([exchange(one), late])
    return { ok: true, detail: '' }
  } catch (problem) {
    return { ok: false, detail: `${problem.name}: ${said(problem)}` }
  } finally {
    clearTimeout(timer)
  }
}

// The message of an error, and those of the errors that it wraps.
function said(problem) {
  const inner = [...problem.errors ?? [], problem.cause].filter(Boolean).map(said)
  return [...new Set([problem.message, ...inner])].join('; ')
}
