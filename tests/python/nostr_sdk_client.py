"""nostr-sdk's Python binding against the relay: the steps of tests/node/scenario.mjs."""

import asyncio
import os
import sys
from datetime import timedelta

from nostr_sdk import (
    ClientBuilder,
    ClientNotification,
    EventBuilder,
    Filter,
    Keys,
    Kind,
    RelayOptions,
    RelayUrl,
    ReqTarget,
    SignerAuthenticator,
    Tag,
    uniffi_set_event_loop,
)

RELAY = RelayUrl.parse(os.environ["RELAY"])
LOGIN = os.environ["LOGIN"] == "1"
KEYS = Keys.generate()
WAIT = timedelta(seconds=30)


def step(name):
    print(name, flush=True)


async def publish(client, content):
    """Publishes a note, which must be accepted."""
    note = EventBuilder(Kind(1), content).tags([Tag.hashtag("by a client")]).finalize(KEYS)
    sent = await client.send_event(note)
    assert sent.success and not sent.failed, sent.failed
    step(f"published {content}")


async def main():
    # The library asks for logins on threads of its own, which find no event loop otherwise.
    uniffi_set_event_loop(asyncio.get_running_loop())
    builder = ClientBuilder()
    if LOGIN:
        builder = builder.authenticator(SignerAuthenticator(KEYS))
    client = builder.build()
    # Without it the first attempt to reconnect comes after ten seconds, later ones after more.
    opts = RelayOptions().retry_interval(timedelta(seconds=2)).adjust_retry_interval(False)
    await client.add_relay(RELAY, opts=opts)
    await client.connect(and_wait=WAIT)
    relay = await client.relay(RELAY)
    step("connected")
    await publish(client, "at first")

    wanted = Filter().kinds([Kind(1), Kind(20001)]).hashtag("foreign")
    notifications = client.notifications()
    await client.subscribe(ReqTarget.auto([wanted]))
    got, complete, arrived = [], False, asyncio.Condition()

    async def listen():
        nonlocal complete
        while (news := await notifications.next()) is not None:
            async with arrived:
                if isinstance(news, ClientNotification.NEW_EVENT):
                    assert news.event.verify()
                    got.append(news.event)
                elif isinstance(news, ClientNotification.MESSAGE):
                    enum = news.message.as_enum()
                    complete = complete or enum.is_END_OF_STORED_EVENTS()
                arrived.notify_all()

    _listener = asyncio.create_task(listen())

    async def until(ask):
        async with arrived:
            await arrived.wait_for(ask)

    async def heard(content):
        await until(lambda: any(event.content() == content for event in got))

    await until(lambda: complete)
    stored = sorted(event.content() for event in got if event.kind().as_u16() == 1)
    step("stored: " + ", ".join(stored))
    await heard("live")
    step("live")
    notes = Filter().kind(Kind(1)).hashtag("foreign")
    step(f"counted: {await relay.count_events(notes, WAIT)}")
    for end in ["restart", "crash"]:
        step(end)
        await heard(f"after a {end}")
        step(f"live after a {end}")
        await publish(client, f"after a {end}")
    # The library's runtime can abort the interpreter while that ends, so it is not left to end.
    sys.stdout.flush()
    os._exit(0)


asyncio.run(main())
