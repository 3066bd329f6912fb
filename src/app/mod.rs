//! The life of the relay: start, signals, and an end that loses nothing.

mod open_files;
mod start;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::{Duration, Instant},
};

use actix::{Addr, MailboxError, System};
use actix_web::dev::ServerHandle;
use anyhow::{Context, Result};
use buzz_actors::{
    flag_refresher::{self, FlagRefresher},
    registry::Drain,
    services::Services,
    writer,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::start::{start_admin, start_public, start_refresher, start_services};
use crate::{
    commands::open_store,
    config::{Config, Server},
    flags,
    http::admin::Admin,
    store, telemetry,
};

/// The end does not wait longer for a database that takes no writes.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// The end does not wait longer for flag events to be delivered, even where their delivery hangs.
const LAST_FLAGS: Duration = Duration::from_secs(2);

/// Runs the relay until SIGTERM or SIGINT.
///
/// # Errors
/// When the database can't be opened or an address is taken.
pub fn serve(config: Config) -> Result<()> {
    let traces = telemetry::start(&config.telemetry)?;
    let metrics_page = telemetry::install_metrics()?;
    // First, as opening may bring the file to this version's form.
    let _alone = store::serve_alone(&config.database.url).context("database.url")?;
    let store = open_store(&config)?;
    let flags = flags::start(&config.feature_flags)?;
    System::new().block_on(async move {
        let mut signals = Signals::install()?;
        let services = Arc::new(start_services(&config, store)?);
        let refresher = start_refresher(&config, flags, &services).await;
        let draining = Arc::new(AtomicBool::new(false));
        let admin = Admin {
            services: Arc::clone(&services),
            refresher: refresher.clone(),
            metrics: metrics_page.clone(),
            draining: Arc::clone(&draining),
        };
        let (admin_server, admin_addr) = start_admin(&config, admin)?;
        let (public_server, public_addr) =
            start_public(&config, Arc::clone(&services), Arc::clone(&draining))?;
        tracing::info!(
            listen = %public_addr, admin = %admin_addr, url = config.server.url,
            database = crate::config::mask_password(&config.database.url), "relay is up"
        );
        let defaults = Server::default();
        if config.server.url == defaults.url && config.server.listen != defaults.listen {
            tracing::warn!(
                url = config.server.url,
                "server.listen was changed and server.url was not: logins and REST calls that name another URL are refused"
            );
        }
        // Histograms are folded up now and then, not at every scrape alone.
        let upkeep = actix_web::rt::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(5));
            loop {
                tick.tick().await;
                metrics_page.run_upkeep();
            }
        });
        signals.wait().await;
        tokio::select! {
            () = shut_down(&config, &services, &draining, &public_server, &refresher) => {}
            // What was answered is committed: nothing is lost by this.
            () = signals.wait() => {}
        }
        admin_server.stop(false).await;
        upkeep.abort();
        anyhow::Ok(())
    })?;
    traces.shutdown();
    Ok(())
}

/// What ends the relay. Made before it says that it is up: from then on it may be ended.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Sent by a terminal that closes, or by somebody who wants settings read anew: no reason to
    /// cut every client.
    hangup: Signal,
}

impl Signals {
    fn install() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) {
        let name = loop {
            tokio::select! {
                _ = self.terminate.recv() => break "SIGTERM",
                _ = self.interrupt.recv() => break "SIGINT",
                _ = self.hangup.recv() => tracing::warn!(
                    "SIGHUP: settings are read at the start only; the relay runs on"
                ),
            }
        };
        tracing::info!(
            signal = name,
            "shutting down; a second signal ends it at once"
        );
    }
}

async fn shut_down(
    config: &Config,
    services: &Services,
    draining: &AtomicBool,
    public: &ServerHandle,
    refresher: &Addr<FlagRefresher>,
) {
    // New sockets are told 503; those that are open are closed one by one, what is in work answered.
    draining.store(true, Ordering::Release);
    let began = Instant::now();
    if services
        .registry
        .send(Drain {
            over: config.server.drain,
        })
        .await
        .is_err()
    {
        tracing::error!("the connection registry is gone: sockets are closed all at once");
    }
    // The sockets are closed: what is still in work are REST calls.
    let left = config.server.drain.saturating_sub(began.elapsed());
    if actix_web::rt::time::timeout(left, services.shared.frames.all_back())
        .await
        .is_err()
    {
        tracing::warn!("calls are in work at the end; they get no answer");
    }
    match services
        .writer
        .send(writer::Flush)
        .timeout(LAST_WRITES)
        .await
    {
        Ok(_) => {}
        Err(MailboxError::Timeout) => tracing::error!(
            "the database does not take the last events; they stay without an answer"
        ),
        Err(MailboxError::Closed) => tracing::error!("the writer is gone"),
    }
    // The answers go out, for as long as the server waits at its end.
    public.stop(true).await;
    // On the refresher's thread, which is left behind where the source does not keep to its time.
    let within = LAST_FLAGS * 9 / 10;
    if let Err(error) = refresher
        .send(flag_refresher::Flush { within })
        .timeout(LAST_FLAGS)
        .await
    {
        tracing::warn!(%error, "feature flags: the last events were not delivered");
    }
    tracing::info!("relay is down");
}
