//! Stub.
use crate::config::Admission;
use buzz_actors::ports::SharedBudget;
use std::sync::Arc;
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    redis::Client::open(url)
        .map(|_| ())
        .map_err(|error| error.to_string())
}
pub(crate) fn open(config: &Admission) -> anyhow::Result<Option<Arc<dyn SharedBudget>>> {
    anyhow::ensure!(config.shared_url().is_none(), "admission.backend: not yet");
    Ok(None)
}
