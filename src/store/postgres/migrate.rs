//! Makes the tables, once, however many relays start at the same time.

use std::{
    thread,
    time::{Duration, Instant},
};

use buzz_actors::ports::StoreError;
use diesel_async::{AsyncMigrationHarness, AsyncPgConnection, SimpleAsyncConnection};
use diesel_migrations::MigrationHarness;
use tokio::runtime::Builder;

use super::{
    identity::{self, MIGRATIONS},
    server::Server,
};
use crate::store::fault::Fault;

/// Held by the one relay that migrates; the number is the lock's name.
const LOCK: &str = "SELECT pg_advisory_lock(7238211000)";

const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// Applies what is missing; tries up to `start_wait` where the server is not there yet.
pub(super) fn migrate(server: &Server, start_wait: Duration) -> Result<(), StoreError> {
    let started = Instant::now();
    let mut said: Option<Instant> = None;
    loop {
        match migrate_once(server) {
            Err(StoreError::Unavailable(why)) if started.elapsed() < start_wait => {
                if said.is_none_or(|said| said.elapsed() >= Duration::from_secs(1)) {
                    tracing::warn!(%why, "the database is waited for");
                    said = Some(Instant::now());
                }
                thread::sleep(BETWEEN_ATTEMPTS);
            }
            done => return done,
        }
    }
}

fn migrate_once(server: &Server) -> Result<(), StoreError> {
    // The harness needs a runtime with threads of its own.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| server.unavailable(error))?;
    let migrated = runtime.block_on(async {
        let (client, _driver) = server.connect().await?;
        identity::check_encoding(server, &client).await?;
        identity::check_sessions(server, &client).await?;
        let connection = AsyncPgConnection::try_from(client).await;
        let mut connection = connection.map_err(|error| server.unavailable(error))?;
        let locked = connection.batch_execute(LOCK).await;
        locked.map_err(|error| server.unavailable(error))?;
        identity::check_migrations(server, &mut connection).await?;
        let mut harness = AsyncMigrationHarness::new(connection);
        let migrated = harness.run_pending_migrations(MIGRATIONS).map(drop);
        // The lock ends with the session.
        migrated
            .map_err(|error| Fault::Failed.at(server.shown(), format!("migration failed: {error}")))
    });
    runtime.shutdown_background();
    migrated
}
