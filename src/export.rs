//! Writes stored events out as JSON Lines, newest first, a page at a time.

use std::{
    io::{self, Write},
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use buzz_actors::ports::{EventStore, Progress, Purpose, Query, StoreError};
use buzz_protocol::Filter;

/// Bytes of a page. It is read as a whole before it is written: whoever takes the output may pause,
/// and the store can't tidy up behind a read that is held open.
const PAGE_BYTES: usize = 1024 * 1024;

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
/// says how many there were. `now`: seconds since the epoch; expired events are left out. Ends early,
/// between two pages, where it `is_to_end`.
///
/// # Errors
/// When the output or the store fails.
pub fn export(
    store: &dyn EventStore,
    filter: Option<Filter>,
    now: u64,
    output: &mut dyn Write,
    is_to_end: &AtomicBool,
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
    let mut count = 0;
    loop {
        let mut page = Vec::new();
        let progress = reader.read(&mut query, &mut |json| {
            page.extend_from_slice(json.as_bytes());
            page.push(b'\n');
            count += 1;
            if page.len() < PAGE_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        output.write_all(&page)?;
        if progress == Progress::Done || is_to_end.load(Ordering::Relaxed) {
            output.flush()?;
            return Ok(count);
        }
    }
}
