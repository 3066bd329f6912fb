//! Keeps a client of the flag service that has values. The SDK gives up for good on a refused key,
//! on data it can't read at the beginning, and on redirects without an end; each time a new client
//! takes its place, later and later, while the values of the one before stay in force.

use std::{sync::Arc, thread, time::Duration};

use anyhow::Result;
use launchdarkly_sdk_transport::StatusCode;
use launchdarkly_server_sdk::{
    Client, ConfigBuilder, EventProcessorBuilder, ServiceEndpointsBuilder,
    StreamingDataSourceBuilder,
};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

use super::transport::{Stream, Watched, transport};
use crate::flags::settings::LaunchDarklySettings;

/// The service sends a sign of life every three minutes; a stream without one is dead.
const STREAM_SILENCE: Duration = Duration::from_secs(300);
/// An answer to delivered events is short.
const EVENTS_SILENCE: Duration = Duration::from_secs(10);
/// The SDK waits 30 s at most between two attempts. Where it makes none for this time, it has ended.
const GIVEN_UP: Duration = Duration::from_secs(90);

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Why a client is of no use.
#[derive(Debug, Clone, PartialEq)]
enum Ended {
    Refused(StatusCode),
    /// It said so by itself while its stream was open.
    Unreadable,
    /// It makes no attempt to connect.
    Silent,
    /// It could not be made.
    Failed(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(status) if matches!(status.as_u16(), 401 | 403) => {
                write!(f, "the service refuses the SDK key ({status})")
            }
            Self::Refused(status) => write!(f, "the service answered {status}"),
            Self::Unreadable => f.write_str("the service sent flags that the SDK can't read"),
            Self::Silent => f.write_str("the SDK has stopped connecting"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// See the module.
pub(super) struct Connection {
    pub(super) settings: LaunchDarklySettings,
    /// The client whose values are in force.
    pub(super) current: watch::Sender<Option<Arc<Client>>>,
    /// Told when the first client has values or has failed: what the start waits for.
    pub(super) decided: Option<oneshot::Sender<()>>,
}

impl Connection {
    /// Runs until the process ends.
    pub(super) async fn keep(mut self) {
        let mut retry = FIRST_RETRY;
        let mut reported = None;
        loop {
            let mut was_connected = false;
            let ended = match start(&self.settings) {
                Err(error) => Ended::Failed(format!("{error:#}")),
                Ok((client, mut stream)) => match initialized(&client, &mut stream).await {
                    Err(why) => {
                        close(client);
                        why
                    }
                    Ok(()) => {
                        if let Some(old) = self.current.send_replace(Some(client)) {
                            close(old);
                        }
                        tracing::info!("feature flags: connected to the service");
                        self.decide();
                        was_connected = true;
                        (retry, reported) = (FIRST_RETRY, None);
                        ended(&mut stream).await
                    }
                },
            };
            // Said once, not at each retry.
            if reported.as_ref() != Some(&ended) {
                let in_force = if was_connected || self.current.borrow().is_some() {
                    "the last values stay in force"
                } else {
                    "no flag has a value yet"
                };
                tracing::error!(why = %ended, in_force, "feature flags: a new client is started");
                reported = Some(ended);
            }
            self.decide();
            sleep(retry).await;
            retry = (retry * 2).min(LAST_RETRY);
        }
    }

    fn decide(&mut self) {
        if let Some(decided) = self.decided.take() {
            let _ = decided.send(());
        }
    }
}

/// Starts a client on this runtime. Each has transports of its own: its event sender has a runtime
/// of its own, and connections must not be shared between the two.
fn start(settings: &LaunchDarklySettings) -> Result<(Arc<Client>, watch::Receiver<Stream>)> {
    let (watched, stream) = Watched::new(transport(STREAM_SILENCE)?);
    let mut config = ConfigBuilder::new(&settings.sdk_key)
        .data_source(StreamingDataSourceBuilder::new().transport(watched))
        .event_processor(EventProcessorBuilder::new().transport(transport(EVENTS_SILENCE)?));
    if !settings.relay_proxy_url.is_empty() {
        let mut endpoints = ServiceEndpointsBuilder::new();
        config = config.service_endpoints(endpoints.relay_proxy(&settings.relay_proxy_url));
    }
    let client = Client::build(config.build()?)?;
    client.start_with_default_executor();
    Ok((Arc::new(client), stream))
}

/// Waits until the client has its first values, however long the service can't be reached.
async fn initialized(client: &Client, stream: &mut watch::Receiver<Stream>) -> Result<(), Ended> {
    let has_values = async {
        loop {
            // The SDK complains about longer waits.
            if let Some(done) = client
                .wait_for_initialization(Duration::from_secs(60))
                .await
            {
                return done;
            }
        }
    };
    tokio::select! {
        biased;
        why = ended(stream) => Err(why),
        has_values = has_values => if has_values { Ok(()) } else { Err(Ended::Unreadable) },
    }
}

/// Waits until the client has ended for good, and reports when its stream comes and goes.
async fn ended(stream: &mut watch::Receiver<Stream>) -> Ended {
    let mut lost = false;
    loop {
        let now = stream.borrow_and_update().clone();
        let mut give_up = None;
        match now {
            Stream::Refused(status) => return Ended::Refused(status),
            Stream::Connecting => {}
            Stream::Open if lost => {
                tracing::info!("feature flags: the stream is back");
                lost = false;
            }
            Stream::Open => {}
            Stream::Lost { since, why } => {
                if !lost {
                    tracing::warn!(why, "feature flags: no stream from the service; trying on");
                    lost = true;
                }
                give_up = Some(since + GIVEN_UP);
            }
        }
        let no_attempt = sleep_until(give_up.unwrap_or_else(Instant::now));
        tokio::select! {
            changed = stream.changed() => if changed.is_err() {
                return Ended::Silent;
            },
            () = no_attempt, if give_up.is_some() => return Ended::Silent,
        }
    }
}

/// Ends a client on a thread of its own: it waits for its events to be delivered, without a limit.
pub(super) fn close(client: Arc<Client>) {
    let closing = thread::Builder::new().name("flags-close".into());
    if let Err(error) = closing.spawn(move || client.close()) {
        tracing::warn!(%error, "feature flags: a client was not closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: a build without TLS, or with two providers of its cryptography, where the first
    /// connection would panic; a client that gives up where nobody listens.
    #[tokio::test]
    async fn a_client_over_tls_can_be_made_and_tries_on() {
        let settings = LaunchDarklySettings {
            sdk_key: "sdk".into(),
            relay_proxy_url: "https://127.0.0.1:1".into(),
            start_wait: Duration::ZERO,
        };
        let (client, mut stream) = start(&settings).expect("a client");
        let lost = stream
            .wait_for(|now| matches!(now, Stream::Lost { .. }))
            .await;
        lost.expect("an attempt");
        assert!(!client.initialized());
        close(client);
    }

    /// Kills: a stalled client taken for one that tries; a refusal that is waited out.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_makes_no_attempt_has_ended() {
        let lost = || Stream::Lost {
            since: Instant::now(),
            why: "gone".into(),
        };
        let (state, mut stream) = watch::channel(lost());
        let began = Instant::now();
        assert_eq!(ended(&mut stream).await, Ended::Silent);
        assert_eq!(began.elapsed(), GIVEN_UP);
        // An attempt in between begins the time anew.
        state.send_replace(lost());
        let began = Instant::now();
        let trying = async {
            sleep(GIVEN_UP / 2).await;
            state.send_replace(Stream::Connecting);
            sleep(GIVEN_UP * 2).await;
            state.send_replace(Stream::Refused(StatusCode::UNAUTHORIZED));
        };
        let (why, ()) = tokio::join!(ended(&mut stream), trying);
        assert_eq!(why, Ended::Refused(StatusCode::UNAUTHORIZED));
        assert_eq!(began.elapsed(), GIVEN_UP * 5 / 2);
    }
}
