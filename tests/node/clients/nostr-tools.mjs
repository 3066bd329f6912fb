// The connection of nostr-tools against the relay; scenario.mjs has the steps.
import WebSocket from 'ws'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { LOGIN, RELAY, run, sign } from './scenario.mjs'

useWebSocketImplementation(WebSocket)

const relay = new Relay(RELAY, { enableReconnect: true })
if (LOGIN) relay.onauth = async (template) => sign(template)

await run({
  connect: () => relay.connect(),
  publish: (event) => relay.publish(event),
  subscribe: (filter, onevent, oneose) => {
    // After a reconnect it subscribes before it logs in.
    const subscribe = () => relay.subscribe([filter], {
      onevent,
      oneose,
      onclose: async (reason) => {
        if (LOGIN && reason.startsWith('auth-required:')) {
          await relay.auth(relay.onauth)
          subscribe()
        }
      },
    })
    subscribe()
  },
  count: (filter) => relay.count([filter], {}),
})
