// @welshman/net against the relay; scenario.mjs has the steps. It has no COUNT.
import {
  Pool, PublishStatus, Socket, SocketStatus, defaultSocketPolicies, makeSocketPolicyAuth, netContext,
  publishOne, requestOne, socketPolicyAuthBuffer,
} from '@welshman/net'
import { LOGIN, PLAIN, RELAY, run, sign, until } from './scenario.mjs'

let policies = defaultSocketPolicies
if (LOGIN) {
  policies = [...policies, makeSocketPolicyAuth({ sign: async (event) => sign(event) })]
} else if (!PLAIN) {
  // It withholds every EOSE after a challenge until a login succeeds.
  policies = policies.filter((policy) => policy !== socketPolicyAuthBuffer)
}
netContext.pool = new Pool({ makeSocket: (url) => new Socket(url, policies) })

await run({
  connect: async () => {
    const socket = netContext.pool.get(RELAY)
    socket.attemptToOpen()
    await until(() => socket.status === SocketStatus.Open)
  },
  publish: async (event) => {
    const answer = await publishOne({ relay: RELAY, event })
    if (answer.status !== PublishStatus.Success) throw new Error(`${answer.status}: ${answer.detail}`)
  },
  subscribe: (filter, onEvent, onEose) => requestOne({ relay: RELAY, filters: [filter], onEvent, onEose }),
})
