// applesauce-relay against the relay; scenario.mjs has the steps.
import WebSocket from 'ws'
import { Relay } from 'applesauce-relay'
import { firstValueFrom, repeat, retry, takeUntil } from 'rxjs'
import { LOGIN, PLAIN, RELAY, run, sign, until } from './scenario.mjs'

globalThis.WebSocket ??= WebSocket

const relay = new Relay(RELAY)
if (LOGIN) {
  // The client keeps the challenge and leaves the login to the application.
  relay.challenge$.subscribe((challenge) => {
    if (challenge) relay.authenticate({ signEvent: sign })
  })
}
// A close frame ends a subscription without an error, and three failed attempts end it with one.
const subscription = (filter) => PLAIN
  ? relay.subscription(filter)
  : relay.subscription(filter).pipe(retry({ delay: 1000 }), repeat({ delay: 1000 }))
let ended
const end = new Promise((resolve) => { ended = resolve })

await run({
  connect: async () => {
    // It hears no challenge after a close frame, unless all leave this observable and come back.
    const held = relay.watchTower.pipe(takeUntil(relay.close$), repeat({ delay: 500 }))
    held.subscribe()
    await until(() => relay.connected)
  },
  publish: async (event) => {
    const answer = await relay.publish(event)
    if (!answer.ok) throw new Error(answer.message)
  },
  subscribe: (filter, onEvent, onEose) => subscription(filter).subscribe({
    next: (message) => message === 'EOSE' ? onEose() : onEvent(message),
    complete: () => ended('the subscription ended'),
  }),
  count: async (filter) => (await firstValueFrom(relay.count(filter))).count,
  lost: () => end,
})
