//! A session's outputs as messages to the actors. Each question carries the reply that brings its
//! answer back as an input of the session.

use std::time::{Duration, Instant};

use actix::AsyncContext;

use super::{Connection, Context};
use crate::{
    db_reader::{CountEvents, LookUpRole, Read, ReadPage, RoleLookUp},
    fanout::{Subscribe, Subscriber, Unsubscribe},
    gate::Acquire,
    reply::{Answer, Reply},
    session::{Input, LogLine, Output},
    verifier::{VerifyEvents, VerifyLogin},
};

/// A member whose recheck failed or was shed is looked up again after this.
const RECHECK_RETRY: Duration = Duration::from_secs(2);

/// A reply that comes back to this connection as an input of its session.
fn reply<T: Answer>(ctx: &Context, input: impl FnOnce(T) -> Input + Send + 'static) -> Reply<T> {
    Reply::to_actor(ctx.address(), input)
}

impl Connection {
    /// Carries one output out.
    pub(super) fn carry_out(&mut self, output: Output, ctx: &mut Context) {
        let services = &self.services;
        match output {
            Output::Admit {
                principal,
                class,
                costs,
            } => {
                let reply = reply(ctx, Input::Admitted);
                services
                    .admission
                    .admit_frames(principal, class, costs, reply);
            }
            Output::NoteInvalidSignatures { count } => {
                let reply = reply(ctx, Input::SignatureChecksPaused);
                services
                    .admission
                    .note_invalid_signatures(self.peer, count, reply);
            }
            Output::VerifyEvents {
                batch,
                events,
                permit,
            } => {
                services.verifier.do_send(VerifyEvents {
                    events,
                    permit,
                    verified: reply(ctx, move |verified| Input::Verified { batch, verified }),
                    stored: reply(ctx, move |stored| Input::Stored { batch, stored }),
                });
            }
            Output::VerifyLogin { event } => {
                let id = event.id;
                let reply = reply(ctx, move |verdict| Input::LoginVerified { id, verdict });
                services.verifier.do_send(VerifyLogin { event, reply });
            }
            Output::LookUpRole { key, login } => {
                let reply = reply(ctx, move |found| Input::RoleFound { key, login, found });
                let (work, since) = (LookUpRole { key, reply }, Instant::now());
                if login.is_some() {
                    let work = RoleLookUp::Login(work);
                    services.auth_gate.do_send(Acquire { work, since });
                } else {
                    services.recheck_gate.do_send(Acquire { work, since });
                }
            }
            Output::RecheckLater => {
                ctx.run_later(RECHECK_RETRY, |connection, _| {
                    connection.interrupt(Input::RecheckOverdue);
                });
            }
            Output::Subscribe { token, filters } => {
                // The order matters. docs/architecture.md, "The seam".
                services.fanout.do_send(Subscribe {
                    connection: self.number,
                    token,
                    filters,
                    subscriber: Subscriber::new(ctx.address().recipient()),
                    usage: self.session.send_queue_usage(),
                });
                let committed = services.committed.get();
                self.handle_input(Input::Subscribed { token, committed });
            }
            Output::Unsubscribe { token } => services.fanout.do_send(Unsubscribe {
                connection: self.number,
                token: Some(token),
            }),
            Output::ReadPage {
                token,
                prefix,
                query,
                permit,
                span,
            } => {
                let page = ReadPage {
                    query,
                    prefix: Some(prefix),
                    permit,
                    span,
                    reply: reply(ctx, move |page| Input::Page { token, page }),
                };
                services.history_gate.do_send(Acquire {
                    work: Read::Page(Box::new(page)),
                    since: Instant::now(),
                });
            }
            Output::Count {
                name,
                filters,
                permit,
                span,
            } => {
                let since = Instant::now();
                let work = CountEvents {
                    query: Box::new(services.query(filters)),
                    permit,
                    span,
                    since,
                    reply: reply(ctx, move |count| Input::Counted { name, count }),
                };
                services.count_gate.do_send(Acquire { work, since });
            }
            Output::Log(line) => self.log(line),
        }
    }

    fn log(&self, line: LogLine) {
        let LogLine {
            verb,
            outcome,
            reason,
            left_out,
        } = line;
        let left_out = (left_out > 0).then_some(left_out);
        let (peer, connection) = (self.peer, self.number);
        if verb == "AUTH" {
            tracing::info!(
                target: "access", outcome, reason, verb, %peer, connection, left_out,
                "login {outcome}/{reason}"
            );
        } else {
            tracing::info!(
                target: "access", outcome, reason, verb, %peer, connection, left_out,
                "frame refused: {outcome}/{reason}"
            );
        }
    }
}
