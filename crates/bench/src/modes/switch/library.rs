//! The change of relay with `buzz-client`, as an app makes it.

use std::time::Instant;

use anyhow::{Context, Result};
use buzz_client::{Client, Message, Subscription};
use tokio::time::timeout;

use super::{Change, PATIENCE, Round};
use crate::problems::Problems;

pub(super) async fn change(round: &Round<'_>, problems: &mut Problems) -> Result<Change> {
    let client = Client::builder(&round.from.url).connect()?;
    let filters = round.filters().into_iter();
    let mut subscriptions: Vec<Subscription> = filters
        .map(|filter| client.subscribe(vec![filter]))
        .collect();
    live(round, &mut subscriptions, problems).await;

    let (frames, refusals) = (client.frames_sent(), client.refusals());
    let start = Instant::now();
    client
        .switch(&round.to.url)
        .context("the relay to change to")?;
    let answer = client.publish(round.message.clone()).await;
    let ok = match answer {
        Ok(_) => Ok(start.elapsed()),
        Err(error) => {
            problems.add("library", &error.to_string());
            Err(error.to_string())
        }
    };
    let live = live(round, &mut subscriptions, problems).await;
    let change = Change {
        ok: Some(ok),
        frames: client.frames_sent() - frames,
        refusals: client.refusals() - refusals,
        // The library counts them with the refusals.
        notices: 0,
        live,
    };
    client.close().await;
    Ok(change)
}

/// Waits until the subscriptions have what the relay stored; which of them do.
async fn live(
    round: &Round<'_>,
    subscriptions: &mut [Subscription],
    problems: &mut Problems,
) -> Vec<bool> {
    let mut live = vec![false; subscriptions.len()];
    let all = async {
        for (subscription, live) in subscriptions.iter_mut().zip(&mut live) {
            loop {
                match subscription.next().await {
                    Some(Message::Event(_)) => {}
                    Some(Message::CaughtUp) => {
                        *live = true;
                        break;
                    }
                    Some(Message::Closed(reason)) => {
                        problems.add("CLOSED", &reason);
                        break;
                    }
                    None => break,
                }
            }
        }
    };
    let _ = timeout(round.deadline.left(PATIENCE), all).await;
    live
}
