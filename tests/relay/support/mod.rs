//! The relay as a process, and clients that speak the wire. Every wait ends by an event or fails
//! at [`DEADLINE`], saying what it waited for.

pub(crate) mod client;
pub(crate) mod events;
pub(crate) mod http;
pub(crate) mod launchdarkly;
pub(crate) mod log;
pub(crate) mod raw;
pub(crate) mod redis;
pub(crate) mod relay;
pub(crate) mod rest;

use std::{
    future::Future,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) use client::Client;
pub(crate) use events::Author;
pub(crate) use redis::Redis;
pub(crate) use relay::Relay;

/// How long anything may take that should happen soon, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The client's clock, in seconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.expect("a clock after 1970").as_secs()
}

/// Waits for `work`, or fails saying what did not happen.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: did not happen within {DEADLINE:?}"),
    }
}

/// Asks again and again until the answer is `Some`, or fails saying what did not happen.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}
