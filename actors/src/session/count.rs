//! One COUNT (NIP-45): its checks, then a reader behind both gates, then its answer.

use buzz_protocol::{Filter, Refusal, relay_frame};
use tracing::Span;

use super::{Now, Output, Session};

impl Session {
    pub(super) fn receive_count(
        &mut self,
        name: String,
        filters: Vec<Filter>,
        span: Span,
        now: Now,
    ) {
        span.record("verb", "COUNT");
        let checked = self.check_query(&name, &filters);
        match checked.and_then(|()| self.shared.try_acquire()) {
            Ok(permit) => {
                self.reads_in_flight += 1;
                self.ask(Output::Count {
                    name,
                    filters,
                    permit,
                    span,
                });
            }
            Err(refusal) => self.refuse_sub("COUNT", &name, &refusal, now),
        }
    }

    pub(super) fn counted(&mut self, name: &str, count: Result<u64, Refusal>, now: Now) {
        self.reads_in_flight -= 1;
        match count {
            Ok(count) => self.send(&relay_frame::count(name, count)),
            Err(refusal) => self.refuse_sub("COUNT", name, &refusal, now),
        }
    }
}
