//! The one way back from an actor, to another actor or to a REST call. Every question carries its
//! [`Reply`], so an actor answers without knowing who asked.
//!
//! A reply is answered exactly once. One that is dropped unanswered (its actor panicked or its
//! mailbox is gone) answers [`Answer::unanswered`], so that nobody waits for an answer that can't
//! come.

use std::future::Future;

use actix::{
    Actor, Addr, Handler, Message,
    dev::{MessageResponse, ToEnvelope},
};
use buzz_protocol::Refusal;
use tokio::sync::oneshot;

/// What an actor answers.
pub trait Answer: Send + 'static {
    /// The answer where the actor is gone or lost the question.
    fn unanswered() -> Self;
}

/// The refusal of whatever an actor left unanswered.
pub fn no_answer() -> Refusal {
    Refusal::Error("the relay could not answer".into())
}

impl<T: Send + 'static> Answer for Result<T, Refusal> {
    fn unanswered() -> Self {
        Err(no_answer())
    }
}

/// Takes the answer to one question. See the module.
pub struct Reply<T: Answer>(Option<Box<dyn Destination<T>>>);

trait Destination<T>: Send {
    fn is_open(&self) -> bool;
    fn deliver(self: Box<Self>, answer: T);
}

impl<T: Answer> Reply<T> {
    /// Sends the answer to an actor, as the message that `wrap` makes of it.
    pub fn to_actor<A, M>(addr: Addr<A>, wrap: impl FnOnce(T) -> M + Send + 'static) -> Self
    where
        A: Actor + Handler<M>,
        A::Context: ToEnvelope<A, M>,
        M: Message<Result = ()> + Send + 'static,
        (): MessageResponse<A, M>,
    {
        Self(Some(Box::new(ToActor { addr, wrap })))
    }

    /// A reply, and the future that gives its answer.
    pub fn to_call() -> (Self, impl Future<Output = T>) {
        let (sender, receiver) = oneshot::channel();
        let answer = async { receiver.await.unwrap_or_else(|_| T::unanswered()) };
        (Self(Some(Box::new(sender))), answer)
    }

    /// Whether anybody still waits for the answer.
    pub fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|to| to.is_open())
    }

    /// Answers. Does nothing where nobody waits any more.
    pub fn send(mut self, answer: T) {
        if let Some(to) = self.0.take() {
            to.deliver(answer);
        }
    }
}

impl<T: Answer> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to.deliver(T::unanswered());
        }
    }
}

/// Asks an actor and waits for its answer: `ask` sends the question with the reply it is given.
pub async fn ask<T: Answer>(ask: impl FnOnce(Reply<T>)) -> T {
    let (reply, answer) = Reply::to_call();
    ask(reply);
    answer.await
}

struct ToActor<A: Actor, F> {
    addr: Addr<A>,
    wrap: F,
}

impl<A, F, T, M> Destination<T> for ToActor<A, F>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message<Result = ()> + Send + 'static,
    F: FnOnce(T) -> M + Send,
{
    fn is_open(&self) -> bool {
        self.addr.connected()
    }

    fn deliver(self: Box<Self>, answer: T) {
        self.addr.do_send((self.wrap)(answer));
    }
}

impl<T: Send> Destination<T> for oneshot::Sender<T> {
    fn is_open(&self) -> bool {
        !self.is_closed()
    }

    fn deliver(self: Box<Self>, answer: T) {
        // Fails where the caller is gone.
        let _ = (*self).send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: a drop that says nothing; an answer that is followed by that of the drop.
    #[actix::test]
    async fn a_reply_is_answered_once_whatever_becomes_of_it() {
        type Answered = Result<u32, Refusal>;
        let (reply, answer) = Reply::<Answered>::to_call();
        assert!(reply.is_wanted());
        reply.send(Ok(7));
        assert_eq!(answer.await, Ok(7));
        assert_eq!(ask::<Answered>(drop).await, Err(no_answer()));
        let (reply, answer) = Reply::<Answered>::to_call();
        drop(answer);
        assert!(!reply.is_wanted());
    }
}
