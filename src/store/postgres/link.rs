//! One session with a server, used from the calling thread. Each session has its own small runtime.
//! Dropping it ends the runtime and the socket, so no session is left open in a transaction.
//!
//! Bound: a statement that takes longer than its limit, plus a grace time, ends the session.

use std::{ops::ControlFlow, time::Duration};

use buzz_actors::ports::StoreError;
use diesel::QueryResult;
use diesel_async::{AsyncConnectionCore, SimpleAsyncConnection};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

use super::{
    error::Error,
    row::Row,
    server::Server,
    session::Session,
    statement::{BeginRead, BeginWrite, Commit, Rollback, Shape, Statement},
};

/// What the server's own limit is given on top before the session is given up.
const GRACE: Duration = Duration::from_secs(2);

/// The statements are few and each has one good plan, a walk through an index: the planner has
/// nothing to decide, and is kept from guessing by the values or by statistics not yet made.
pub(super) const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
    SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
    SET enable_material = off; SET jit = off; ";

/// A relay that stops in a transaction holds up the others' writes; this long at most.
const IDLE_IN_TRANSACTION: &str = "SET idle_in_transaction_session_timeout = '5s'; ";

pub(super) struct Link {
    /// `None` only while it is dropped.
    connection: Option<Session>,
    runtime: Option<Runtime>,
    /// The server ends a statement after it.
    timeout: Duration,
    in_transaction: bool,
    new: bool,
    /// Whether a COMMIT was sent and not answered: what was done in it may be there or not.
    pub(super) in_doubt: bool,
    /// What a row lately measured, so that a page is asked for that is about as large as wanted.
    pub(super) row_bytes: usize,
}

impl Link {
    /// Connects. `settings` are further statements for the session's start.
    pub(super) fn open(
        server: &Server,
        timeout: Duration,
        settings: &str,
    ) -> Result<Self, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| server.unavailable(error))?;
        let milliseconds = timeout.as_millis();
        let settings = format!(
            "{PLANS}{IDLE_IN_TRANSACTION}SET statement_timeout = {milliseconds}; {settings}"
        );
        let connected = runtime.block_on(async {
            let connected = async {
                let mut connection = Session::new(server.connect().await?);
                let set = connection.batch_execute(&settings).await;
                set.map_err(|error| Error::from(error).into_store_error(server.shown()))?;
                Ok(connection)
            };
            // The driver's own limit is for the socket alone, and a name may stand for several
            // addresses.
            let within = tokio::time::timeout(2 * GRACE, connected).await;
            within.unwrap_or_else(|_| Err(server.unavailable("no answer to the connection")))
        });
        // Not dropped here on an error: that may be no place to wait for a name's resolution.
        match connected {
            Ok(connection) => Ok(Self {
                connection: Some(connection),
                runtime: Some(runtime),
                timeout,
                in_transaction: false,
                new: true,
                in_doubt: false,
                row_bytes: 700,
            }),
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Runs work on the session; past the server's own time limit it is given up.
    pub(super) fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Session) -> QueryResult<T>,
    ) -> Result<T, Error> {
        let (Some(connection), Some(runtime)) = (&mut self.connection, &self.runtime) else {
            return Err(Error::NoAnswer);
        };
        let limit = self.timeout.saturating_add(GRACE);
        let done = runtime.block_on(async { tokio::time::timeout(limit, work(connection)).await });
        match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::NoAnswer),
        }
    }

    /// Polls this work so often and drops it; says whether it had ended.
    #[cfg(test)]
    pub(super) fn run_for(&mut self, polls: usize, texts: &[&str]) -> bool {
        let connection = self.connection.as_mut().expect("a connection");
        let runtime = self.runtime.as_ref().expect("a runtime");
        runtime.block_on(async {
            let work = async {
                for text in texts {
                    connection.batch_execute(text).await.expect("done");
                }
            };
            let mut work = std::pin::pin!(work);
            let mut left = polls;
            std::future::poll_fn(|context| {
                if left == 0 {
                    return std::task::Poll::Ready(false);
                }
                left -= 1;
                let polled = work.as_mut().poll(context);
                if left == 0 {
                    context.waker().wake_by_ref();
                }
                polled.map(|()| true)
            })
            .await
        })
    }

    /// Runs a statement that yields no rows; says how many it touched.
    pub(super) fn execute<S: Shape>(
        &mut self,
        statement: Statement<'_, S>,
    ) -> Result<usize, Error> {
        self.run(async |connection| connection.execute_returning_count(statement).await)
    }

    /// Passes rows to `take` until it breaks; reads on to the end in any case.
    pub(super) fn for_each<S: Shape>(
        &mut self,
        statement: Statement<'_, S>,
        mut take: impl FnMut(&Row) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.run(async |connection| {
            let mut rows = connection.load(statement).await?;
            let mut flow = ControlFlow::Continue(());
            while let Some(row) = rows.next().await {
                let row = row?;
                if flow.is_continue() {
                    flow = take(&row);
                }
            }
            Ok(())
        })
    }

    pub(super) fn begin_read(&mut self) -> Result<(), Error> {
        self.in_transaction = true;
        self.execute(Statement::<BeginRead>::new(vec![])).map(drop)
    }

    pub(super) fn begin_write(&mut self) -> Result<(), Error> {
        self.in_transaction = true;
        self.execute(Statement::<BeginWrite>::new(vec![])).map(drop)
    }

    pub(super) fn commit(&mut self) -> Result<(), Error> {
        self.in_doubt = true;
        self.execute(Statement::<Commit>::new(vec![]))?;
        (self.in_doubt, self.in_transaction) = (false, false);
        Ok(())
    }

    /// True at the first call, false from then on.
    pub(super) fn is_new(&mut self) -> bool {
        std::mem::replace(&mut self.new, false)
    }

    /// Ends a transaction that is open, without its work.
    pub(super) fn roll_back(&mut self) -> Result<(), Error> {
        if self.in_transaction {
            self.execute(Statement::<Rollback>::new(vec![]))?;
            self.in_transaction = false;
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.connection.take());
        if let Some(runtime) = self.runtime.take() {
            // Ends the task that holds the socket. Nothing is waited for: this may be a thread
            // where waiting is forbidden.
            runtime.shutdown_background();
        }
    }
}
