// The client, which is installed in the cache and not next to this file, and the settings of all its parts.

import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const require = createRequire(path.join(process.env.CLIENT_PLACE, 'driver.js'))

export const kafka = await import(pathToFileURL(require.resolve('@platformatic/kafka')))
export const options = { clientId: 'compat', bootstrapBrokers: process.argv[2].split(','), timeout: 30_000, retries: true, retryDelay: 100 }
