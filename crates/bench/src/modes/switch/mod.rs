//! `switch`: a client with many channels changes relay and sends a message at once. How long until
//! its OK with this project's client library, and with a plain client, which opens each subscription
//! with a REQ of its own and takes a refusal as it comes.

mod library;
mod plain;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, ensure};
use buzz_protocol::{Event, Filter, Tag, UnsignedEvent};
use secp256k1::Keypair;
use serde::Serialize;

use crate::{
    cli::{Deadline, Pattern, SwitchArgs},
    dataset::keypair,
    latency::{Latencies, Percentiles, round3},
    net::Target,
    problems::Problems,
    report::Outcome,
};

/// How long a client waits for anything, a message's OK above all: the library's default.
const PATIENCE: Duration = Duration::from_secs(25);

/// Subscriptions of a sidebar that belong to no channel: its profile, its inbox and the like.
const SINGLE: usize = 10;

/// The clients, in the order of their turns.
const KINDS: [Kind; 3] = [Kind::Library, Kind::PlainRetry, Kind::Plain];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `buzz-client`.
    Library,
    /// Sends a refused message again, once, after the wait that the relay asked for.
    PlainRetry,
    /// Never sends again.
    Plain,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::PlainRetry => "plain_retry",
            Self::Plain => "plain",
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    mode: &'static str,
    url: &'a str,
    to: &'a str,
    pattern: Pattern,
    channels: usize,
    /// Of each client: the channels' and the single ones.
    subscriptions: usize,
    rounds: usize,
    seconds: f64,
    /// By client, over all rounds; counted from the change of relay on.
    clients: BTreeMap<&'static str, Figures>,
    problems: &'a Problems,
}

#[derive(Serialize)]
struct Figures {
    ok: u64,
    /// Messages without an OK, refused or not answered in time.
    failed: u64,
    /// From the change of relay to the message's OK, where there was one.
    ok_ms: Percentiles,
    /// EVENT and REQ frames sent.
    frames: u64,
    /// Answers that refuse one of them by name.
    refusals: u64,
    notices: u64,
    /// Channels all of whose subscriptions were live in the end.
    channels_live: usize,
    channels_lost: usize,
    /// Single ones included.
    subscriptions_live: usize,
    subscriptions_lost: usize,
}

/// What is the same for each client in a round.
struct Round<'a> {
    from: &'a Target,
    to: &'a Target,
    pattern: Pattern,
    channels: usize,
    message: Event,
    deadline: Deadline,
}

impl Pattern {
    /// Subscriptions of each channel.
    fn of_a_channel(self) -> usize {
        match self {
            Self::Channels => 1,
            Self::Sidebar => 2,
        }
    }

    /// The filters of all subscriptions, those of channel 0 first, the single ones last.
    fn filters(self, channels: usize) -> Vec<Filter> {
        // Messages, and in a sidebar also what is said about them.
        let kinds = [vec![1], vec![5, 7]];
        let kinds = &kinds[..self.of_a_channel()];
        let of = |channel, kinds: &Vec<u16>| Filter {
            kinds: Some(kinds.clone()),
            tags: [(b't', vec![topic(channel)])].into(),
            ..Filter::default()
        };
        let channels = (0..channels).flat_map(|n| kinds.iter().map(move |kinds| of(n, kinds)));
        let single = match self {
            Self::Channels => 0,
            Self::Sidebar => SINGLE,
        };
        let single = (0..single).map(|n| Filter {
            tags: [(b't', vec![format!("buzz-bench-switch-single-{n}")])].into(),
            ..Filter::default()
        });
        channels.chain(single).collect()
    }
}

impl Round<'_> {
    fn filters(&self) -> Vec<Filter> {
        self.pattern.filters(self.channels)
    }
}

/// Topics stand for channels: any relay takes them, whatever it knows of groups.
fn topic(channel: usize) -> String {
    format!("buzz-bench-switch-{channel}")
}

/// One client's change of relay.
#[derive(Debug, Default)]
struct Change {
    /// Time to the message's OK, or why there was none.
    ok: Option<Result<Duration, String>>,
    frames: u64,
    refusals: u64,
    notices: u64,
    /// For each subscription, whether it was live in the end.
    live: Vec<bool>,
}

/// Lets each client change relay in turn.
///
/// # Errors
/// When the first relay can't be reached.
pub(crate) fn run(args: &SwitchArgs) -> Result<Outcome> {
    ensure!(args.channels > 0 && args.rounds > 0, "nothing to change");
    let pause = Duration::try_from_secs_f64(args.pause)?;
    let deadline = args.relay.deadline();
    let (from, to) = (&args.relay.url, args.to.as_ref().unwrap_or(&args.relay.url));
    let keys = keypair("buzz-bench switch")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let start = Instant::now();
    let mut problems = Problems::default();
    let mut changes: BTreeMap<&'static str, Vec<Change>> = BTreeMap::new();
    for turn in 0..args.rounds * KINDS.len() {
        let kind = KINDS[turn % KINDS.len()];
        if turn > 0 {
            std::thread::sleep(deadline.left(pause));
        }
        let round = Round {
            from,
            to,
            pattern: args.pattern,
            channels: args.channels,
            message: message(&keys, turn)?,
            deadline,
        };
        let change = runtime.block_on(async {
            match kind {
                Kind::Library => library::change(&round, &mut problems).await,
                Kind::PlainRetry => plain::change(&round, 1, &mut problems).await,
                Kind::Plain => plain::change(&round, 0, &mut problems).await,
            }
        })?;
        changes.entry(kind.name()).or_default().push(change);
    }
    let shape = (args.pattern, args.channels);
    let subscriptions = args.pattern.filters(args.channels).len();
    let clients = changes
        .into_iter()
        .map(|(name, changes)| Ok((name, figures(&changes, shape)?)))
        .collect::<Result<BTreeMap<_, _>>>()?;
    let failed = clients[Kind::Library.name()].failed;
    let report = Report {
        mode: "switch",
        url: &from.url,
        to: &to.url,
        pattern: args.pattern,
        channels: args.channels,
        subscriptions,
        rounds: args.rounds,
        seconds: round3(start.elapsed().as_secs_f64()),
        clients,
        problems: &problems,
    };
    let failure = (failed > 0).then(|| {
        let rounds = args.rounds;
        let why = problems.first();
        format!("{failed} of {rounds} messages of the library failed; first problem: {why}")
    });
    Outcome::new(&report, failure)
}

fn message(keys: &Keypair, turn: usize) -> Result<Event> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let message = UnsignedEvent {
        created_at: now.as_secs(),
        kind: 1,
        tags: vec![Tag::new(["t", &topic(0)])],
        // Another event each time: a duplicate's OK says less.
        content: format!("buzz-bench switch {turn} {}", now.as_nanos()),
    };
    Ok(message.sign(keys))
}

fn figures(changes: &[Change], (pattern, channels): (Pattern, usize)) -> Result<Figures> {
    let mut latencies = Latencies::new()?;
    let times = changes.iter().filter_map(|change| change.ok.as_ref());
    let times: Vec<Duration> = times.filter_map(|ok| ok.as_ref().ok()).copied().collect();
    times.iter().for_each(|time| latencies.record(*time));
    let sum = |of: fn(&Change) -> u64| changes.iter().map(of).sum();
    let of_a_channel = pattern.of_a_channel();
    let subscriptions = changes.len() * pattern.filters(channels).len();
    let subscriptions_live = changes.iter().flat_map(|change| &change.live);
    let subscriptions_live = subscriptions_live.filter(|live| **live).count();
    let live_channels = |change: &Change| {
        let all = change.live.chunks_exact(of_a_channel).take(channels);
        all.filter(|channel| channel.iter().all(|live| *live))
            .count()
    };
    let channels_live = changes.iter().map(live_channels).sum();
    Ok(Figures {
        ok: times.len() as u64,
        failed: (changes.len() - times.len()) as u64,
        ok_ms: latencies.percentiles_ms(),
        frames: sum(|change| change.frames),
        refusals: sum(|change| change.refusals),
        notices: sum(|change| change.notices),
        channels_live,
        channels_lost: (channels * changes.len()).saturating_sub(channels_live),
        subscriptions_live,
        subscriptions_lost: subscriptions.saturating_sub(subscriptions_live),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: a channel that counts as live with one of its two subscriptions; a single one taken
    /// for a channel's.
    #[test]
    fn a_channel_of_a_sidebar_is_live_with_both_of_its_subscriptions() {
        let filters = Pattern::Sidebar.filters(20);
        assert_eq!(
            (filters.len(), Pattern::Channels.filters(20).len()),
            (50, 20)
        );
        let mut live = vec![true; 50];
        live[7] = false;
        live[49] = false;
        let change = Change {
            live,
            ..Change::default()
        };
        let figures = figures(&[change], (Pattern::Sidebar, 20)).unwrap();
        assert_eq!((figures.channels_live, figures.channels_lost), (19, 1));
        let subscriptions = (figures.subscriptions_live, figures.subscriptions_lost);
        assert_eq!(subscriptions, (48, 2));
    }
}
