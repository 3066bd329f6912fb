//! The change of relay with `buzz-client`, as an app makes it.

use std::time::Instant;

use anyhow::{Context, Result};
use buzz_client::{Client, Message, Subscription};
use tokio::time::timeout;

use super::{Change, PATIENCE, Round};
use crate::problems::Problems;

pub(super) async fn change(round: &Round<'_>, problems: &mut Problems) -> Result<Change> {
    let client = Client::builder(&round.from.url).connect()?;
    let mut channels: Vec<Subscription> = (0..round.channels)
        .map(|channel| client.subscribe(vec![Round::filter(channel)]))
        .collect();
    live(round, &mut channels, problems).await;

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
    let channels_live = live(round, &mut channels, problems).await;
    let change = Change {
        ok: Some(ok),
        frames: client.frames_sent() - frames,
        refusals: client.refusals() - refusals,
        // The library counts them with the refusals.
        notices: 0,
        channels_live,
    };
    client.close().await;
    Ok(change)
}

/// Waits until the channels have what the relay stored; how many do.
async fn live(round: &Round<'_>, channels: &mut [Subscription], problems: &mut Problems) -> usize {
    let mut live = 0;
    let all = async {
        for channel in channels {
            loop {
                match channel.next().await {
                    Some(Message::Event(_)) => {}
                    Some(Message::CaughtUp) => {
                        live += 1;
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
