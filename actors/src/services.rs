//! The addresses of all actors, and what is counted over all of them. Only `app.rs`, a
//! connection's shell, REST calls and the health check hold this; actors do not.

use std::sync::Arc;

use actix::{Actor, Addr};
use buzz_protocol::Filter;

use crate::{
    admission::Admission,
    committed::Committed,
    db_reader::{CountEvents, DbReader, LookUpRole, Read, RoleLookUp},
    fanout::Fanout,
    gate::Gate,
    permits::Permits,
    ports::Query,
    registry::ConnectionRegistry,
    replay::Replay,
    shared::Shared,
    verifier::Verifier,
    writer::Writer,
};

/// See the module.
pub struct Services {
    /// Counts what each principal spends.
    pub admission: Admission,
    /// Checks signatures.
    pub verifier: Addr<Verifier>,
    /// Writes events.
    pub writer: Addr<Writer>,
    /// Reads and counts events. Asked through the gates, but for its health.
    pub reader: Addr<DbReader>,
    /// Reads roles, with connections of its own, so that history reads can't starve logins. Asked
    /// through the auth gate, but for its health.
    pub authorizer: Addr<DbReader>,
    /// Caps the reads and counts of stored events.
    pub history_gate: Addr<Gate<Read>>,
    /// Caps the share of them that counts may take: one count may take long, and reads must go on.
    pub count_gate: Addr<Gate<CountEvents>>,
    /// Caps the logins in their database checks.
    pub auth_gate: Addr<Gate<RoleLookUp>>,
    /// Lets one recheck of a member through to the auth gate at a time, so that rechecks don't
    /// displace logins.
    pub recheck_gate: Addr<Gate<LookUpRole>>,
    /// Passes live events on.
    pub fanout: Addr<Fanout>,
    /// Knows which authorizations of REST requests were used.
    pub replay: Addr<Replay>,
    /// Knows the open connections.
    pub registry: Addr<ConnectionRegistry>,
    /// Settings, metrics and permits of sockets and calls.
    pub shared: Arc<Shared>,
    /// The number of the last committed batch.
    pub committed: Committed,
    /// Open sockets.
    pub sockets: Permits,
    /// Seconds since the Unix epoch.
    pub clock: fn() -> u64,
}

impl Services {
    /// A query for what is stored and committed now.
    pub fn query(&self, filters: Vec<Filter>) -> Query {
        let limits = &self.shared.settings.limits;
        Query::new(filters, limits, (self.clock)(), self.committed.get())
    }

    /// The names of the actors that are gone: a panic ended them. What they were asked is refused
    /// by name, and stays so until the process is started again.
    pub fn gone(&self) -> Vec<&'static str> {
        fn is_gone<A: Actor>(addr: &Addr<A>) -> bool {
            !addr.connected()
        }
        let actors = [
            ("admission", self.admission.shards().iter().any(is_gone)),
            ("verifier", is_gone(&self.verifier)),
            ("writer", is_gone(&self.writer)),
            (
                "db_reader",
                is_gone(&self.reader) || is_gone(&self.authorizer),
            ),
            ("gate:history_reads", is_gone(&self.history_gate)),
            ("gate:counts", is_gone(&self.count_gate)),
            ("gate:auth", is_gone(&self.auth_gate)),
            ("gate:rechecks", is_gone(&self.recheck_gate)),
            ("fanout", is_gone(&self.fanout)),
            ("replay", is_gone(&self.replay)),
            ("connection_registry", is_gone(&self.registry)),
        ];
        let gone = actors.into_iter().filter(|(_, gone)| *gone);
        gone.map(|(name, _)| name).collect()
    }
}
