//! Where feature flags come from: one provider, chosen at the start, for the life of the process.
//! Each is a [`FlagSource`]; the flag refresher asks it every `feature_flags.refresh`.
//!
//! Flags may only choose between equivalent implementations or tighten an operational limit whose
//! shedding stays retryable. So the worst outcome of a failing provider is the limit without flags.
//! Values in force stay in force while a provider can't be reached.

mod environment;
mod file;
mod fixed;
mod launchdarkly;
mod settings;

use std::path::Path;

use anyhow::{Context, Result};
use buzz_actors::flags::{EvaluationContext, FlagSource};

pub use self::settings::{FeatureFlags, LaunchDarklySettings, Provider};
use self::{
    environment::EnvironmentFlags, file::FileFlags, fixed::FixedFlags, launchdarkly::LaunchDarkly,
};

/// Starts the provider that is chosen. Waits for a service for `start_wait` at most. Call it
/// outside of any runtime.
///
/// # Errors
/// When the system gives no threads, or no transport for a service. A service that can't be reached
/// or a file that is not there is no error: the relay starts on defaults.
pub fn start(settings: &FeatureFlags) -> Result<Box<dyn FlagSource>> {
    Ok(match settings.provider {
        Provider::Static => {
            environment::warn_of_unread(std::env::vars_os());
            Box::new(FixedFlags)
        }
        Provider::Environment => Box::new(EnvironmentFlags::read(std::env::vars_os())),
        Provider::File => Box::new(FileFlags::new(Path::new(&settings.file))),
        Provider::LaunchDarkly => {
            let context = EvaluationContext::for_process();
            let started = LaunchDarkly::start(&settings.launchdarkly, context);
            Box::new(started.context("feature_flags.launchdarkly")?)
        }
    })
}
