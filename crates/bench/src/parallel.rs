//! Work over a range of numbers on every core, in order, with a progress note.

use std::{
    io::{IsTerminal, stderr},
    ops::Range,
    thread,
    time::{Duration, Instant},
};

/// So many items are made before the progress note can change.
const CHUNK: u64 = 20_000;

/// Calls `make` for each number on every core and hands the results to `take` in order, chunk by
/// chunk; says how far it is on stderr when it takes longer than a second or two.
///
/// # Errors
/// The first of `take`.
pub(crate) fn each_chunk<T: Send, E>(
    what: &str,
    range: Range<u64>,
    make: impl Fn(u64) -> T + Sync,
    mut take: impl FnMut(Vec<T>) -> Result<(), E>,
) -> Result<(), E> {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let total = range.end.saturating_sub(range.start);
    let every = Duration::from_secs(if stderr().is_terminal() { 1 } else { 10 });
    let mut noted = Instant::now();
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + CHUNK);
        let share = (end - at).div_ceil(threads).max(1);
        let parts: Vec<Vec<T>> = thread::scope(|scope| {
            let make = &make;
            let workers: Vec<_> = (0..threads)
                .map(|n| (at + n * share).min(end)..(at + (n + 1) * share).min(end))
                .map(|part| scope.spawn(move || part.map(make).collect()))
                .collect();
            let join = |worker: thread::ScopedJoinHandle<'_, Vec<T>>| match worker.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            workers.into_iter().map(join).collect()
        });
        for part in parts {
            take(part)?;
        }
        at = end;
        if noted.elapsed() >= every {
            noted = Instant::now();
            eprintln!("{what}: {} of {total}", at - range.start);
        }
    }
    Ok(())
}

/// [`each_chunk`] into one list.
pub(crate) fn collect<T: Send>(
    what: &str,
    range: Range<u64>,
    make: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let mut all = Vec::with_capacity(range.end.saturating_sub(range.start) as usize);
    let Ok(()) = each_chunk(what, range, make, |part| {
        all.extend(part);
        Ok::<(), std::convert::Infallible>(())
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_across_threads_and_chunks() {
        let range = 5..(2 * CHUNK + 13);
        assert!(collect("test", range.clone(), |n| n).into_iter().eq(range));
        assert!(collect("test", 3..3, |n| n).is_empty());
    }
}
