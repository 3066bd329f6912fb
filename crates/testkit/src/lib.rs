//! What the workspace's tests share: private servers, the relay's process, and clients that speak
//! the wire. Every wait ends by an event or fails at [`DEADLINE`], saying what it waited for.
//!
//! It fails by panicking, as tests do, and depends on no crate under test but `buzz-protocol`.

pub mod admission_cases;
pub mod client;
pub mod cluster;
pub mod events;
pub mod http;
pub mod launchdarkly;
pub mod log;
pub mod raw;
pub mod redis;
pub mod relay;
pub mod rest;
pub mod small_relay;

use std::{
    future::Future,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use client::Client;
pub use events::Author;
pub use redis::Redis;
pub use relay::{Program, Relay};
pub use small_relay::SmallRelay;

/// How long anything may take that should happen soon, on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The client's clock, in seconds since the Unix epoch.
pub fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.expect("a clock after 1970").as_secs()
}

/// Waits for `work`, or fails saying what did not happen.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: did not happen within {DEADLINE:?}"),
    }
}

/// Asks again and again until the answer is `Some`, or fails saying what did not happen.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
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
