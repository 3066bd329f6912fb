//! One REST request at the rooms: the same verifier, writer and readers as a socket's frames, asked
//! in a straight line.
//!
//! Bound: each call holds a handler permit while a room works for it, and gets at most two answers
//! to a question. Arrives: one request. Leaves: requests to the rooms, the answer. When full: the
//! call is refused. A call that is dropped, since its client is gone, is skipped where it waits;
//! its permit comes back with the work.

use std::{sync::Arc, time::Duration};

use actix::{Addr, Handler, Message};
use buzz_protocol::{Event, EventId, Filter, Pubkey, Refusal};
use bytes::BytesMut;
use tokio::sync::mpsc;
use tracing::Span;

use crate::{
    admission::{Party, Principal},
    connection::{
        Connection, Counted, HistoryPage, LoginShed, LoginVerified, RoleFound, Stored, Verified,
    },
    db_reader::request::{CountRequest, HistoryRequest, RoleRequest},
    ports::{Outcome, Query, Role},
    replay::FirstUse,
    rooms::{Permit, Rooms},
    rules::{self, Sender},
    verifier::{VerifyEvents, VerifyLogin},
};

/// Later pages of an answer wait so long for a handler permit; then the answer breaks off.
const PAGE_WAIT: Duration = Duration::from_secs(5);

/// Who asked a room, and gets what it answers.
#[derive(Clone)]
pub enum Asker {
    /// A socket.
    Connection(Addr<Connection>),
    /// A REST request.
    Call(mpsc::UnboundedSender<Answer>),
}

/// What a room answers a call.
#[allow(missing_docs, reason = "the messages are documented")]
pub enum Answer {
    Verified(Verified),
    LoginVerified(LoginVerified),
    RoleFound(RoleFound),
    LoginShed(LoginShed),
    Stored(Stored),
    HistoryPage(HistoryPage),
    Counted(Counted),
}

macro_rules! answers {
    ($($message:ident)*) => {
        $(impl From<$message> for Answer {
            fn from(message: $message) -> Self {
                Self::$message(message)
            }
        })*
    };
}
answers!(Verified LoginVerified RoleFound LoginShed Stored HistoryPage Counted);

impl From<Addr<Connection>> for Asker {
    fn from(connection: Addr<Connection>) -> Self {
        Self::Connection(connection)
    }
}

impl Asker {
    /// Whether anybody still waits for an answer.
    pub fn connected(&self) -> bool {
        match self {
            Self::Connection(addr) => addr.connected(),
            Self::Call(answers) => !answers.is_closed(),
        }
    }

    /// Answers. Nothing happens where nobody waits any more.
    pub fn do_send<M>(&self, message: M)
    where
        Connection: Handler<M>,
        M: Message<Result = ()> + Into<Answer> + Send + 'static,
    {
        match self {
            Self::Connection(addr) => addr.do_send(message),
            Self::Call(answers) => {
                let _ = answers.send(message.into());
            }
        }
    }
}

/// A call's side of its questions.
struct Answers(mpsc::UnboundedReceiver<Answer>);

impl Answers {
    fn expect() -> (Asker, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Asker::Call(sender), Self(receiver))
    }

    /// The first answer that `wanted` takes.
    async fn find<T>(mut self, wanted: impl Fn(Answer) -> Option<T>) -> Result<T, Refusal> {
        while let Some(answer) = self.0.recv().await {
            if let Some(found) = wanted(answer) {
                return Ok(found);
            }
        }
        // Its room went away with the question: a panic, or the end of the process.
        Err(Refusal::Error("the relay could not answer".into()))
    }
}

/// A request in work.
pub struct Call {
    rooms: Arc<Rooms>,
    key: Pubkey,
    party: Party,
    permit: Permit,
}

/// The role of the key that signed the authorization `id`, as at a socket's login.
async fn find_role(rooms: &Arc<Rooms>, key: Pubkey, id: EventId) -> Result<Option<Role>, Refusal> {
    let (from, answers) = Answers::expect();
    let rooms = Arc::clone(rooms);
    RoleRequest {
        key,
        id: Some(id),
        from,
        rooms,
    }
    .enter();
    let role = answers.find(|answer| match answer {
        Answer::RoleFound(found) => Some(found.role),
        Answer::LoginShed(LoginShed) => Some(Err(Refusal::TooManyRequests)),
        _ => None,
    });
    role.await?
}

impl Call {
    /// Begins a call with its authorization, which is known to name this request. Checks its
    /// signature, that it was not used before, and its key's membership and quota.
    ///
    /// # Errors
    /// Says why the call may not go on.
    pub async fn begin(
        rooms: &Arc<Rooms>,
        permit: Permit,
        authorization: Event,
    ) -> Result<Self, Refusal> {
        let (id, created_at) = (authorization.id, authorization.created_at);
        let (from, answers) = Answers::expect();
        rooms.verifier.do_send(VerifyLogin {
            event: Box::new(authorization),
            from,
        });
        let verdict = answers.find(|answer| match answer {
            Answer::LoginVerified(login) => Some(login.verdict),
            _ => None,
        });
        let key = verdict.await?.map_err(|refusal| match refusal {
            Refusal::Invalid(why) => Refusal::AuthRequired(why),
            other => other,
        })?;
        // Behind the signature, so that nobody can fill the memory with what is not signed.
        let first_use = rooms.replay.send(FirstUse { id, created_at }).await;
        first_use.unwrap_or_else(|_| Err(Refusal::Error("the relay could not answer".into())))?;
        let role = find_role(rooms, key, id).await?;
        rules::check_role(rooms.settings.members_only, role)?;
        let (principal, party) = (Principal::Key(key), Party::from(role));
        rooms.admission.admit_api_call(principal, party).await?;
        Ok(Self {
            rooms: Arc::clone(rooms),
            key,
            party,
            permit,
        })
    }

    /// Publishes an event, and gives the verdict on it: the message of its OK, or what is wrong
    /// with it.
    ///
    /// # Errors
    /// Where there is no verdict: says why. Nothing is known against the event then.
    pub async fn publish(self, event: Event) -> Result<Result<&'static str, Refusal>, Refusal> {
        let rooms = Arc::clone(&self.rooms);
        let events = &rooms.metrics.events;
        let verdict = self
            .store(event)
            .await
            .map(|verdict| verdict.and_then(|outcome| events.verdict(Ok(outcome))));
        if let Ok(Err(refusal)) | Err(refusal) = &verdict {
            events.count_refused(refusal);
        }
        verdict
    }

    async fn store(self, event: Event) -> Result<Result<Outcome, Refusal>, Refusal> {
        let Self {
            rooms,
            key,
            party,
            permit,
        } = self;
        let sender = match event.pubkey == key {
            true => Sender::Author,
            false => Sender::Other,
        };
        let checked = rules::check_event(&rooms.settings.limits, &event, sender, (rooms.clock)());
        if let Err(refusal) = checked {
            return Ok(Err(refusal));
        }
        let principal = Principal::Key(key);
        let admission = &rooms.admission;
        admission
            .admit_api_event(principal, party, event.kind)
            .await?;
        let (from, answers) = Answers::expect();
        rooms.verifier.do_send(VerifyEvents {
            events: vec![(event, Span::none())],
            from,
            permit,
        });
        let result = answers.find(|answer| match answer {
            Answer::Verified(mut verified) => {
                let (_, refusal) = verified.rejected.pop()?;
                Some(Ok(Err(refusal)))
            }
            Answer::Stored(mut stored) => {
                let (_, result, _) = stored.results.pop()?;
                Some(result.map(Ok))
            }
            _ => None,
        });
        result.await?
    }

    /// How many stored events match.
    ///
    /// # Errors
    /// Says why there is no answer.
    pub async fn count(self, filters: Vec<Filter>) -> Result<u64, Refusal> {
        let Self { rooms, permit, .. } = self;
        rules::check_filters(&rooms.settings.limits, &filters)?;
        let (from, answers) = Answers::expect();
        let query = Box::new(rooms.query(filters));
        let request = CountRequest {
            query,
            name: String::new(),
            from,
            permit,
            span: Span::none(),
            rooms,
        };
        request.enter();
        let counted = answers.find(|answer| match answer {
            Answer::Counted(counted) => Some(counted.count),
            _ => None,
        });
        counted.await?
    }

    /// The first page of the stored events that match, and what brings the others.
    ///
    /// # Errors
    /// Says why there is no answer.
    pub async fn query(self, filters: Vec<Filter>) -> Result<(BytesMut, Pages), Refusal> {
        let Self { rooms, permit, .. } = self;
        rules::check_filters(&rooms.settings.limits, &filters)?;
        let query = Box::new(rooms.query(filters));
        let mut pages = Pages { rooms, rest: None };
        let first = pages.read(query, permit).await?;
        Ok((first, pages))
    }
}

/// What is left of an answer to a query. No reader and no permit is held between two pages, so
/// that a slow client costs neither.
pub struct Pages {
    rooms: Arc<Rooms>,
    rest: Option<Box<Query>>,
}

impl Pages {
    /// Whether there is nothing left.
    pub fn is_done(&self) -> bool {
        self.rest.is_none()
    }

    /// The next page, while there is one: elements of a JSON array, each behind a comma.
    ///
    /// # Errors
    /// Says why it can't be read; there is no page behind it.
    pub async fn next(&mut self) -> Option<Result<BytesMut, Refusal>> {
        let query = self.rest.take()?;
        let permit = tokio::time::timeout(PAGE_WAIT, self.rooms.handlers.enter());
        match permit.await {
            Ok(Some(permit)) => Some(self.read(query, permit).await),
            _ => Some(Err(Refusal::TooManyRequests)),
        }
    }

    async fn read(&mut self, query: Box<Query>, permit: Permit) -> Result<BytesMut, Refusal> {
        let (from, answers) = Answers::expect();
        let request = HistoryRequest {
            query,
            prefix: None,
            token: 0,
            from,
            permit,
            span: Span::none(),
            rooms: Arc::clone(&self.rooms),
        };
        request.enter();
        let page = answers.find(|answer| match answer {
            Answer::HistoryPage(page) => Some(page),
            _ => None,
        });
        let page = page.await?;
        self.rest = page.rest?;
        Ok(page.frames)
    }
}
