//! `fanout`: one publisher, many subscribers, as fast as the relay takes events or at a rate.
//! Each delivery is timed from its publication, and each subscriber's order is checked.

mod deliveries;
mod run;
mod setup;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use self::{
    deliveries::Deliveries,
    run::Fanout,
    setup::{sign_events, subscribe},
};
use crate::{
    cli::FanoutArgs,
    cost::CpuMeter,
    latency::{Latencies, Percentiles, round3},
    net::{Incoming, Sockets},
    problems::Problems,
    report::Outcome,
};

/// After so long a silence, longer than a pause between two events, what has not come is lost.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Report<'a> {
    mode: &'static str,
    url: &'a str,
    subscribers: usize,
    /// Events a second; `null` for as fast as possible.
    rate: Option<f64>,
    in_flight: usize,
    events: usize,
    accepted: u64,
    refused: u64,
    unanswered: usize,
    deliveries: u64,
    deliveries_per_sec: f64,
    lost: u64,
    duplicates: u64,
    out_of_order: u64,
    sockets_cut: usize,
    seconds: f64,
    latency_ms: Percentiles,
    publish_latency_ms: Percentiles,
    relay_cpu_us_per_delivery: Option<f64>,
    bench_cpu_us_per_delivery: f64,
    problems: &'a Problems,
}

/// Publishes and receives.
///
/// # Errors
/// When the relay can't be reached or measured, or does not take the subscriptions.
pub(crate) fn run(args: &FanoutArgs) -> Result<Outcome> {
    ensure!(
        args.subscribers > 0 && args.in_flight > 0,
        "nothing to deliver"
    );
    let deadline = args.relay.deadline();
    let pause = match args.rate {
        Some(rate) if rate > 0.0 => Some(Duration::from_secs_f64(1.0 / rate)),
        Some(_) => bail!("--rate must be above zero"),
        None => None,
    };
    let default = args.rate.map_or(2000, |rate| (rate * 10.0).ceil() as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // Unique to this run: events of an earlier one would be duplicates and not be delivered.
    let nonce = format!("bench-{}-{}", now.as_nanos(), std::process::id());
    let events = sign_events(&nonce, now.as_secs(), args.events.unwrap_or(default))?;

    let mut sockets = Sockets::connect(&args.relay.url, args.subscribers)?;
    subscribe(&mut sockets, &nonce, deadline)?;
    let publisher = sockets.add(&args.relay.url)?;
    let meter = CpuMeter::start(args.relay.relay())?;
    let start = Instant::now();
    let mut run = Fanout {
        numbers: (0..).zip(&events).map(|(n, event)| (event.id, n)).collect(),
        events: &events,
        publisher,
        window: if pause.is_some() { 0 } else { args.in_flight },
        patience: QUIET + pause.unwrap_or_default(),
        sent: Vec::with_capacity(events.len()),
        answered: vec![false; events.len()],
        accepted: 0,
        refused: 0,
        deliveries: Deliveries::new(args.subscribers, events.len()),
        latencies: Latencies::new()?,
        publish_latencies: Latencies::new()?,
        last_activity: start,
        last_delivery: start,
        problems: Problems::default(),
    };
    sockets.send(publisher, |out| run.fill(Instant::now(), out));
    while !run.finished() && !deadline.passed() {
        let mut left = deadline.left(Duration::from_millis(200));
        if let Some(pause) = pause
            && run.sent.len() < events.len()
        {
            let due = start + pause * run.sent.len() as u32;
            let now = Instant::now();
            if now >= due {
                sockets.send(publisher, |out| run.publish(now, out));
                continue;
            }
            left = left.min(due - now);
        }
        sockets.turn(left, |at, incoming, now, out| {
            match incoming {
                Incoming::Text(message) => run.receive(at, message, now, out)?,
                Incoming::Closed(why) => run.problems.add("cut", why),
            }
            Ok(())
        })?;
    }

    let delivered = run.deliveries.unique();
    let lost = (run.accepted * args.subscribers as u64).saturating_sub(delivered);
    let seconds = (run.last_delivery - start).as_secs_f64().max(1e-9);
    let answered = (run.accepted + run.refused) as usize;
    let report = Report {
        mode: "fanout",
        url: &args.relay.url.url,
        subscribers: args.subscribers,
        rate: args.rate,
        in_flight: run.window,
        events: events.len(),
        accepted: run.accepted,
        refused: run.refused,
        unanswered: events.len() - answered,
        deliveries: delivered,
        deliveries_per_sec: (delivered as f64 / seconds).round(),
        lost,
        duplicates: run.deliveries.duplicates,
        out_of_order: run.deliveries.out_of_order,
        sockets_cut: sockets.closed(),
        seconds: round3(seconds),
        latency_ms: run.latencies.percentiles_ms(),
        publish_latency_ms: run.publish_latencies.percentiles_ms(),
        relay_cpu_us_per_delivery: meter.relay_us_per(delivered),
        bench_cpu_us_per_delivery: meter.own_us_per(delivered),
        problems: &run.problems,
    };
    let failure = (answered < events.len() || lost > 0 || delivered == 0).then(|| {
        format!(
            "{lost} deliveries lost, {} of {} events without an answer, {} refused; first problem: {}",
            events.len() - answered,
            events.len(),
            run.refused,
            run.problems.first()
        )
    });
    Outcome::new(&report, failure)
}
