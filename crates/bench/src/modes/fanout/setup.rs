//! Before the clock starts: events that only this run has, and subscriptions to them.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use buzz_protocol::{Tag, UnsignedEvent};

use crate::{
    answer::{self, Answer},
    cli::Deadline,
    dataset::{Signed, keypair, sign},
    net::{Incoming, Sockets, push_text},
    parallel,
};

/// Signs `count` events with the tag `nonce`.
pub(super) fn sign_events(nonce: &str, now: u64, count: u64) -> Result<Vec<Signed>> {
    let keys = keypair(nonce)?;
    let filler = "what people write to each other ".repeat(8);
    Ok(parallel::collect("signed", 0..count, |n| {
        let event = UnsignedEvent {
            created_at: now,
            kind: 1,
            tags: vec![Tag::new(["t", nonce])],
            content: format!("{n} {filler}"),
        };
        sign(event, &keys)
    }))
}

/// Subscribes every socket and waits until each has its EOSE.
pub(super) fn subscribe(sockets: &mut Sockets, nonce: &str, deadline: Deadline) -> Result<()> {
    let filter = format!("{{\"kinds\":[1],\"#t\":[\"{nonce}\"]}}");
    for at in 0..sockets.len() {
        sockets.send(at, |out| {
            push_text(out, &[b"[\"REQ\",\"f\",", filter.as_bytes(), b"]"]);
        });
    }
    let mut waiting = sockets.len();
    while waiting > 0 {
        ensure!(
            !deadline.passed(),
            "{waiting} of {} subscriptions got no EOSE",
            sockets.len()
        );
        let left = deadline.left(Duration::from_secs(1));
        sockets.turn(left, |_, incoming, _, _| {
            match incoming {
                Incoming::Closed(why) => bail!("a subscriber was cut before the start: {why}"),
                Incoming::Text(message) => match answer::parse(message) {
                    Answer::Eose { .. } => waiting -= 1,
                    Answer::Closed { message, .. } => {
                        bail!("a subscription was refused: {}", answer::text(message))
                    }
                    _ => {}
                },
            }
            Ok(())
        })?;
    }
    Ok(())
}
