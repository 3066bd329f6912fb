//! A connection that reads: walks one stream of rows where a query needs no more, else merges
//! several (`merge`). Nothing is held open between two calls.

use std::ops::ControlFlow;

use buzz_actors::ports::{Progress, Query, Role, StoreError, StoreReader};
use buzz_protocol::Pubkey;
use diesel::SqliteConnection;

use super::{
    Error, Held, SqliteStore, members, merge,
    statement::{BeginRead, LastBatch, Row, Statement, Value::Int, WalkKey, WalkTime},
    transaction,
};
use crate::store::{
    batch::is_expired,
    check::Check,
    plan::{self, Plan, Source},
};

/// From this many streams on, the newest events are tried first: finding the head of each stream
/// costs about as much as reading as many events.
const WALK_FIRST: usize = 32;

pub(super) struct SqliteReader {
    held: Held,
}

impl SqliteReader {
    pub(super) fn open(store: SqliteStore) -> Result<Self, StoreError> {
        let held = Held::open(store, SqliteStore::connect_reader)?;
        Ok(Self { held })
    }
}

impl StoreReader for SqliteReader {
    fn read(
        &mut self,
        query: &mut Query,
        row: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Progress, StoreError> {
        let mut pass = Pass::new(query, row);
        let result = self.held.with(|connection| read(connection, &mut pass));
        // Also after an error, so that a further call repeats nothing.
        let (before, left, paused) = pass.end();
        for (filter, left) in query.filters.iter_mut().zip(left) {
            filter.1 = left;
        }
        query.before = before;
        result.map(|()| {
            if paused {
                Progress::Paused
            } else {
                Progress::Done
            }
        })
    }

    fn count(&mut self, query: &Query) -> Result<u64, StoreError> {
        let mut all = query.clone();
        all.before = None;
        for (_, limit) in &mut all.filters {
            *limit = u64::MAX;
        }
        let mut count = 0;
        self.read(&mut all, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    fn role(&mut self, key: &Pubkey) -> Result<Option<Role>, StoreError> {
        self.held
            .with(|connection| Ok(members::role(connection, key)?))
    }

    fn members(&mut self) -> Result<Vec<(Pubkey, Role)>, StoreError> {
        self.held.with(members::members)
    }

    fn ping(&mut self) -> Result<(), StoreError> {
        self.held.with(|connection| {
            let ping = Statement::<LastBatch, 0>::new(vec![]);
            Ok(ping.for_each(connection, |_| ControlFlow::Continue(()))?)
        })
    }
}

/// One call's way through the events.
pub(super) struct Pass<'a> {
    pub(super) filters: Vec<Pursuit<'a>>,
    now: u64,
    committed: i64,
    /// Where the last event that was passed stands, or the query's start.
    before: Option<u64>,
    row: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
    paused: bool,
}

/// A filter, and what is still wanted for it.
pub(super) struct Pursuit<'a> {
    check: Check<'a>,
    pub(super) plan: Plan,
    pub(super) left: u64,
}

impl<'a> Pass<'a> {
    fn new(query: &'a Query, row: &'a mut dyn FnMut(&str) -> ControlFlow<()>) -> Self {
        let before = query
            .before
            .map_or(i64::MAX, |at| i64::try_from(at).unwrap_or(i64::MAX));
        let filters = query.filters.iter().map(|(filter, left)| {
            let mut plan = plan::plan(filter);
            plan.bounds.end = plan.bounds.end.min(before);
            if *left == 0 || plan.bounds.is_empty() {
                plan.source = Source::Nothing;
            }
            Pursuit {
                check: Check::new(filter),
                plan,
                left: *left,
            }
        });
        Self {
            filters: filters.collect(),
            now: query.now,
            committed: i64::try_from(query.committed).unwrap_or(i64::MAX),
            before: query.before,
            row,
            paused: false,
        }
    }

    /// Passes the event on if a filter wants it. Breaks when there is nothing more to do.
    pub(super) fn offer(&mut self, row: &Row<'_, '_>) -> ControlFlow<()> {
        let (Some(position), Some(batch)) = (row.int(0), row.int(1)) else {
            return ControlFlow::Continue(());
        };
        if batch > self.committed || is_expired(row.int(2), self.now) {
            return ControlFlow::Continue(());
        }
        row.text(3, |json| self.offer_text(position, json))
    }

    fn offer_text(&mut self, position: i64, json: &str) -> ControlFlow<()> {
        let mut wanted = false;
        // Every filter that matches counts it, whichever found it.
        for filter in &mut self.filters {
            if filter.left > 0 && filter.check.matches(position, json.as_bytes()) {
                filter.left -= 1;
                wanted = true;
            }
        }
        if !wanted {
            return ControlFlow::Continue(());
        }
        self.before = Some(position.unsigned_abs());
        if (self.row)(json).is_break() {
            self.paused = true;
            return ControlFlow::Break(());
        }
        if self.filters.iter().all(|filter| filter.left == 0) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn end(self) -> (Option<u64>, Vec<u64>, bool) {
        let left = self.filters.iter().map(|filter| filter.left);
        (self.before, left.collect(), self.paused)
    }
}

fn read(connection: &mut SqliteConnection, pass: &mut Pass<'_>) -> Result<(), Error> {
    let mut active = pass
        .filters
        .iter()
        .filter(|filter| filter.plan.source != Source::Nothing);
    let (first, second) = (active.next(), active.next());
    match (first.map(|filter| &filter.plan), second) {
        (None, _) => Ok(()),
        (
            Some(Plan {
                source: Source::Keys(keys),
                bounds,
            }),
            None,
        ) if keys.len() == 1 => {
            let values = vec![Int(keys[0]), Int(bounds.end), Int(bounds.start)];
            let walk = Statement::<WalkKey, 0>::new(values);
            Ok(walk.for_each(connection, |row| pass.offer(row))?)
        }
        (
            Some(Plan {
                source: Source::Time,
                bounds,
            }),
            None,
        ) => {
            let walk = Statement::<WalkTime, 0>::new(vec![Int(bounds.end), Int(bounds.start)]);
            Ok(walk.for_each(connection, |row| pass.offer(row))?)
        }
        // One transaction: all statements see one state.
        _ => transaction::<BeginRead, _>(connection, |connection| {
            if walk_newest(connection, pass)?.is_continue() {
                merge::merge(connection, pass)?;
            }
            Ok(())
        }),
    }
}

/// Tries the newest events before many streams are merged. Breaks when nothing is left to do;
/// else it narrows the bounds to what it has not seen.
fn walk_newest(
    connection: &mut SqliteConnection,
    pass: &mut Pass<'_>,
) -> Result<ControlFlow<()>, Error> {
    let mut streams = 0;
    let (mut start, mut end) = (i64::MAX, 0);
    for Pursuit { plan, .. } in &pass.filters {
        match &plan.source {
            Source::Keys(keys) => streams += keys.len(),
            Source::Time => streams += 1,
            Source::Nothing | Source::Ids(_) => continue,
        }
        start = start.min(plan.bounds.start);
        end = end.max(plan.bounds.end);
    }
    // Ids would be passed over where they are newer than what is walked.
    let ids = |filter: &Pursuit<'_>| matches!(filter.plan.source, Source::Ids(_));
    if streams < WALK_FIRST || pass.filters.iter().any(ids) {
        return Ok(ControlFlow::Continue(()));
    }
    let mut budget = streams;
    let mut flow = ControlFlow::Break(());
    let walk = Statement::<WalkTime, 0>::new(vec![Int(end), Int(start)]);
    walk.for_each(connection, |row| {
        if budget == 0 {
            flow = ControlFlow::Continue(());
            return ControlFlow::Break(());
        }
        budget -= 1;
        end = row.int(0).unwrap_or(end);
        pass.offer(row)
    })?;
    for filter in &mut pass.filters {
        filter.plan.bounds.end = filter.plan.bounds.end.min(end);
    }
    Ok(flow)
}
