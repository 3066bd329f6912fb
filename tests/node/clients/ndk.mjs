// NDK against the relay; scenario.mjs has the steps.
import WebSocket from 'ws'
import NDK, { NDKEvent, NDKPrivateKeySigner, NDKRelayStatus } from '@nostr-dev-kit/ndk'
import { LOGIN, PLAIN, RELAY, key, run, until } from './scenario.mjs'

globalThis.WebSocket ??= WebSocket

const ndk = new NDK({ explicitRelayUrls: [RELAY], enableOutboxModel: false, autoConnectUserRelays: false })
const { pool } = ndk
if (LOGIN) {
  ndk.signer = new NDKPrivateKeySigner(key)
  // NDKRelayAuthPolicies.signIn would not publish again what was refused before the login.
  ndk.relayAuthDefaultPolicy = async () => true
}
const relay = pool.relays.values().next().value
let reopen = () => {}
if (!PLAIN) {
  // NDK gives up after one failed attempt, and at once while it is logged in or could log in.
  const reconnect = () => setTimeout(() => {
    if (relay.status === NDKRelayStatus.DISCONNECTED) relay.connect().catch(reconnect)
  }, 2000)
  // The events of the pool and the relay's "ready" lose their listeners when a subscription stops.
  relay.on('disconnect', reconnect)
  // It sends no REQ again on a new connection.
  relay.on('connect', () => reopen())
}

await run({
  connect: async () => {
    await ndk.connect()
    await until(() => pool.connectedRelays().length === 1)
  },
  publish: (event) => new NDKEvent(ndk, event).publish(),
  subscribe: (filter, onEvent, onEose) => {
    const open = () => ndk.subscribe(filter, {
      closeOnEose: false, groupable: false, onEvent: (event) => onEvent(event.rawEvent()), onEose,
    })
    let sub = open()
    reopen = () => { sub.stop(); sub = open() }
  },
  count: async (filter) => (await ndk.count(filter)).count,
  lost: () => new Promise((resolve) => {
    let planned = false
    relay.on('delayed-connect', () => { planned = true })
    relay.on('disconnect', () => resolve(planned ? 'plans to reconnect' : 'gave up'))
  }),
})
