//! The change of relay with a plain client: one REQ a subscription, all at once, then the message.

use std::time::{Duration, Instant};

use anyhow::Result;
use buzz_protocol::{refusal, relay_frame::RelayFrame};
use tokio::time::{sleep_until, timeout};

use super::{Change, PATIENCE, Round};
use crate::{
    net::client::{Received, Socket},
    problems::Problems,
};

/// What a refusal without a hint is waited out with.
const DEFAULT_RETRY: Duration = Duration::from_secs(10);

/// `retries`: how often a refused message is sent again.
pub(super) async fn change(
    round: &Round<'_>,
    retries: u32,
    problems: &mut Problems,
) -> Result<Change> {
    let mut socket = Socket::open(round.from).await?;
    socket.send_all(reqs(round)).await;
    let mut before = Run::new(round, 0);
    // What the relay refuses here was refused before the change, and is no part of it.
    let _ = timeout(round.deadline.left(PATIENCE), async {
        while before.open > 0 && before.receive(&mut socket, &mut Problems::default()).await {}
    })
    .await;
    drop(socket);

    let mut run = Run::new(round, retries);
    let mut socket = match Socket::open(round.to).await {
        Ok(socket) => socket,
        Err(error) => return Ok(run.failed(&format!("{error:#}"), problems)),
    };
    run.change.frames += run.open as u64 + 1;
    socket.send_all(reqs(round).chain([event(round)])).await;
    let deadline = Instant::now() + round.deadline.left(PATIENCE);
    while run.open > 0 || run.change.ok.is_none() {
        let retry_at = run.retry_at.unwrap_or(deadline).min(deadline);
        tokio::select! {
            alive = run.receive(&mut socket, problems) => {
                if !alive {
                    break;
                }
            }
            () = sleep_until(retry_at.into()) => {
                if run.retry_at.take().is_none_or(|at| at > deadline) {
                    break;
                }
                run.change.frames += 1;
                socket.send(event(round)).await;
            }
        }
    }
    if run.change.ok.is_none() {
        return Ok(run.failed("no OK within 25 s", problems));
    }
    Ok(run.change)
}

fn reqs(round: &Round<'_>) -> impl Iterator<Item = String> + use<> {
    let filters = round.filters().into_iter().enumerate();
    filters.map(|(n, filter)| {
        let filter = serde_json::json!(filter);
        format!("[\"REQ\",\"{n}\",{filter}]")
    })
}

fn event(round: &Round<'_>) -> String {
    format!("[\"EVENT\",{}]", round.message.to_json())
}

/// The change so far.
struct Run<'a> {
    round: &'a Round<'a>,
    start: Instant,
    /// Subscriptions without an EOSE or a refusal.
    open: usize,
    retries: u32,
    retry_at: Option<Instant>,
    change: Change,
}

impl<'a> Run<'a> {
    fn new(round: &'a Round<'_>, retries: u32) -> Self {
        let subscriptions = round.filters().len();
        Self {
            round,
            start: Instant::now(),
            open: subscriptions,
            retries,
            retry_at: None,
            change: Change {
                live: vec![false; subscriptions],
                ..Change::default()
            },
        }
    }

    fn failed(mut self, why: &str, problems: &mut Problems) -> Change {
        problems.add("plain", why);
        self.change.ok = Some(Err(why.to_owned()));
        self.change
    }

    /// Takes one message; false where the socket has ended.
    async fn receive(&mut self, socket: &mut Socket, problems: &mut Problems) -> bool {
        let text = match socket.receive().await {
            Received::Text(text) => text,
            Received::BareClose => {
                problems.add("cut", "closed without a word");
                return false;
            }
            Received::Cut(why) => {
                problems.add("cut", &why);
                return false;
            }
        };
        match RelayFrame::parse(&text) {
            Ok(RelayFrame::Eose { sub }) => {
                self.open = self.open.saturating_sub(1);
                let n = sub.parse::<usize>().ok();
                if let Some(live) = n.and_then(|n| self.change.live.get_mut(n)) {
                    *live = true;
                }
            }
            Ok(RelayFrame::Closed { message, .. }) => {
                self.open = self.open.saturating_sub(1);
                self.change.refusals += 1;
                problems.add("CLOSED", &message);
            }
            Ok(RelayFrame::Notice { message }) => {
                self.change.notices += 1;
                problems.add("NOTICE", &message);
            }
            Ok(RelayFrame::Ok {
                id,
                accepted,
                message,
            }) if id == self.round.message.id => self.answered(accepted, message, problems),
            _ => {}
        }
        true
    }

    fn answered(&mut self, accepted: bool, message: String, problems: &mut Problems) {
        if accepted {
            self.change.ok = Some(Ok(self.start.elapsed()));
            return;
        }
        self.change.refusals += 1;
        problems.add("OK", &message);
        if self.retries > 0 && refusal::is_rate_limited(&message) {
            self.retries -= 1;
            let wait = refusal::retry_in(&message).unwrap_or(DEFAULT_RETRY);
            self.retry_at = Some(Instant::now() + wait);
        } else {
            self.change.ok = Some(Err(message));
        }
    }
}
