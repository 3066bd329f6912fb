//! `auth-storm`: many clients reconnect at once, as after a relay's restart, and log in (NIP-42).
//! Who is shed comes again, after a wait with full jitter, until all are in.

mod backoff;
mod client;

use std::time::Instant;

use anyhow::{Result, ensure};
use secp256k1::Keypair;
use serde::Serialize;
use tokio::{sync::mpsc, task::JoinSet};

use self::{
    backoff::Backoff,
    client::{Client, News},
};
use crate::{
    admin::{Sampler, Work},
    cli::AuthStormArgs,
    cost::median,
    dataset::keypair,
    latency::{Latencies, Percentiles, round3},
    problems::Problems,
    report::Outcome,
};

#[derive(Serialize)]
struct Report<'a> {
    mode: &'static str,
    url: &'a str,
    clients: usize,
    logged_in: usize,
    /// Sockets dialled; each but a client's last ended in one of the next four ways.
    attempts: u64,
    /// Shed: the login got no answer and the socket ended without a word.
    bare_closes: u64,
    /// `OK false`.
    refused: u64,
    handshakes_refused: u64,
    /// Sockets that ended otherwise, logged in or not.
    sockets_cut: u64,
    seconds: f64,
    first_login_seconds: f64,
    median_login_seconds: f64,
    last_login_seconds: f64,
    /// From the storm's start to the client's login, all its attempts and waits included.
    login_ms: Percentiles,
    /// From the AUTH to its OK, in the attempt that got in.
    auth_latency_ms: Percentiles,
    /// What it cost the relay, where --admin named its address.
    relay: Option<Work>,
    problems: &'a Problems,
}

/// Lets them loose.
///
/// # Errors
/// When the relay's metrics can't be read.
pub(crate) fn run(args: &AuthStormArgs) -> Result<Outcome> {
    ensure!(args.clients > 0, "nobody to log in");
    let keys = (0..args.clients)
        .map(|n| keypair(&format!("buzz-bench auth-storm {} {n}", args.seed)))
        .collect::<Result<Vec<_>>>()?;
    let sampler = args.admin.as_ref().map(Sampler::start).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut tally = Tally::new()?;
    let start = Instant::now();
    runtime.block_on(storm(args, keys, &mut tally));
    let seconds = start.elapsed().as_secs_f64();
    let relay = sampler.map(Sampler::stop).transpose()?;

    let mut times: Vec<f64> = (tally.logins.iter())
        .map(|at| (*at - start).as_secs_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    let mut since_start = Latencies::new()?;
    for at in &tally.logins {
        since_start.record(*at - start);
    }
    let time = |time: Option<&f64>| time.copied().map_or(0.0, round3);
    let logged_in = tally.logins.len();
    let report = Report {
        mode: "auth-storm",
        url: &args.relay.url.url,
        clients: args.clients,
        logged_in,
        attempts: tally.attempts,
        bare_closes: tally.bare_closes,
        refused: tally.refused,
        handshakes_refused: tally.handshakes_refused,
        sockets_cut: tally.cut,
        seconds: round3(seconds),
        first_login_seconds: time(times.first()),
        last_login_seconds: time(times.last()),
        median_login_seconds: median(times),
        login_ms: since_start.percentiles_ms(),
        auth_latency_ms: tally.latencies.percentiles_ms(),
        relay,
        problems: &tally.problems,
    };
    let failure = (logged_in < args.clients).then(|| {
        format!(
            "{logged_in} of {} clients are logged in; first problem: {}",
            args.clients,
            tally.problems.first()
        )
    });
    Outcome::new(&report, failure)
}

/// Runs until no client has anything left to try, or until the deadline.
async fn storm(args: &AuthStormArgs, keys: Vec<Keypair>, tally: &mut Tally) {
    let deadline = args.relay.deadline();
    // Every client tells few things a second, and none of them twice.
    let (news, mut told) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for (n, keys) in keys.into_iter().enumerate() {
        let url = args.auth_url.as_ref().unwrap_or(&args.relay.url.url);
        let client = Client {
            target: args.relay.url.clone(),
            auth_url: url.clone(),
            keys,
            backoff: Backoff::new(args.seed, n as u64),
        };
        clients.spawn(client.run(news.clone()));
    }
    let all_settled = async {
        let mut settled = 0;
        while settled < args.clients
            && let Some(news) = told.recv().await
        {
            settled += usize::from(news.settles());
            tally.add(news);
        }
    };
    let _ = tokio::time::timeout(deadline.left(std::time::Duration::MAX), all_settled).await;
}

/// What all clients have told.
struct Tally {
    attempts: u64,
    bare_closes: u64,
    refused: u64,
    handshakes_refused: u64,
    cut: u64,
    /// When each client got in.
    logins: Vec<Instant>,
    latencies: Latencies,
    problems: Problems,
}

impl Tally {
    fn new() -> Result<Self> {
        Ok(Self {
            attempts: 0,
            bare_closes: 0,
            refused: 0,
            handshakes_refused: 0,
            cut: 0,
            logins: Vec::new(),
            latencies: Latencies::new()?,
            problems: Problems::default(),
        })
    }

    fn add(&mut self, news: News) {
        match news {
            News::Dials => self.attempts += 1,
            News::In { at, latency } => {
                self.logins.push(at);
                self.latencies.record(latency);
            }
            News::BareClose => self.bare_closes += 1,
            News::Refused { text, .. } => {
                self.refused += 1;
                self.problems.add("OK", &text);
            }
            News::Handshake(why) => {
                self.handshakes_refused += 1;
                self.problems.add("handshake", &why);
            }
            News::Cut(why) => {
                self.cut += 1;
                self.problems.add("cut", &why);
            }
        }
    }
}
