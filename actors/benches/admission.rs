//! What admission costs in CPU time for each frame, at a given rate, with and without quotas in
//! one run: `cargo bench -p buzz-actors --bench admission`.
//!
//! Each of 1,000 keys sends its frames one by one, so that nothing is batched: the worst case.

use std::time::{Duration, Instant};

use actix::System;
use buzz_actors::{
    admission::{
        Admission, AdmissionSettings, GuardSettings, Principal, Quota, QuotaClass, Quotas, Rates,
    },
    metrics::Metrics,
};
use buzz_protocol::Pubkey;
use futures_util::future::join_all;
use rustix::time::{ClockId, clock_gettime};

const KEYS: u64 = 1_000;
const FRAMES_PER_SEC: u64 = 50_000;
const SECONDS: u64 = 5;
const TICK: Duration = Duration::from_millis(1);

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn key(number: u64) -> Principal {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Principal::Key(Pubkey(bytes))
}

/// CPU time of the process for each frame, in microseconds.
async fn run(quota: u32) -> f64 {
    let rates = Rates {
        frames: Quota::OFF,
        messages: Quota::OFF,
        api_calls: Quota {
            limit: quota,
            window_ms: 5_000,
        },
    };
    let settings = AdmissionSettings {
        quotas: Quotas {
            human: rates,
            agent: rates,
        },
        guards: GuardSettings::OFF,
        shared: None,
    };
    let shards = std::thread::available_parallelism().map_or(1, usize::from);
    let admission = Admission::start(&settings, shards, &Metrics::register());
    let (before, began) = (cpu_seconds(), Instant::now());
    let (mut sent, all) = (0, FRAMES_PER_SEC * SECONDS);
    let mut tick = tokio::time::interval(TICK);
    while sent < all {
        tick.tick().await;
        let due = (began.elapsed().as_secs_f64() * FRAMES_PER_SEC as f64) as u64;
        let frames = (sent..due.min(all)).map(|n| {
            let admission = admission.clone();
            async move {
                admission
                    .admit_api_call(key(n % KEYS), QuotaClass::Human)
                    .await
            }
        });
        let answers = join_all(frames).await;
        assert!(
            answers.iter().all(Result::is_ok),
            "the quota is large enough"
        );
        sent = sent.max(due.min(all));
    }
    (cpu_seconds() - before) * 1e6 / all as f64
}

fn main() {
    System::new().block_on(async {
        println!("{FRAMES_PER_SEC} frames/s from {KEYS} keys, one by one, µs of CPU each:");
        for round in 1..=3 {
            let off = run(0).await;
            let on = run(1_000_000).await;
            println!(
                "  {round}: off {off:.2}, on {on:.2}: admission {:.2}",
                on - off
            );
        }
    });
}
