//! The store as a contract: what the writer and the readers need of a database. Its calls block
//! their thread. Nothing here knows SQLite or PostgreSQL.
//!
//! The other contracts stand with the module that uses them: `admission::SharedBudget` and
//! `flags::FlagSource`.

use std::{error::Error, ops::ControlFlow, sync::Arc};

use buzz_protocol::{Filter, Limits, Pubkey, Refusal, VerifiedEvent, refusal};

/// A place for events. Cheap to share; each writer or reader owns one connection.
pub trait EventStore: Send + Sync + 'static {
    /// Opens the connection that writes. There is one writer a process.
    ///
    /// # Errors
    /// When the database can't be opened.
    fn writer(&self) -> Result<Box<dyn StoreWriter>, StoreError>;

    /// Opens a connection that reads.
    ///
    /// # Errors
    /// When the database can't be opened.
    fn reader(&self, purpose: Purpose) -> Result<Box<dyn StoreReader>, StoreError>;
}

/// What a reading connection is for. A store with a replica serves history from there, and who may
/// do what from where it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Stored events; they may be a moment old.
    History,
    /// Members and their roles; never older than the last change.
    Authorization,
}

/// What a member of the relay is. [`Role::Agent`] has the agents' quotas; the others differ in
/// what a channel or an operator lets them do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Role {
    Member,
    Agent,
    Admin,
    Owner,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Member, Self::Agent, Self::Admin, Self::Owner];

    /// As it is stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Agent => "agent",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// The role of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// The writing side.
pub trait StoreWriter: Send {
    /// Writes a batch in one transaction, in order, each event seeing those before it, and says of
    /// each what became of it. After `Ok` the batch is as durable as configured; after `Err`
    /// nothing of it is stored. Ephemeral events are never passed here.
    ///
    /// `batch` numbers grow from call to call; they are kept with the events, so that a reader can
    /// leave out what was committed after it began ([`Query::committed`]).
    ///
    /// # Errors
    /// When the database fails; the writer recovers its connection by itself on the next call.
    fn store(
        &mut self,
        events: &[Arc<VerifiedEvent>],
        batch: u64,
    ) -> Result<Vec<Outcome>, StoreError>;

    /// The highest batch number ever stored; 0 in an empty store.
    ///
    /// # Errors
    /// When the database fails.
    fn last_batch(&mut self) -> Result<u64, StoreError>;

    /// Flushes before the process ends: all events are in one place, and the next start has nothing
    /// to recover.
    ///
    /// # Errors
    /// When the database fails; nothing is lost by that.
    fn flush(&mut self) -> Result<(), StoreError>;

    /// Removes up to `max` events that expired at or before `now` (seconds since the epoch) and
    /// says how many it removed.
    ///
    /// # Errors
    /// When the database fails.
    fn purge_expired(&mut self, now: u64, max: usize) -> Result<usize, StoreError>;

    /// Makes `key` a member of that role, or no member, and says what it was before.
    ///
    /// # Errors
    /// When the database fails.
    fn set_role(&mut self, key: &Pubkey, role: Option<Role>) -> Result<Option<Role>, StoreError>;
}

/// What became of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is stored.
    Stored,
    /// It was there before.
    Duplicate,
    /// The store has a newer version of its address.
    Superseded,
    /// There is no room left among the ids of its second that begin like its own.
    NoRoom,
    /// Its author deleted it, or a version of its address as new as it (NIP-09).
    Deleted,
}

impl Outcome {
    /// What its sender is told: the message of an event that is accepted, or why it is not.
    ///
    /// # Errors
    /// Says why.
    pub fn verdict(self) -> Result<&'static str, Refusal> {
        match self {
            Self::Stored => Ok(""),
            Self::Duplicate => Ok(refusal::DUPLICATE),
            Self::Superseded => Err(Refusal::Superseded),
            Self::NoRoom => Err(Refusal::Error(
                "no room among the ids of this second that begin like this one".into(),
            )),
            Self::Deleted => Err(Refusal::Blocked("deleted".into())),
        }
    }
}

/// The reading side.
pub trait StoreReader: Send {
    /// Passes the query's next events to `row` as canonical JSON, newest first, ties lowest id
    /// first, each event once however many filters it matches. Stops when `row` breaks (that event
    /// counts as passed) and moves `query` on, so that a further call goes on behind it.
    ///
    /// # Errors
    /// When the database fails; the reader recovers its connection by itself on the next call.
    fn read(
        &mut self,
        query: &mut Query,
        row: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Progress, StoreError>;

    /// How many distinct events match any of the query's filters; limits do not count (NIP-45).
    ///
    /// # Errors
    /// When the database fails.
    fn count(&mut self, query: &Query) -> Result<u64, StoreError>;

    /// The role of a key; `None` if it is no member.
    ///
    /// # Errors
    /// When the database fails.
    fn role(&mut self, key: &Pubkey) -> Result<Option<Role>, StoreError>;

    /// All members, in the order of their keys.
    ///
    /// # Errors
    /// When the database fails.
    fn members(&mut self) -> Result<Vec<(Pubkey, Role)>, StoreError>;

    /// Asks the database for a sign of life.
    ///
    /// # Errors
    /// When it gives none.
    fn ping(&mut self) -> Result<(), StoreError>;
}

/// Whether a query has more to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// `row` broke off; there may be more.
    Paused,
    /// Everything has been passed.
    Done,
}

/// A request for stored events, and how far it got.
#[derive(Debug, Clone)]
pub struct Query {
    /// The filters, each with how many more events may be passed for it.
    pub filters: Vec<(Filter, u64)>,
    /// Seconds since the epoch: events that expire at or before it are left out.
    pub now: u64,
    /// The last batch committed when the query began: later ones are left out, so that a query
    /// read in several pages sees one state, and its live events begin where its history ends.
    pub committed: u64,
    /// Where the last page ended, in the store's own order; `None` before the first.
    pub before: Option<u64>,
}

impl Query {
    /// A query at its beginning.
    pub fn new(filters: Vec<Filter>, limits: &Limits, now: u64, committed: u64) -> Self {
        let filters = filters.into_iter().map(|filter| {
            let limit = limits.effective_limit(&filter);
            (filter, limit)
        });
        Self {
            filters: filters.collect(),
            now,
            committed,
            before: None,
        }
    }
}

/// A database that did not do what was asked. Its text says why; the error that caused it is its
/// source.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database can't be reached, or its disk is full: work may be retried later.
    #[error("database unavailable: {0}")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The statement was stopped, since it ran longer than it may.
    #[error("query took too long")]
    TookTooLong,
    /// The statement failed.
    #[error("database error: {0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}
