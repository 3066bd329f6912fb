//! The provider `launchdarkly`: the service's streaming SDK, on its own runtime. None of it runs
//! unless it is chosen. Values stay in force while the service is away; before the first ones
//! no flag has a value.

mod connection;
mod transport;

use std::{collections::HashSet, sync::Arc, sync::mpsc, time::Duration};

use anyhow::{Result, anyhow};
use buzz_actors::flags::{EvaluationContext, FlagError, FlagSource, IntegerFlag};
use launchdarkly_server_sdk::{Client, Context, ContextBuilder, EvalError, Reason};
use serde_json::Value;
use tokio::{
    runtime::Runtime,
    sync::{oneshot, watch},
};

use self::connection::{Connection, close};
use crate::flags::settings::LaunchDarklySettings;

/// See the module.
pub(super) struct LaunchDarkly {
    /// The client whose values are in force; none before the first values.
    current: watch::Receiver<Option<Arc<Client>>>,
    context: Context,
    /// Flags whose value was reported as no whole number.
    mistyped: HashSet<&'static str>,
    /// Taken at the drop alone.
    runtime: Option<Runtime>,
}

impl LaunchDarkly {
    /// Connects, and waits for the first values, or for the service's refusal, for `start_wait` at
    /// most. Goes on connecting afterwards, whatever came of it.
    pub(super) fn start(
        settings: &LaunchDarklySettings,
        context: EvaluationContext,
    ) -> Result<Self> {
        let context = ContextBuilder::new(context.key)
            .kind(context.kind)
            .build()
            .map_err(|why| anyhow!(why))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("flags")
            .enable_all()
            .build()?;
        let (current, values) = watch::channel(None);
        let (decided, decision) = oneshot::channel();
        let connection = Connection {
            settings: settings.clone(),
            current,
            decided: Some(decided),
        };
        runtime.spawn(connection.keep());
        let start_wait = settings.start_wait;
        let waited = runtime.block_on(async { tokio::time::timeout(start_wait, decision).await });
        if waited.is_err() {
            tracing::warn!(
                start_wait = %humantime::format_duration(start_wait),
                "feature flags: no values from the service yet; the relay starts on defaults"
            );
        }
        Ok(Self {
            current: values,
            context,
            mistyped: HashSet::new(),
            runtime: Some(runtime),
        })
    }

    fn client(&self) -> Option<Arc<Client>> {
        self.current.borrow().clone()
    }
}

impl FlagSource for LaunchDarkly {
    fn provider(&self) -> &'static str {
        "launchdarkly"
    }

    fn integer(&mut self, flag: &IntegerFlag) -> Result<Option<i64>, FlagError> {
        let Some(client) = self.client() else {
            return Ok(None);
        };
        let found = client.json_variation_detail(&self.context, flag.key, Value::Null);
        let value = match found.reason {
            Reason::Error {
                error: EvalError::FlagNotFound,
            } => Value::Null,
            Reason::Error { error } => return Err(FlagError(format!("{error:?}"))),
            _ => found.value.unwrap_or_default(),
        };
        let number = whole_number(&value);
        if number.is_some() || value.is_null() {
            self.mistyped.remove(flag.key);
        } else if self.mistyped.insert(flag.key) {
            tracing::warn!(flag = flag.key, "not a whole number; the flag has no value");
        }
        Ok(number)
    }

    fn ready(&self) -> bool {
        self.current.borrow().is_some()
    }

    fn flush(&mut self, within: Duration) {
        let (Some(client), Some(runtime)) = (self.client(), &self.runtime) else {
            return;
        };
        let (done, wait) = mpsc::channel();
        let flushed = Arc::clone(&client);
        runtime.spawn(async move {
            let _ = done.send(flushed.flush_blocking(within).await);
        });
        if !wait.recv_timeout(within).unwrap_or(false) {
            tracing::warn!("feature flags: the last events were not delivered");
        }
        close(client);
    }
}

impl Drop for LaunchDarkly {
    fn drop(&mut self) {
        // Not waited for: a request to the service may hang.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The SDK has all numbers as floating point, and its own conversion to an integer makes 3 of 3.7.
fn whole_number(value: &Value) -> Option<i64> {
    /// Whole numbers above have neighbours that can't be told from them.
    const MAX: f64 = 9_007_199_254_740_991.0;
    let number = value.as_f64()?;
    (number.fract() == 0.0 && number.abs() <= MAX).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Kills: the SDK's truncation; numbers read from strings; a default for what is mistyped.
    #[test]
    fn only_whole_numbers_are_values() {
        for (value, number) in [
            (json!(3.0), Some(3)),
            (json!(3), Some(3)),
            (json!(0.0), Some(0)),
            (json!(-2.0), Some(-2)),
            (json!(3.7), None),
            (json!("3"), None),
            (json!(true), None),
            (json!([3]), None),
            (json!({"3": 3}), None),
            (json!(1e300), None),
            (Value::Null, None),
        ] {
            assert_eq!(whole_number(&value), number, "{value}");
        }
    }
}
