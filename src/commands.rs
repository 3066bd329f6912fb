//! The subcommands that work on the database beside a running relay or without one, and how all
//! of them open it.

use std::{
    fs::File,
    io::Write,
    os::fd::AsFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use buzz_actors::ports::EventStore;

use crate::{
    config::Config,
    export::{self, ExportError},
    import::{self, ImportOptions},
    signals, store,
};

pub(crate) fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

pub(crate) fn open_store(config: &Config) -> Result<Arc<dyn EventStore>> {
    open(&config.store())
}

/// For commands that only look: in a wrong directory, an empty database would be no answer.
///
/// # Errors
/// When there is no database, or it can't be opened.
pub(crate) fn open_existing_store(config: &Config) -> Result<Arc<dyn EventStore>> {
    open_existing(&config.store())
}

fn open_existing(options: &store::Options) -> Result<Arc<dyn EventStore>> {
    if let Some(path) = options.url.strip_prefix("sqlite://") {
        anyhow::ensure!(
            Path::new(path).exists(),
            "database.url: {path}: no such file"
        );
    }
    open(options)
}

fn open(options: &store::Options) -> Result<Arc<dyn EventStore>> {
    let opened = store::open(options);
    if store::is_postgres(&options.url) {
        opened.context(NoServer)
    } else {
        opened.context("database.url")
    }
}

/// A database server that can't be reached or used, which the setting names: like a wrong one.
#[derive(Debug)]
pub(crate) struct NoServer;

impl std::fmt::Display for NoServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("database.url")
    }
}

/// Applies the migrations.
///
/// # Errors
/// When the database can't be opened or migrated.
pub fn migrate(config: &Config) -> Result<()> {
    open_store(config)?;
    let database = crate::values::mask_password(&config.database.url);
    Ok(writeln!(std::io::stdout(), "{database}: up to date")?)
}

/// How long one page of an export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Rejected lines whose reason is shown; the rest is counted.
const REASONS_SHOWN: u64 = 20;

/// Stores the events of a JSON Lines file, or of standard input where it is `-`; prints a summary.
///
/// # Errors
/// When the file can't be read or the database fails.
pub fn import(config: &Config, file: &Path) -> Result<()> {
    let store = open_store(config)?;
    let settings = config.settings();
    let mut options = ImportOptions {
        limits: settings.limits,
        now: unix_now(),
        max_line_bytes: settings.max_frame_bytes,
        size_bytes: None,
        reasons_shown: REASONS_SHOWN,
    };
    let mut reasons = std::io::stderr();
    let is_to_end = signals::ask_to_end()?;
    let input = if file == Path::new("-") {
        // Not the standard library's: its lock stays with one thread.
        File::from(std::io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        let opened = File::open(file).with_context(|| file.display().to_string())?;
        let meta = opened.metadata().ok().filter(|meta| meta.is_file());
        options.size_bytes = meta.map(|meta| meta.len());
        opened
    };
    let imported = import::import(input, &*store, &options, &mut reasons, &is_to_end);
    let imported = imported.with_context(|| file.display().to_string())?;
    writeln!(std::io::stdout(), "{imported}")?;
    let nothing = imported.accepted + imported.duplicate == 0 && imported.rejected > 0;
    anyhow::ensure!(
        !ended(&is_to_end),
        "{ENDED}: what was read before is stored"
    );
    anyhow::ensure!(!nothing, "every line was rejected");
    Ok(())
}

/// Writes stored events to standard output as JSON Lines.
///
/// # Errors
/// When the filter is wrong, or the output or the database fails.
pub fn export(config: &Config, filter: Option<&str>) -> Result<()> {
    let filter = filter
        .map(serde_json::from_str)
        .transpose()
        .context("--filter")?;
    let options = store::Options {
        // No client waits for a page of it.
        statement_timeout: EXPORT_TIMEOUT,
        ..config.store()
    };
    let store = open_existing(&options)?;
    let is_to_end = signals::ask_to_end()?;
    end_though_blocked(Arc::clone(&is_to_end));
    let mut output = std::io::stdout().lock();
    match export::export(&*store, filter, unix_now(), &mut output, &is_to_end) {
        // The reader has seen enough.
        Err(ExportError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error.into()),
        Ok(count) => {
            eprintln!("exported {count}");
            anyhow::ensure!(!ended(&is_to_end), ENDED);
            Ok(())
        }
    }
}

const ENDED: &str = "a signal ended it";

fn ended(is_to_end: &AtomicBool) -> bool {
    is_to_end.load(Ordering::Relaxed)
}

/// Ends the process soon after a signal where its output is not taken: a write that waits does not
/// notice the signal.
fn end_though_blocked(is_to_end: Arc<AtomicBool>) {
    const GRACE: Duration = Duration::from_millis(500);
    thread::spawn(move || {
        while !ended(&is_to_end) {
            thread::sleep(GRACE / 5);
        }
        thread::sleep(GRACE);
        eprintln!("error: {ENDED} while its output was not taken");
        std::process::exit(1);
    });
}
