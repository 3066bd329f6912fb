// The connection of nostr-tools against the relay; scenario.mjs has the steps.
import WebSocket from 'ws'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { LOGIN, RELAY, run, sign } from './scenario.mjs'

useWebSocketImplementation(WebSocket)

const relay = new Relay(RELAY, { enableReconnect: true })
if (LOGIN) relay.onauth = async (template) => sign(template)

// It logs in by itself, but leaves it to the application to repeat what was refused before.
async function loggedIn(reason) {
  if (!LOGIN || !reason.startsWith('auth-required:')) return false
  await relay.auth(relay.onauth)
  return true
}

await run({
  connect: () => relay.connect(),
  publish: async (event) => {
    try {
      await relay.publish(event)
    } catch (error) {
      if (!await loggedIn(error.message)) throw error
      await relay.publish(event)
    }
  },
  subscribe: (filter, onevent, oneose) => {
    const subscribe = () => relay.subscribe([filter], {
      onevent,
      oneose,
      onclose: async (reason) => { if (await loggedIn(reason)) subscribe() },
    })
    subscribe()
  },
  count: (filter) => relay.count([filter], {}),
})
