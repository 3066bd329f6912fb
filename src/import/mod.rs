//! Brings events in as JSON Lines: read and stored on the calling thread, verified on all cores,
//! in the order of the file. A few chunks of lines are under way at once, whatever the file's size.
//! A chunk ends where the input has nothing more to give at once: what has come is stored before
//! the next line is waited for.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use buzz_actors::ports::{EventStore, Outcome, StoreError, StoreWriter};
use buzz_protocol::{
    Event, KeyCache, Limits, VerifiedEvent,
    kind::{self, Class},
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::text::BYTE_ORDER_MARK;

/// Lines verified, and events stored, at once.
const CHUNK_LINES: usize = 256;
/// Bytes asked of the input at once: more than a chunk's, where a file has so much to give.
const READ_BYTES: usize = 512 * 1024;
/// At the end that somebody asked for, a chunk that is being read is waited for this long.
const LAST_READ: Duration = Duration::from_millis(200);

/// What an import asks of its events.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Bounds on tags and times.
    pub limits: Limits,
    /// Seconds since the epoch.
    pub now: u64,
    /// Longer lines are rejected, and never held in memory.
    pub max_line_bytes: usize,
    /// The input's size, for the progress bar.
    pub size_bytes: Option<u64>,
    /// Reasons for a rejection that are written; the rest is counted.
    pub reasons_shown: u64,
}

/// How an import ended; its text is the summary line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Events that were new.
    pub accepted: u64,
    /// Events that were there before.
    pub duplicate: u64,
    /// Lines that are no valid event, and events that were deleted or replaced before.
    pub rejected: u64,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.accepted + self.duplicate + self.rejected;
        let rate = events as f64 / self.took.as_secs_f64().max(1e-6);
        let Self {
            accepted,
            duplicate,
            rejected,
            ..
        } = self;
        write!(
            f,
            "accepted {accepted}, duplicate {duplicate}, rejected {rejected}, {rate:.0} events/s"
        )
    }
}

/// Why an import stopped early. What was stored before stays.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input can't be read, or a reason can't be written.
    #[error("reading the events failed: {0}")]
    Io(#[from] io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stores the events of `input`, one a line; writes why lines are rejected to `reasons`. Where it
/// `is_to_end`, what was read is stored and nothing more is read.
///
/// # Errors
/// When the input or the store fails.
pub fn import(
    input: impl Read + Send + 'static,
    store: &dyn EventStore,
    options: &ImportOptions,
    reasons: &mut dyn Write,
    is_to_end: &Arc<AtomicBool>,
) -> Result<Imported, ImportError> {
    let mut writer = store.writer()?;
    let mut sink = Sink {
        // Not a new number: a relay that runs on the same database shows its clients only what
        // was committed up to its own last batch.
        batch: writer.last_batch()?,
        writer: &mut *writer,
        imported: Imported::default(),
        options,
        reasons,
        bar: progress_bar(options.size_bytes),
    };
    let started = Instant::now();
    let chunks = start_reading(input, options, is_to_end);
    loop {
        match chunks.recv_timeout(LAST_READ) {
            Ok(FromReader::Chunk(chunk)) => {
                let chunk = chunk.recv();
                sink.take(chunk.map_err(|_| io::Error::other("a verifier panicked"))?)?;
            }
            Ok(FromReader::End(read)) => break read?,
            // The reader waits for input: it is left behind.
            Err(RecvTimeoutError::Timeout) if is_to_end.load(Ordering::Relaxed) => break,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the reader panicked").into());
            }
        }
    }
    sink.bar.finish_and_clear();
    sink.imported.took = started.elapsed();
    Ok(sink.imported)
}

/// What comes from the thread that reads.
enum FromReader {
    /// The next chunk, once it is verified.
    Chunk(Receiver<Chunk>),
    /// There is nothing more.
    End(io::Result<()>),
}

/// Starts a thread that reads and threads that verify; gives the chunks in the input's order. The
/// threads are not waited for: one may be waiting for input that never comes.
fn start_reading(
    input: impl Read + Send + 'static,
    options: &ImportOptions,
    is_to_end: &Arc<AtomicBool>,
) -> Receiver<FromReader> {
    let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (jobs, job_queue) = sync_channel::<Job>(workers);
    let job_queue = Arc::new(Mutex::new(job_queue));
    for _ in 0..workers {
        let (job_queue, options) = (Arc::clone(&job_queue), options.clone());
        thread::spawn(move || work(&job_queue, &options));
    }
    let (send, chunks) = sync_channel(2 * workers);
    let (max_line_bytes, is_to_end) = (options.max_line_bytes, Arc::clone(is_to_end));
    thread::spawn(move || {
        let mut input = BufReader::with_capacity(READ_BYTES, input);
        let mut number = 0;
        let read = loop {
            if is_to_end.load(Ordering::Relaxed) {
                break Ok(());
            }
            let lines = match read_lines(&mut input, &mut number, max_line_bytes) {
                Ok(lines) if lines.is_empty() => break Ok(()),
                Ok(lines) => lines,
                Err(error) => break Err(error),
            };
            let (done, chunk) = sync_channel(1);
            // Both fail when nobody takes chunks any more.
            if send.send(FromReader::Chunk(chunk)).is_err()
                || jobs.send(Job { lines, done }).is_err()
            {
                return;
            }
        };
        let _ = send.send(FromReader::End(read));
    });
    chunks
}

struct Line {
    number: u64,
    bytes: u64,
    /// `None` where it is too long.
    text: Option<Vec<u8>>,
}

struct Job {
    lines: Vec<Line>,
    done: SyncSender<Chunk>,
}

#[derive(Default)]
struct Chunk {
    bytes: u64,
    /// The line number of each event.
    numbers: Vec<u64>,
    events: Vec<Arc<VerifiedEvent>>,
    rejected: Vec<(u64, String)>,
}

/// Reads the lines of one chunk that are not blank; none at the end. Does not wait for more where it
/// has some.
fn read_lines<R: Read>(
    input: &mut BufReader<R>,
    number: &mut u64,
    max: usize,
) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    while lines.is_empty()
        || (lines.len() < CHUNK_LINES && memchr::memchr(b'\n', input.buffer()).is_some())
    {
        let Some((mut text, bytes)) = read_line(input, max)? else {
            break;
        };
        *number += 1;
        if let Some(text) = text.as_mut().filter(|_| *number == 1)
            && text.starts_with(BYTE_ORDER_MARK)
        {
            text.drain(..BYTE_ORDER_MARK.len());
        }
        if text
            .as_ref()
            .is_none_or(|text| !text.trim_ascii().is_empty())
        {
            lines.push(Line {
                number: *number,
                bytes,
                text,
            });
        }
    }
    Ok(lines)
}

/// Reads one line: its text, unless that is longer than `max`, and its length.
fn read_line(input: &mut impl BufRead, max: usize) -> io::Result<Option<(Option<Vec<u8>>, u64)>> {
    let (mut text, mut bytes) = (Some(Vec::new()), 0);
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        if buffer.is_empty() {
            return Ok((bytes > 0).then_some((text, bytes)));
        }
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        match &mut text {
            Some(held) if held.len() + part.len() <= max => held.extend_from_slice(part),
            _ => text = None,
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        bytes += used as u64;
        if end.is_some() {
            return Ok(Some((text, bytes)));
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, options: &ImportOptions) {
    let mut keys = KeyCache::default();
    loop {
        // The lock is held while waiting: the next worker waits for the lock instead.
        let job = jobs.lock().map(|jobs| jobs.recv());
        let Ok(Ok(Job { lines, done })) = job else {
            return;
        };
        let mut chunk = Chunk::default();
        for line in lines {
            chunk.bytes += line.bytes;
            match verify(line.text, options, &mut keys) {
                Ok(event) => {
                    chunk.numbers.push(line.number);
                    chunk.events.push(Arc::new(event));
                }
                Err(reason) => chunk.rejected.push((line.number, reason)),
            }
        }
        // Fails when the import has ended with an error.
        let _ = done.send(chunk);
    }
}

fn verify(
    text: Option<Vec<u8>>,
    options: &ImportOptions,
    keys: &mut KeyCache,
) -> Result<VerifiedEvent, String> {
    let text = text.ok_or_else(|| format!("longer than {} bytes", options.max_line_bytes))?;
    let event: Event = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if kind::class(event.kind) == Class::Ephemeral {
        return Err(format!("kind {} is ephemeral: never stored", event.kind));
    }
    let checked = options.limits.check_event(&event, options.now);
    checked.map_err(|refusal| refusal.to_string())?;
    VerifiedEvent::verify_with(event, keys).map_err(|error| error.to_string())
}

struct Sink<'a> {
    writer: &'a mut dyn StoreWriter,
    batch: u64,
    imported: Imported,
    options: &'a ImportOptions,
    reasons: &'a mut dyn Write,
    bar: ProgressBar,
}

impl Sink<'_> {
    fn take(&mut self, chunk: Chunk) -> Result<(), ImportError> {
        for (number, reason) in chunk.rejected {
            self.reject(number, &reason)?;
        }
        let outcomes = self.writer.store(&chunk.events, self.batch)?;
        for (number, outcome) in chunk.numbers.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Stored => self.imported.accepted += 1,
                Outcome::Duplicate => self.imported.duplicate += 1,
                Outcome::Superseded => self.reject(number, "a newer version is stored")?,
                Outcome::NoRoom => self.reject(number, "no room among the ids of its second")?,
                Outcome::Deleted => self.reject(number, "deleted by its author")?,
            }
        }
        self.bar.inc(chunk.bytes);
        Ok(())
    }

    fn reject(&mut self, number: u64, reason: &str) -> io::Result<()> {
        self.imported.rejected += 1;
        let shown = self.options.reasons_shown;
        let reasons = &mut *self.reasons;
        match self.imported.rejected {
            count if count <= shown => {
                let write = || writeln!(reasons, "line {number}: {reason}");
                self.bar.suspend(write)
            }
            count if count == shown + 1 => {
                let write = || writeln!(reasons, "further rejections are only counted");
                self.bar.suspend(write)
            }
            _ => Ok(()),
        }
    }
}

/// Draws nothing where standard error is no terminal.
fn progress_bar(size_bytes: Option<u64>) -> ProgressBar {
    let bar = match size_bytes {
        Some(size) => ProgressBar::new(size),
        None => ProgressBar::no_length(),
    };
    let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests;
