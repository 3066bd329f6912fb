//! `ingest`: signed events over pipelined sockets. Each socket keeps a fixed number of events
//! without an answer; every OK is matched to its event by id.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use buzz_protocol::EventId;
use serde::Serialize;

use super::IdMap;
use crate::{
    answer::{self, Answer},
    cli::{Deadline, IngestArgs},
    cost::{self, CpuMeter, per},
    dataset::{DataSet, Signed},
    latency::{Latencies, Percentiles, round3},
    net::{Incoming, Sockets, Target, push_text},
    parallel,
    problems::Problems,
    process,
    report::Outcome,
};

/// So many signature checks are timed before and after the load.
const VERIFICATIONS: usize = 300;

#[derive(Serialize)]
struct Report<'a> {
    mode: &'static str,
    url: &'a str,
    sockets: usize,
    in_flight: usize,
    #[serde(flatten)]
    counts: &'a Counts,
    seconds: f64,
    accepted_per_sec: f64,
    answers_per_sec: f64,
    latency_ms: Percentiles,
    verify_us: f64,
    relay_cpu_us_per_accepted: Option<f64>,
    relay_cpu_per_verify: Option<f64>,
    relay_rss_kib: Option<f64>,
    disk_bytes_per_event: Option<f64>,
    /// Growth in bytes of each file, so that a write-ahead log can be told from the database.
    disk_growth: Option<BTreeMap<String, i64>>,
    event_json_bytes: f64,
    bench_cpu_us_per_answer: f64,
    problems: &'a Problems,
}

/// What became of the events.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    events: u64,
    pub(super) accepted: u64,
    /// OK true, but the relay had it.
    pub(super) duplicates: u64,
    refused: u64,
    unanswered: u64,
    /// OKs for an event that was not waiting for one.
    unmatched: u64,
    sockets_cut: usize,
}

/// Publishes the data set.
///
/// # Errors
/// When the relay can't be reached or measured.
pub(crate) fn run(args: &IngestArgs) -> Result<Outcome> {
    let data = DataSet::new(args.data.seed, args.data.authors)?;
    let events = sign(&data, args.data.events);
    let mut checks = cost::verify_us(&events[..events.len().min(VERIFICATIONS)])?;
    let disk = || args.disk.as_deref().map(process::disk_bytes).transpose();
    let disk_before = disk()?;
    let meter = CpuMeter::start(args.relay.relay())?;
    let load = publish(
        &args.relay.url,
        &events,
        args.sockets,
        args.in_flight,
        args.relay.deadline(),
    )?;
    let counts = &load.counts;
    let answers = counts.accepted + counts.duplicates + counts.refused;
    let relay_cpu = meter.relay_us_per(counts.accepted);
    let bench_cpu = meter.own_us_per(answers);
    checks.extend(cost::verify_us(&events[..events.len().min(VERIFICATIONS)])?);
    let verify_us = cost::median(checks);
    let growth = disk()?.zip(disk_before).map(|(after, before)| {
        let grown = |(name, bytes): (String, u64)| {
            let before = before.get(&name).copied().unwrap_or_default();
            (name, bytes as i64 - before as i64)
        };
        after.into_iter().map(grown).collect::<BTreeMap<_, _>>()
    });
    let seconds = load.seconds;
    let bytes: usize = events.iter().map(|event| event.json.len()).sum();
    let report = Report {
        mode: "ingest",
        url: &args.relay.url.url,
        sockets: args.sockets,
        in_flight: args.in_flight,
        counts,
        seconds: round3(seconds),
        accepted_per_sec: (counts.accepted as f64 / seconds).round(),
        answers_per_sec: (answers as f64 / seconds).round(),
        latency_ms: load.latencies.percentiles_ms(),
        verify_us,
        relay_cpu_us_per_accepted: relay_cpu,
        relay_cpu_per_verify: relay_cpu.map(|cpu| round3(cpu / verify_us)),
        relay_rss_kib: args.relay.relay().and_then(|relay| relay.rss_kib().ok()),
        disk_bytes_per_event: growth
            .as_ref()
            .map(|growth| per(growth.values().sum::<i64>() as f64, counts.accepted)),
        disk_growth: growth,
        event_json_bytes: per(bytes as f64, events.len() as u64),
        bench_cpu_us_per_answer: bench_cpu,
        problems: &load.problems,
    };
    Outcome::new(&report, load.failure())
}

/// Signs the first `count` events of the set.
pub(super) fn sign(data: &DataSet, count: u64) -> Vec<Signed> {
    parallel::collect("signed", 0..count, |i| data.event(i))
}

/// A load while it runs and after.
pub(super) struct Load<'a> {
    events: &'a [Signed],
    next: usize,
    in_flight: usize,
    /// When each unanswered event was sent, for each socket.
    flying: Vec<IdMap<Instant>>,
    pub(super) counts: Counts,
    latencies: Latencies,
    problems: Problems,
    last_answer: Instant,
    seconds: f64,
}

/// Sends `events` and waits for their answers.
///
/// # Errors
/// When a socket can't be opened.
pub(super) fn publish<'a>(
    target: &Target,
    events: &'a [Signed],
    sockets: usize,
    in_flight: usize,
    deadline: Deadline,
) -> Result<Load<'a>> {
    ensure!(sockets > 0 && in_flight > 0, "nothing can be in flight");
    let mut sockets = Sockets::connect(target, sockets)?;
    let start = Instant::now();
    let mut load = Load {
        events,
        next: 0,
        in_flight,
        flying: (0..sockets.len()).map(|_| IdMap::default()).collect(),
        counts: Counts {
            events: events.len() as u64,
            ..Counts::default()
        },
        latencies: Latencies::new()?,
        problems: Problems::default(),
        last_answer: start,
        seconds: 0.0,
    };
    for at in 0..sockets.len() {
        sockets.send(at, |out| load.fill(at, Instant::now(), out));
    }
    while !load.finished(&sockets) && !deadline.passed() {
        let left = deadline.left(Duration::from_secs(1));
        sockets.turn(left, |at, incoming, now, out| {
            match incoming {
                Incoming::Text(message) => {
                    load.receive(at, message, now);
                    load.fill(at, now, out);
                }
                Incoming::Closed(why) => {
                    load.problems.add("cut", why);
                    load.flying[at].clear();
                }
            }
            Ok(())
        })?;
    }
    let counts = &mut load.counts;
    counts.unanswered = counts.events - counts.accepted - counts.duplicates - counts.refused;
    counts.sockets_cut = sockets.closed();
    load.seconds = (load.last_answer - start).as_secs_f64().max(1e-9);
    Ok(load)
}

impl Load<'_> {
    fn finished(&self, sockets: &Sockets) -> bool {
        let sent = self.next == self.events.len() || sockets.closed() == sockets.len();
        sent && self.flying.iter().all(IdMap::is_empty)
    }

    fn fill(&mut self, at: usize, now: Instant, out: &mut Vec<u8>) {
        let flying = &mut self.flying[at];
        while flying.len() < self.in_flight
            && let Some(event) = self.events.get(self.next)
        {
            push_text(out, &[b"[\"EVENT\",", event.json.as_bytes(), b"]"]);
            flying.insert(event.id, now);
            self.next += 1;
        }
    }

    fn receive(&mut self, at: usize, message: &[u8], now: Instant) {
        match answer::parse(message) {
            Answer::Ok {
                id,
                accepted,
                message,
            } => {
                let sent = EventId::from_hex(id)
                    .ok()
                    .and_then(|id| self.flying[at].remove(&id));
                let Some(sent) = sent else {
                    self.counts.unmatched += 1;
                    return;
                };
                self.latencies.record(now - sent);
                self.last_answer = now;
                if !accepted {
                    self.counts.refused += 1;
                    self.problems.add("OK", &answer::text(message));
                } else if message.starts_with(b"\"duplicate:") {
                    self.counts.duplicates += 1;
                } else {
                    self.counts.accepted += 1;
                }
            }
            Answer::Notice { message } => self.problems.add("NOTICE", &answer::text(message)),
            _ => {}
        }
    }

    /// Why the load does not count, where it does not.
    pub(super) fn failure(&self) -> Option<String> {
        let counts = &self.counts;
        if counts.unanswered > 0 {
            Some(format!(
                "{} of {} events have no answer; first problem: {}",
                counts.unanswered,
                counts.events,
                self.problems.first()
            ))
        } else if counts.accepted + counts.duplicates == 0 {
            Some(format!("no event was accepted: {}", self.problems.first()))
        } else {
            None
        }
    }
}
