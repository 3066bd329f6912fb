// nostr-tools against the relay. Started by tests/relay/foreign.rs, which says where relays run.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import WebSocket from 'ws'
import { SimplePool, useWebSocketImplementation as usePoolWebSocket } from 'nostr-tools/pool'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { finalizeEvent, generateSecretKey, getPublicKey, verifyEvent } from 'nostr-tools/pure'
import * as nip11 from 'nostr-tools/nip11'

useWebSocketImplementation(WebSocket)
usePoolWebSocket(WebSocket)

const { RELAY_WITH_REAL_EVENTS, EXPECTED_EVENTS, EMPTY_RELAY, STRICT_RELAY } = process.env

const fields = ({ id, pubkey, created_at, kind, tags, content, sig }) =>
  ({ id, pubkey, created_at, kind, tags, content, sig })

// The rule of NIP-01, written anew: newest first, ties lowest id first.
function bruteForce(events, filter) {
  const found = events.filter((event) =>
    Object.entries(filter).every(([name, wanted]) => {
      switch (name) {
        case 'ids': return wanted.includes(event.id)
        case 'authors': return wanted.includes(event.pubkey)
        case 'kinds': return wanted.includes(event.kind)
        case 'since': return event.created_at >= wanted
        case 'until': return event.created_at <= wanted
        case 'limit': return true
        default: return event.tags.some(([tag, value]) =>
          `#${tag}` === name && value !== undefined && wanted.includes(value))
      }
    }))
  found.sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1))
  return found.slice(0, filter.limit)
}

// Stored events in the order they came.
function fetchStored(relay, filters) {
  return new Promise((resolve, reject) => {
    const events = []
    const sub = relay.subscribe(filters, {
      onevent: (event) => events.push(fields(event)),
      oneose: () => { resolve(events); sub.close() },
      onclose: (reason) => reject(new Error(reason)),
    })
  })
}

const now = () => Math.floor(Date.now() / 1000)
const sign = (key, kind, content, tags = [], created_at = now()) =>
  fields(finalizeEvent({ kind, content, tags, created_at }, key))

describe('the real events', () => {
  const kept = readFileSync(EXPECTED_EVENTS, 'utf8').trim().split('\n').map((line) => JSON.parse(line))
  let relay
  before(async () => { relay = await Relay.connect(RELAY_WITH_REAL_EVENTS) })
  after(() => relay.close())

  test('come as they are, in order, for every filter', async () => {
    assert.ok(kept.length > 100)
    const longest = kept.reduce((a, b) => (a.tags.length > b.tags.length ? a : b))
    const p = longest.tags.find(([name]) => name === 'p')[1]
    for (const filter of [
      { limit: 500 },
      { kinds: [1], limit: 500 },
      { kinds: [0, 3, 7], limit: 500 },
      { authors: [kept[0].pubkey], limit: 20 },
      { '#p': [p], limit: 500 },
      { ids: [longest.id, kept[1].id] },
      { since: kept[60].created_at, until: kept[20].created_at },
    ]) {
      const got = await fetchStored(relay, [filter])
      assert.deepEqual(got, bruteForce(kept, filter), JSON.stringify(filter))
      for (const event of got) assert.ok(verifyEvent(event), event.id)
    }
  })

  test('are counted', async () => {
    const count = await relay.count([{ kinds: [1] }, { authors: [kept[0].pubkey] }], {})
    const expected = kept.filter((event) => event.kind === 1 || event.pubkey === kept[0].pubkey)
    assert.equal(count, expected.length)
  })
})

describe('an empty relay', () => {
  const key = generateSecretKey()
  let relay
  before(async () => { relay = await Relay.connect(EMPTY_RELAY) })
  after(() => relay.close())

  test('describes itself', async () => {
    nip11.useFetchImplementation(fetch)
    const document = await nip11.fetchRelayInformation(EMPTY_RELAY)
    assert.ok(document.supported_nips.includes(42))
    assert.equal(document.limitation.max_limit, 500)
  })

  test('stores what is published and passes it on', async () => {
    const live = []
    const { promise, resolve } = withResolvers()
    const sub = relay.subscribe([{ kinds: [1], '#t': ['node'] }], {
      onevent: (event) => { live.push(fields(event)); if (live.length === 20) resolve() },
    })
    const notes = []
    for (let n = 0; n < 20; n++) {
      const note = sign(key, 1, `ñ 🍕 \u2028 / \u0001 \u001f \u007f \b \f " \\ ${n}`, [['t', 'node']])
      assert.equal(await relay.publish(note), '')
      notes.push(note)
    }
    await promise
    sub.close()
    assert.deepEqual(live, notes)
    assert.deepEqual(await fetchStored(relay, [{ kinds: [1] }]), bruteForce(notes, {}))
    assert.match(await relay.publish(notes[0]), /^duplicate: /)
  })

  test('refuses by name', async () => {
    const forged = { ...sign(key, 1, 'genuine'), content: 'forged' }
    await assert.rejects(relay.publish(forged), /^Error: invalid: /)
    await assert.rejects(fetchStored(relay, [{ kinds: ['x'] }]), /^Error: invalid: /)
    await assert.rejects(fetchStored(relay, [{ search: 'x' }]), /^Error: unsupported: /)
  })

  test('replaces and deletes', async () => {
    const first = sign(key, 30023, 'first', [['d', 'p']], now() - 10)
    const second = sign(key, 30023, 'second', [['d', 'p']], now() - 5)
    await relay.publish(second)
    await assert.rejects(relay.publish(first), /^Error: duplicate: a newer version is stored/)
    const address = `30023:${getPublicKey(key)}:p`
    await relay.publish(sign(key, 5, '', [['a', address]]))
    assert.deepEqual(await fetchStored(relay, [{ kinds: [30023] }]), [])
    await assert.rejects(relay.publish(second), /^Error: blocked: deleted/)
  })

  test('serves a pool of connections', async () => {
    const pool = new SimplePool()
    const note = sign(key, 1, 'by a pool', [['t', 'pool']])
    await Promise.all(pool.publish([EMPTY_RELAY], note))
    const got = await pool.querySync([EMPTY_RELAY], { '#t': ['pool'] })
    assert.deepEqual(got.map(fields), [note])
    pool.close([EMPTY_RELAY])
  })
})

describe('a relay with three frames in three seconds', () => {
  const key = generateSecretKey()
  let relay
  before(async () => { relay = await Relay.connect(STRICT_RELAY) })
  after(() => relay.close())

  test('tells the reason of a refusal at once, and when to try again', async () => {
    for (let n = 0; n < 3; n++) await relay.publish(sign(key, 1, `note ${n}`))
    const note = sign(key, 1, 'one too many')
    const began = Date.now()
    const reason = await relay.publish(note).then(() => 'accepted', (error) => error.message)
    const waited = Date.now() - began
    const [, secs] = reason.match(/^rate-limited: quota exceeded; retry in ([123])s$/) ?? assert.fail(reason)
    // Its own time-out is 4.4 s: this is an answer, no time-out.
    assert.ok(waited < 1000, `after ${waited} ms`)
    await assert.rejects(fetchStored(relay, [{ kinds: [1] }]), /^Error: rate-limited: quota exceeded; retry in /)
    await new Promise((resolve) => setTimeout(resolve, secs * 1000))
    assert.equal(await relay.publish(note), '')
  })
})

function withResolvers() {
  let resolve, reject
  const promise = new Promise((a, b) => { resolve = a; reject = b })
  return { promise, resolve, reject }
}
