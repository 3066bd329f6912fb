//! The stream of one subscription.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::Stream;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    driver::{Call, Calls},
    session::{Command, Message, SubId},
};

/// A subscription's events, as a [`Stream`] of [`Message`]s. Dropping it unsubscribes.
///
/// Its queue is bounded by [`crate::Config::queue`]. Events that found it full are asked for again
/// once half of it is free. They arrive late, and only if the relay still has them.
#[derive(Debug)]
pub struct Subscription {
    id: SubId,
    messages: UnboundedReceiver<Message>,
    calls: Calls,
    /// Events taken and not yet reported to the session, which counts what is queued.
    unreported: usize,
    report_after: usize,
}

impl Subscription {
    pub(crate) fn new(
        id: SubId,
        messages: UnboundedReceiver<Message>,
        calls: Calls,
        queue: usize,
    ) -> Self {
        Self {
            id,
            messages,
            calls,
            unreported: 0,
            report_after: (queue / 8).max(1),
        }
    }

    /// Waits for the next message; `None` once the subscription has ended.
    pub async fn next(&mut self) -> Option<Message> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    fn report(&mut self) {
        if self.unreported > 0 {
            let taken = std::mem::take(&mut self.unreported);
            self.calls.send(Call::Took(self.id, taken));
        }
    }
}

impl Stream for Subscription {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let message = self.messages.poll_recv(cx);
        match &message {
            Poll::Ready(Some(Message::Event(_))) => {
                self.unreported += 1;
                if self.unreported >= self.report_after {
                    self.report();
                }
            }
            // The queue is empty: the session is to know before the consumer sleeps.
            Poll::Pending => self.report(),
            Poll::Ready(_) => {}
        }
        message
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.calls
            .send(Call::Command(Command::Unsubscribe(self.id)));
    }
}
