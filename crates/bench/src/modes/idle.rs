//! `idle`: many connections with one subscription each; what the relay's memory grows by.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    answer::{self, Answer},
    cli::IdleArgs,
    cost::per,
    dataset::{keypair, pubkey},
    latency::round3,
    net::{Incoming, Sockets, push_text},
    problems::Problems,
    report::Outcome,
    rng::Rng,
};

#[derive(Serialize)]
struct Report<'a> {
    mode: &'static str,
    url: &'a str,
    connections: usize,
    subscribed: usize,
    sockets_cut: usize,
    connect_seconds: f64,
    relay_rss_before_kib: Option<f64>,
    relay_rss_after_kib: Option<f64>,
    relay_kib_per_connection: Option<f64>,
    problems: &'a Problems,
}

/// Opens the connections, waits for every EOSE, measures.
///
/// # Errors
/// When a connection can't be opened or the relay can't be measured.
pub(crate) fn run(args: &IdleArgs) -> Result<Outcome> {
    let deadline = args.relay.deadline();
    let rss = || args.relay.relay().map(|relay| relay.rss_kib()).transpose();
    let before = rss()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let start = Instant::now();
    let mut sockets = Sockets::new()?;
    let mut waiting = Waiting::default();
    for at in 0..args.connections {
        sockets
            .add(&args.relay.url)
            .with_context(|| format!("connection {} of {}", at + 1, args.connections))?;
        // Another author each, as clients differ; nothing stored matches.
        let author = author(at as u64)?;
        let filter = format!(
            "{{\"kinds\":[1],\"authors\":[\"{author}\"],\"since\":{}}}",
            now.as_secs()
        );
        sockets.send(at, |out| {
            push_text(out, &[b"[\"REQ\",\"idle\",", filter.as_bytes(), b"]"]);
        });
        waiting.open.push(true);
        if at % 64 == 63 {
            waiting.turn(&mut sockets, Duration::ZERO)?;
        }
    }
    while waiting.open.contains(&true) && !deadline.passed() {
        waiting.turn(&mut sockets, deadline.left(Duration::from_secs(1)))?;
    }
    let connect_seconds = start.elapsed().as_secs_f64();
    let settled = Instant::now() + Duration::from_secs_f64(args.settle);
    while let left = settled.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        waiting.turn(&mut sockets, deadline.left(left))?;
        if deadline.passed() {
            break;
        }
    }
    let after = rss()?;
    let growth = after.zip(before).map(|(after, before)| after - before);
    let subscribed = waiting.subscribed;
    let report = Report {
        mode: "idle",
        url: &args.relay.url.url,
        connections: args.connections,
        subscribed,
        sockets_cut: sockets.closed(),
        connect_seconds: round3(connect_seconds),
        relay_rss_before_kib: before,
        relay_rss_after_kib: after,
        relay_kib_per_connection: growth.map(|growth| per(growth, args.connections as u64)),
        problems: &waiting.problems,
    };
    let complete = subscribed == args.connections && sockets.closed() == 0;
    let failure = (!complete).then(|| {
        format!(
            "{} of {} connections got EOSE, {} were cut; first problem: {}",
            subscribed,
            args.connections,
            sockets.closed(),
            waiting.problems.first()
        )
    });
    Outcome::new(&report, failure)
}

/// Making a key costs 20 µs, so they repeat after a while.
fn author(at: u64) -> Result<buzz_protocol::Pubkey> {
    let number = Rng::new(0, 3, at).below(100_000);
    Ok(pubkey(&keypair(&format!("buzz-bench idle {number}"))?))
}

#[derive(Default)]
struct Waiting {
    /// Each connection whose subscription has neither its EOSE nor a refusal.
    open: Vec<bool>,
    /// How many got their EOSE.
    subscribed: usize,
    problems: Problems,
}

impl Waiting {
    fn turn(&mut self, sockets: &mut Sockets, timeout: Duration) -> Result<()> {
        sockets.turn(timeout, |at, incoming, _, _| {
            match incoming {
                Incoming::Closed(why) => {
                    self.open[at] = false;
                    self.problems.add("cut", why);
                }
                Incoming::Text(message) => match answer::parse(message) {
                    Answer::Eose { .. } if self.open[at] => {
                        self.open[at] = false;
                        self.subscribed += 1;
                    }
                    Answer::Closed { message, .. } => {
                        self.open[at] = false;
                        self.problems.add("CLOSED", &answer::text(message));
                    }
                    Answer::Notice { message } => {
                        self.problems.add("NOTICE", &answer::text(message));
                    }
                    _ => {}
                },
            }
            Ok(())
        })
    }
}
