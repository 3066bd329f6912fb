//! Writes stored events out as JSON Lines, newest first, a page at a time.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use buzz_actors::ports::{EventStore, Progress, Purpose, Query, StoreError};
use buzz_protocol::Filter;

/// Events a page: between two pages the store may tidy up behind the export.
const PAGE: u64 = 10_000;

/// Why an export stopped early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output can't be written.
    #[error("writing the events failed: {0}")]
    Io(#[from] io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes the events that match `filter` (all without one, its limit included), one a line, and
/// says how many there were. `now`: seconds since the epoch; expired events are left out.
///
/// # Errors
/// When the output or the store fails.
pub fn export(
    store: &dyn EventStore,
    filter: Option<Filter>,
    now: u64,
    output: &mut dyn Write,
) -> Result<u64, ExportError> {
    let mut reader = store.reader(Purpose::History)?;
    let filter = filter.unwrap_or_default();
    let limit = filter.limit.unwrap_or(u64::MAX);
    let mut query = Query {
        filters: vec![(filter, limit)],
        now,
        committed: u64::MAX,
        before: None,
    };
    let mut written = Ok(());
    let mut count = 0;
    loop {
        let progress = reader.read(&mut query, &mut |json| {
            written = output
                .write_all(json.as_bytes())
                .and_then(|()| output.write_all(b"\n"));
            count += 1;
            if written.is_ok() && count % PAGE != 0 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        std::mem::replace(&mut written, Ok(()))?;
        if progress == Progress::Done {
            output.flush()?;
            return Ok(count);
        }
    }
}
