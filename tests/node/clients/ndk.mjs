// NDK against the relay; scenario.mjs has the steps.
import WebSocket from 'ws'
import NDK, { NDKEvent, NDKPrivateKeySigner, NDKRelayStatus } from '@nostr-dev-kit/ndk'
import { LOGIN, PLAIN, RELAY, key, run, until } from './scenario.mjs'

globalThis.WebSocket ??= WebSocket

const ndk = new NDK({ explicitRelayUrls: [RELAY], enableOutboxModel: false })
const { pool } = ndk
if (LOGIN) {
  ndk.signer = new NDKPrivateKeySigner(key)
  // NDKRelayAuthPolicies.signIn would not publish again what was refused before the login.
  ndk.relayAuthDefaultPolicy = async () => true
}
let reopen = () => {}
if (!PLAIN) {
  // NDK gives up after one failed attempt, and at once while it is logged in or could log in.
  const reconnect = (relay) => setTimeout(() => {
    if (relay.status === NDKRelayStatus.DISCONNECTED) relay.connect().catch(() => reconnect(relay))
  }, 2000)
  pool.on('relay:disconnect', reconnect)
  // On a new connection it sends no REQ again.
  pool.on('relay:ready', () => reopen())
}

await run({
  connect: async () => {
    await ndk.connect()
    await until(() => pool.connectedRelays().length === 1)
  },
  publish: (event) => new NDKEvent(ndk, event).publish(),
  subscribe: (filter, onEvent, onEose) => {
    const open = () => ndk.subscribe(filter, {
      closeOnEose: false, onEvent: (event) => onEvent(event.rawEvent()), onEose,
    })
    let sub = open()
    reopen = () => { sub.stop(); sub = open() }
  },
  count: async (filter) => (await ndk.count(filter)).count,
  lost: () => new Promise((resolve) => {
    let planned = false
    pool.relays.forEach((relay) => relay.on('delayed-connect', () => { planned = true }))
    pool.on('relay:disconnect', () => resolve(planned ? 'plans to reconnect' : 'gave up'))
  }),
})
