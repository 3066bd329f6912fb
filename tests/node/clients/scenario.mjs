// What every foreign client does against the relay. tests/relay/foreign.rs starts the clients, reads
// the steps from standard output, restarts the relay where a step asks for it, and publishes the
// events tagged "foreign". It also ends a client that waits for too long.
import { setTimeout as sleep } from 'node:timers/promises'
import { finalizeEvent, generateSecretKey, verifyEvent } from 'nostr-tools/pure'

export const { RELAY } = process.env
/** Whether the relay is for logged-in clients only. Clients of an open relay have no key to log in. */
export const LOGIN = process.env.LOGIN === '1'
/** Without the helps that docs/clients.md describes: shows what is the client's own fault. */
export const PLAIN = process.env.PLAIN === '1'

export const key = generateSecretKey()
export const sign = (template) =>
  finalizeEvent({ created_at: Math.floor(Date.now() / 1000), tags: [], ...template }, key)

const step = (name) => process.stdout.write(`${name}\n`)

export async function until(ask) {
  while (!ask()) await sleep(20)
}

/**
 * Runs the steps. `client` has connect(), subscribe(filter, onevent, oneose), publish(event), which
 * fails unless the event is accepted, and count(filter) where the client can count. `lost()` tells
 * what a plain client does once its connection is lost; it is called before that.
 */
export async function run(client) {
  await client.connect()
  step('connected')

  const got = []
  let complete = false
  const heard = (content) => got.some((event) => event.content === content)
  const subscribe = () => client.subscribe({ kinds: [1, 20001], '#t': ['foreign'] },
    (event) => { if (verifyEvent({ ...event })) got.push(event) },
    () => { complete = true })
  const publish = async (content) => {
    await client.publish(sign({ kind: 1, content, tags: [['t', 'by a client']] }))
    step(`published ${content}`)
  }

  if (PLAIN) {
    subscribe()
    // Live events follow the EOSE: at the second one, the client has seen it.
    await until(() => heard('live') && (complete || heard('later')))
    step(complete ? 'saw the end of stored events' : 'missed the end of stored events')
    if (client.lost) {
      const lost = client.lost()
      step('restart')
      step(await lost)
    }
    process.exit(0)
  }

  await publish('at first')
  subscribe()
  await until(() => complete)
  const stored = got.filter((event) => event.kind === 1).map((event) => event.content)
  step(`stored: ${stored.sort().join(', ')}`)
  // The relay never stores events of the other kind: whichever comes is live.
  await until(() => heard('live'))
  step('live')

  if (client.count) step(`counted: ${await client.count({ kinds: [1], '#t': ['foreign'] })}`)

  for (const end of ['restart', 'crash']) {
    step(end)
    await until(() => heard(`after a ${end}`))
    step(`live after a ${end}`)
    await publish(`after a ${end}`)
  }
  // Some clients keep timers that nobody can stop.
  process.exit(0)
}
