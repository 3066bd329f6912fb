//! Merges many streams of positions, newest first, and reads the events only of those that come
//! out. Streams are read in pages that begin small and double, so that few entries are read for nothing.

use std::{
    collections::BinaryHeap,
    ops::{ControlFlow, Range},
};

use super::{Pass, Tables};
use crate::store::plan::Source;

const FIRST_PAGE: usize = 4;
const LARGEST_PAGE: usize = 256;

/// Events read at once.
const MOST_ROWS: usize = 128;

/// Positions of one key, of all events, or of a list of ids.
struct Stream {
    /// The filter that it belongs to.
    filter: usize,
    key: Option<i64>,
    /// Ascending, so that the next one is at the end.
    page: Vec<i64>,
    /// Bounds of what has not been read; empty at the end.
    rest: Range<i64>,
    page_size: usize,
}

pub(super) fn merge<T: Tables>(tables: &mut T, pass: &mut Pass<'_>) -> Result<(), T::Error> {
    let mut streams = open(tables, pass)?;
    let heads = streams.iter().enumerate();
    let heads = heads.filter_map(|(index, stream)| Some((*stream.page.last()?, index)));
    let mut heads: BinaryHeap<(i64, usize)> = heads.collect();
    let mut positions: Vec<i64> = Vec::new();
    let mut last = i64::MAX;
    let mut rows = 1;
    loop {
        let left = usize::try_from(pass.wanted()).unwrap_or(usize::MAX);
        // At first what is wanted; more where much of it does not match.
        rows = left.max(rows * 2).min(MOST_ROWS);
        positions.clear();
        while positions.len() < rows
            && let Some((position, index)) = heads.pop()
        {
            let stream = &mut streams[index];
            if pass.filters[stream.filter].left == 0 {
                continue;
            }
            if position != last {
                positions.push(position);
                last = position;
            }
            stream.page.pop();
            if stream.page.is_empty() {
                stream.turn_page(tables)?;
            }
            heads.extend(stream.page.last().map(|position| (*position, index)));
        }
        if positions.is_empty() || pass.is_late() {
            return Ok(());
        }
        let mut flow = ControlFlow::Continue(());
        tables.at_positions(&positions, |row| {
            flow = pass.offer(row);
            flow
        })?;
        if flow.is_break() {
            return Ok(());
        }
    }
}

/// Opens the streams of all filters, each with its first positions.
fn open<T: Tables>(tables: &mut T, pass: &Pass<'_>) -> Result<Vec<Stream>, T::Error> {
    let mut streams = Vec::new();
    for (filter, cursor) in pass.filters.iter().enumerate() {
        let bounds = &cursor.plan.bounds;
        let stream = |key| Stream {
            filter,
            key,
            page: Vec::new(),
            rest: bounds.clone(),
            page_size: FIRST_PAGE,
        };
        match &cursor.plan.source {
            Source::Nothing => {}
            Source::Time => {
                let mut time = stream(None);
                time.turn_page(tables)?;
                streams.push(time);
            }
            Source::Ids(keys) => {
                let mut ids = stream(None);
                tables.of_keys(keys, |position| {
                    if bounds.contains(&position) {
                        ids.page.push(position);
                    }
                })?;
                ids.page.sort_unstable();
                ids.page.dedup();
                ids.rest = 0..0;
                streams.push(ids);
            }
            Source::Keys(keys) => {
                let first = streams.len();
                streams.extend(keys.iter().map(|key| stream(Some(*key))));
                tables.heads(keys, bounds, |index, position| {
                    streams[first + index].page.push(position);
                })?;
                for stream in &mut streams[first..] {
                    stream.read_on_behind(T::HEADS);
                }
            }
        }
    }
    Ok(streams)
}

impl Stream {
    fn turn_page<T: Tables>(&mut self, tables: &mut T) -> Result<(), T::Error> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let (page, size) = (&mut self.page, self.page_size);
        tables.positions(self.key, &self.rest, size, |position| page.push(position))?;
        self.read_on_behind(size);
        self.page_size = (size * 2).min(LARGEST_PAGE);
        Ok(())
    }

    /// After a page that came newest first: turns it round, and goes on behind it if it was full.
    fn read_on_behind(&mut self, full: usize) {
        let lowest = self.page.last().copied();
        self.rest.end = match lowest {
            Some(lowest) if self.page.len() >= full => lowest.max(self.rest.start),
            _ => self.rest.start,
        };
        self.page.retain(|position| *position >= self.rest.start);
        self.page.reverse();
    }
}
