//! `query`: one query at a time on each socket, REQ to EOSE, then CLOSE and the next.

mod asking;
mod plan;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde::Serialize;

use self::{
    asking::Asking,
    plan::{Known, Query},
};
use super::ingest;
use crate::{
    cli::{Deadline, QueryArgs},
    cost::{CpuMeter, per},
    dataset::DataSet,
    latency::Percentiles,
    net::{Incoming, Sockets},
    parallel,
    problems::Problems,
    report::Outcome,
    rng::Rng,
};

/// How long answers may be outstanding once the time is up.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Report<'a> {
    mode: &'static str,
    url: &'a str,
    sockets: usize,
    events: u64,
    seconds: f64,
    verified: bool,
    shapes: BTreeMap<&'static str, ShapeReport>,
    relay_rss_kib: Option<f64>,
    problems: &'a Problems,
}

#[derive(Serialize)]
struct ShapeReport {
    answers: u64,
    answers_per_sec: f64,
    events_per_answer: f64,
    latency_ms: Percentiles,
    /// CLOSED instead of an answer.
    refused: u64,
    /// Queries still open after the end.
    unanswered: u64,
    sockets_cut: usize,
    /// Answers that were not in order, not matching, above the limit or altered.
    wrong: Option<u64>,
    /// Answers with fewer events than the data set holds.
    short: Option<u64>,
    relay_cpu_us_per_answer: Option<f64>,
    bench_cpu_us_per_answer: f64,
}

/// Runs one shape after the other.
///
/// # Errors
/// When the relay can't be reached or measured.
pub(crate) fn run(args: &QueryArgs) -> Result<Outcome> {
    ensure!(args.sockets > 0, "--sockets must be above zero");
    let deadline = args.relay.deadline();
    let data = DataSet::new(args.data.seed, args.data.authors)?;
    if args.load {
        let events = ingest::sign(&data, args.data.events);
        let load = ingest::publish(&args.relay.url, &events, 16, 64, deadline)?;
        if let Some(failure) = load.failure() {
            return Outcome::new(&load.counts, Some(format!("--load: {failure}")));
        }
    }
    let heads = parallel::collect("derived", 0..args.data.events, |i| data.head(i));
    let known = Known { data: &data, heads };
    let mut problems = Problems::default();
    let mut shapes = BTreeMap::new();
    let mut failures = Vec::new();
    for shape in args.shape.each() {
        let mut rng = Rng::new(args.data.seed, 0x51, shape as u64);
        let queries = shape.queries(&known, &mut rng)?;
        let report = run_shape(args, &queries, rng, deadline, &mut problems)?;
        if let Some(failure) = report.failure() {
            failures.push(format!("{}: {failure}", shape.name()));
        }
        shapes.insert(shape.name(), report);
    }
    let report = Report {
        mode: "query",
        url: &args.relay.url.url,
        sockets: args.sockets,
        events: args.data.events,
        seconds: args.seconds,
        verified: args.verify_order,
        shapes,
        relay_rss_kib: args.relay.relay().and_then(|relay| relay.rss_kib().ok()),
        problems: &problems,
    };
    let failure = (!failures.is_empty()).then(|| {
        format!(
            "{}; first problem: {}",
            failures.join("; "),
            problems.first()
        )
    });
    Outcome::new(&report, failure)
}

fn run_shape(
    args: &QueryArgs,
    queries: &[Query],
    rng: Rng,
    deadline: Deadline,
    problems: &mut Problems,
) -> Result<ShapeReport> {
    let mut sockets = Sockets::connect(&args.relay.url, args.sockets)?;
    let meter = CpuMeter::start(args.relay.relay())?;
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let mut asking = Asking::new(queries, rng, args.sockets, args.verify_order, end, problems)?;
    for at in 0..sockets.len() {
        sockets.send(at, |out| asking.ask(at, Instant::now(), out));
    }
    let stop = end + GRACE;
    while asking.waiting() > 0 && !deadline.passed() && Instant::now() < stop {
        let left = deadline.left(Duration::from_millis(200));
        sockets.turn(left, |at, incoming, now, out| {
            match incoming {
                Incoming::Text(message) => asking.receive(at, message, now, out),
                Incoming::Closed(why) => asking.cut(at, why),
            }
            Ok(())
        })?;
    }
    let counts = &asking.counts;
    let all = counts.in_time + counts.late;
    let verified = |count| args.verify_order.then_some(count);
    Ok(ShapeReport {
        answers: counts.in_time,
        answers_per_sec: (counts.in_time as f64 / args.seconds).round(),
        events_per_answer: per(counts.events as f64, all),
        latency_ms: asking.latencies.percentiles_ms(),
        refused: counts.refused,
        unanswered: asking.waiting(),
        sockets_cut: sockets.closed(),
        wrong: verified(counts.wrong),
        short: verified(counts.short),
        relay_cpu_us_per_answer: meter.relay_us_per(all),
        bench_cpu_us_per_answer: meter.own_us_per(all),
    })
}

impl ShapeReport {
    fn failure(&self) -> Option<String> {
        if self.answers == 0 {
            Some("no answers".into())
        } else if self.events_per_answer == 0.0 {
            Some("no events found: does the relay hold the data set? (--load, or ingest with the same --seed and --authors)".into())
        } else if self.unanswered > 0 {
            Some(format!("{} queries have no answer", self.unanswered))
        } else if self.sockets_cut > 0 {
            Some(format!("{} sockets were cut", self.sockets_cut))
        } else if let Some(wrong @ 1..) = self.wrong {
            Some(format!("{wrong} answers are wrong"))
        } else if let Some(short @ 1..) = self.short {
            Some(format!("{short} answers are short of events"))
        } else {
            None
        }
    }
}
