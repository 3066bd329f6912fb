//! How a query is answered, whatever database holds the tables: one stream of rows is walked where
//! that is enough, else several are merged (`merge`). A database brings the few look-ups of
//! [`Tables`]; which events match, how many are wanted and where a page ends is decided here.

mod merge;

use std::{
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};

use buzz_actors::ports::{Progress, Query, StoreError, StoreReader};

use super::{
    batch::is_expired,
    check::Check,
    plan::{self, Plan, Source},
};

/// From this many streams on, the newest events are tried first: finding the head of each stream
/// costs about as much as reading as many events.
const WALK_FIRST: usize = 32;

/// A row of the `event` table, in place.
pub(crate) struct Row<'a> {
    pub(crate) position: i64,
    pub(crate) batch: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) json: &'a str,
}

/// What a database must look up. Everything comes newest first (by descending position), within
/// bounds of positions; `take` may break off.
pub(crate) trait Tables {
    type Error;

    /// How many positions [`Self::heads`] gives of each key.
    const HEADS: usize;

    /// Begins a transaction in which all look-ups see one state.
    fn begin(&mut self) -> Result<(), Self::Error>;

    /// Ends it.
    fn commit(&mut self) -> Result<(), Self::Error>;

    /// Rows of one key, or all rows. About `wanted` of them will be taken.
    fn walk(
        &mut self,
        key: Option<i64>,
        bounds: &Range<i64>,
        wanted: u64,
        take: impl FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Up to `size` positions of one key, or of all rows.
    fn positions(
        &mut self,
        key: Option<i64>,
        bounds: &Range<i64>,
        size: usize,
        take: impl FnMut(i64),
    ) -> Result<(), Self::Error>;

    /// The rows at these positions; none where there is none.
    fn at_positions(
        &mut self,
        positions: &[i64],
        take: impl FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// All positions of these keys, in any order.
    fn of_keys(&mut self, keys: &[i64], take: impl FnMut(i64)) -> Result<(), Self::Error>;

    /// The first [`Self::HEADS`] positions of each key below `bound`, with the key's index. They
    /// may lie below `floor`, where nothing is wanted.
    fn heads(
        &mut self,
        keys: &[i64],
        bounds: &Range<i64>,
        take: impl FnMut(usize, i64),
    ) -> Result<(), Self::Error>;
}

/// Answers a query from where it stands, and moves it on: also after an error, so that a further
/// call repeats nothing. `hidden` are the batches that the query must not see; after `time` it
/// ends with [`StoreError::TookTooLong`].
pub(crate) fn answer<T: Tables>(
    query: &mut Query,
    hidden: Range<i64>,
    time: Duration,
    row: &mut dyn FnMut(&str) -> ControlFlow<()>,
    with_tables: impl FnOnce(&mut dyn FnMut(&mut T) -> Result<(), T::Error>) -> Result<(), StoreError>,
) -> Result<Progress, StoreError> {
    let mut pass = Pass::new(query, hidden, time, row);
    let result = with_tables(&mut |tables| read(tables, &mut pass));
    let End {
        before,
        left,
        paused,
        late,
    } = pass.end();
    for (filter, left) in query.filters.iter_mut().zip(left) {
        filter.1 = left;
    }
    query.before = before;
    match result {
        // Everything that was wanted has been passed, so a later error does not matter.
        _ if paused => Ok(Progress::Paused),
        Ok(()) if late => Err(StoreError::TookTooLong),
        Ok(()) => Ok(Progress::Done),
        Err(error) => Err(error),
    }
}

/// Counts what `query` matches: from the start, without limits.
pub(crate) fn count(reader: &mut dyn StoreReader, query: &Query) -> Result<u64, StoreError> {
    let mut all = query.clone();
    all.before = None;
    for (_, limit) in &mut all.filters {
        *limit = u64::MAX;
    }
    let mut count = 0;
    reader.read(&mut all, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// One call's way through the events.
struct Pass<'a> {
    filters: Vec<FilterCursor<'a>>,
    now: u64,
    hidden: Range<i64>,
    /// Where the last event that was passed stands, or the query's start.
    before: Option<u64>,
    row: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
    paused: bool,
    /// When it has taken too long; `None` where that is beyond all times.
    deadline: Option<Instant>,
    late: bool,
}

/// A filter, and what is still wanted for it.
struct FilterCursor<'a> {
    check: Check<'a>,
    plan: Plan,
    left: u64,
}

struct End {
    before: Option<u64>,
    left: Vec<u64>,
    paused: bool,
    late: bool,
}

impl<'a> Pass<'a> {
    fn new(
        query: &'a Query,
        hidden: Range<i64>,
        time: Duration,
        row: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Self {
        let filters = query.filters.iter().map(|(filter, left)| FilterCursor {
            check: Check::new(filter),
            plan: plan::plan(filter),
            left: *left,
        });
        Self {
            filters: filters.collect(),
            now: query.now,
            hidden,
            before: query.before,
            row,
            paused: false,
            deadline: Instant::now().checked_add(time),
            late: false,
        }
    }

    /// Passes the event on if a filter wants it. Breaks when there is nothing more to do.
    fn offer(&mut self, row: &Row<'_>) -> ControlFlow<()> {
        if self.is_late() {
            return ControlFlow::Break(());
        }
        if self.hidden.contains(&row.batch) || is_expired(row.expires_at, self.now) {
            return ControlFlow::Continue(());
        }
        let mut wanted = false;
        // Every filter that matches counts it, whichever found it.
        for filter in &mut self.filters {
            if filter.left > 0 && filter.check.matches(row.position, row.json.as_bytes()) {
                filter.left -= 1;
                wanted = true;
            }
        }
        if !wanted {
            return ControlFlow::Continue(());
        }
        self.before = Some(row.position.unsigned_abs());
        if (self.row)(row.json).is_break() {
            self.paused = true;
            return ControlFlow::Break(());
        }
        if self.filters.iter().all(|filter| filter.left == 0) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Narrows what is looked for to what was not passed yet, where a call begins anew.
    fn resume(&mut self) {
        let before = self
            .before
            .map_or(i64::MAX, |at| i64::try_from(at).unwrap_or(i64::MAX));
        for FilterCursor { plan, left, .. } in &mut self.filters {
            plan.bounds.end = plan.bounds.end.min(before);
            if *left == 0 || plan.bounds.is_empty() {
                plan.source = Source::Nothing;
            }
        }
    }

    fn is_late(&mut self) -> bool {
        self.late |= self.deadline.is_some_and(|at| Instant::now() >= at);
        self.late
    }

    /// The most that any filter still wants.
    fn wanted(&self) -> u64 {
        let left = self.filters.iter().map(|filter| filter.left).max();
        left.unwrap_or(0)
    }

    fn end(self) -> End {
        End {
            before: self.before,
            left: self.filters.iter().map(|filter| filter.left).collect(),
            paused: self.paused,
            late: self.late,
        }
    }
}

fn read<T: Tables>(tables: &mut T, pass: &mut Pass<'_>) -> Result<(), T::Error> {
    pass.resume();
    let mut active = pass
        .filters
        .iter()
        .filter(|filter| filter.plan.source != Source::Nothing);
    let (first, second) = (active.next(), active.next());
    let one = match (first.map(|filter| &filter.plan), second) {
        (None, _) => return Ok(()),
        (Some(Plan { source, bounds }), None) => match source {
            Source::Keys(keys) | Source::Ids(keys) if keys.len() == 1 => {
                Some((keys.first().copied(), bounds.clone()))
            }
            Source::Time => Some((None, bounds.clone())),
            _ => None,
        },
        _ => None,
    };
    if let Some((key, bounds)) = one {
        let wanted = pass.wanted();
        return tables.walk(key, &bounds, wanted, |row| pass.offer(row));
    }
    // One transaction: all look-ups see one state.
    tables.begin()?;
    if walk_newest(tables, pass)?.is_continue() {
        merge::merge(tables, pass)?;
    }
    tables.commit()
}

/// Tries the newest events before many streams are merged. Breaks when nothing is left to do;
/// else it narrows the bounds to what it has not seen.
fn walk_newest<T: Tables>(
    tables: &mut T,
    pass: &mut Pass<'_>,
) -> Result<ControlFlow<()>, T::Error> {
    let mut streams = 0;
    let (mut start, mut end) = (i64::MAX, 0);
    for FilterCursor { plan, .. } in &pass.filters {
        match &plan.source {
            Source::Keys(keys) => streams += keys.len(),
            Source::Time => streams += 1,
            Source::Nothing | Source::Ids(_) => continue,
        }
        start = start.min(plan.bounds.start);
        end = end.max(plan.bounds.end);
    }
    // Ids would be passed over where they are newer than what is walked.
    let ids = |filter: &FilterCursor<'_>| matches!(filter.plan.source, Source::Ids(_));
    if streams < WALK_FIRST || pass.filters.iter().any(ids) {
        return Ok(ControlFlow::Continue(()));
    }
    let mut budget = streams;
    let mut flow = ControlFlow::Break(());
    let wanted = budget as u64;
    tables.walk(None, &(start..end), wanted, |row| {
        if budget == 0 {
            flow = ControlFlow::Continue(());
            return ControlFlow::Break(());
        }
        budget -= 1;
        end = row.position;
        pass.offer(row)
    })?;
    for filter in &mut pass.filters {
        filter.plan.bounds.end = filter.plan.bounds.end.min(end);
    }
    Ok(flow)
}
