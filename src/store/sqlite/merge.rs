//! Merges many streams of positions, newest first, and reads the events only of those that come
//! out. Streams are read in pages that begin small and double, so that few entries are read in vain.

use std::{collections::BinaryHeap, ops::ControlFlow};

use diesel::{QueryResult, SqliteConnection};

use super::{
    reader::Pass,
    statement::{
        AllPositions, AtPositions, KeyPositions, OfKeys, Row, Statement, Value::Int, heads, list,
    },
};
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
    rest: std::ops::Range<i64>,
    page_size: usize,
}

pub(super) fn merge(connection: &mut SqliteConnection, pass: &mut Pass<'_>) -> QueryResult<()> {
    let mut streams = open(connection, pass)?;
    let heads = streams.iter().enumerate();
    let heads = heads.filter_map(|(index, stream)| Some((*stream.page.last()?, index)));
    let mut heads: BinaryHeap<(i64, usize)> = heads.collect();
    let mut positions: Vec<i64> = Vec::new();
    let mut last = i64::MAX;
    let mut rows = 1;
    loop {
        let left = pass.filters.iter().map(|filter| filter.left).max();
        let left = usize::try_from(left.unwrap_or(0)).unwrap_or(usize::MAX);
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
                stream.turn_page(connection)?;
            }
            heads.extend(stream.page.last().map(|position| (*position, index)));
        }
        if positions.is_empty() {
            return Ok(());
        }
        if offer(connection, &positions, pass)?.is_break() {
            return Ok(());
        }
    }
}

/// Opens the streams of all filters, each with its first position.
fn open(connection: &mut SqliteConnection, pass: &Pass<'_>) -> QueryResult<Vec<Stream>> {
    let mut streams = Vec::new();
    for (filter, pursuit) in pass.filters.iter().enumerate() {
        let bounds = &pursuit.plan.bounds;
        let stream = |key| Stream {
            filter,
            key,
            page: Vec::new(),
            rest: bounds.clone(),
            page_size: FIRST_PAGE,
        };
        match &pursuit.plan.source {
            Source::Nothing => {}
            Source::Time => {
                let mut time = stream(None);
                time.turn_page(connection)?;
                streams.push(time);
            }
            Source::Ids(keys) => {
                let mut ids = stream(None);
                for keys in keys.chunks(512) {
                    of_keys(connection, keys, |position| {
                        if bounds.contains(&position) {
                            ids.page.push(position);
                        }
                    })?;
                }
                ids.page.sort_unstable();
                ids.page.dedup();
                ids.rest = 0..0;
                streams.push(ids);
            }
            Source::Keys(keys) => {
                let first = streams.len();
                streams.extend(keys.iter().map(|key| stream(Some(*key))));
                for (chunk, keys) in keys.chunks(64).enumerate() {
                    let first = first + chunk * 64;
                    heads(connection, keys, bounds.end, |index, position| {
                        streams[first + index].page.extend(position);
                    })?;
                }
                for stream in &mut streams[first..] {
                    // Nothing above the bound at all, or nothing within.
                    match stream.page.last() {
                        Some(head) if *head >= bounds.start => stream.rest.end = *head,
                        _ => {
                            stream.page.clear();
                            stream.rest = 0..0;
                        }
                    }
                }
            }
        }
    }
    Ok(streams)
}

impl Stream {
    fn turn_page(&mut self, connection: &mut SqliteConnection) -> QueryResult<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let (high, low) = (Int(self.rest.end), Int(self.rest.start));
        let (page, size) = (&mut self.page, self.page_size);
        let take = |row: &Row<'_, '_>| {
            page.extend(row.int(0));
            if page.len() < size {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        match self.key {
            Some(key) => {
                let values = vec![Int(key), high, low];
                Statement::<KeyPositions, 0>::new(values).for_each(connection, take)?;
            }
            None => {
                let values = vec![high, low];
                Statement::<AllPositions, 0>::new(values).for_each(connection, take)?;
            }
        }
        page.reverse();
        self.rest.end = match page.first() {
            Some(lowest) if page.len() == size => *lowest,
            _ => self.rest.start,
        };
        self.page_size = (size * 2).min(LARGEST_PAGE);
        Ok(())
    }
}

fn offer(
    connection: &mut SqliteConnection,
    positions: &[i64],
    pass: &mut Pass<'_>,
) -> QueryResult<ControlFlow<()>> {
    let mut flow = ControlFlow::Continue(());
    list::<AtPositions>(connection, positions, |row| {
        flow = pass.offer(row);
        flow
    })?;
    Ok(flow)
}

fn of_keys(
    connection: &mut SqliteConnection,
    keys: &[i64],
    mut take: impl FnMut(i64),
) -> QueryResult<()> {
    list::<OfKeys>(connection, keys, |row| {
        row.int(1).into_iter().for_each(&mut take);
        ControlFlow::Continue(())
    })
}
