//! Open files: the system's limit is raised to what the settings ask for. Where it can't be, fewer
//! sockets are accepted, so that readers and the admin port always get theirs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    config::{Config, Server},
    store::is_postgres,
};

/// Sockets beyond `server.max_connections` that can still be told 503.
const SPARE_SOCKETS: u64 = 1024;
/// Sockets of the admin port.
pub(super) const ADMIN_SOCKETS: u64 = 64;
/// Streams, listeners, log, traces, feature flags, a shared budget, name resolution.
const PROGRAM: u64 = 64;
/// A core has two threads that wait for events, each with three files.
const CORE: u64 = 8;
/// A connection to SQLite: the file, its log, and what is opened in passing.
const SQLITE_CONNECTION: u64 = 4;
/// A session with a PostgreSQL server: its socket and the runtime's three files, once more for the
/// replica.
const POSTGRES_SESSION: u64 = 8;

/// How the files that may be open are divided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenFiles {
    /// The system's limit now.
    limit: u64,
    /// What the settings ask for.
    wanted: u64,
    /// Open WebSockets.
    pub(super) connections: usize,
    /// Sockets that are accepted, those included that are told 503.
    pub(super) sockets: usize,
}

impl OpenFiles {
    /// Raises the limit as far as needed and possible.
    pub(super) fn provide(config: &Config) -> Self {
        let wanted = kept_back(config) + config.server.max_connections as u64 + SPARE_SOCKETS;
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = maximum.map_or(wanted, |maximum| wanted.min(maximum));
        let limit = match current {
            Some(current) if current < raised => {
                let raise = Rlimit {
                    current: Some(raised),
                    maximum,
                };
                setrlimit(Resource::Nofile, raise).map_or(current, |()| raised)
            }
            Some(current) => current,
            None => wanted,
        };
        Self::divide(limit, wanted, kept_back(config), &config.server)
    }

    fn divide(limit: u64, wanted: u64, kept_back: u64, server: &Server) -> Self {
        let free = limit.saturating_sub(kept_back);
        let spare = SPARE_SOCKETS.min(free / 4);
        let connections = server.max_connections as u64;
        let connections = connections.min(free - spare).max(1);
        let as_size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            limit,
            wanted,
            connections: as_size(connections),
            sockets: as_size(connections + spare),
        }
    }

    /// Says what does not fit.
    pub(super) fn warn(&self, config: &Config) {
        if self.limit < self.wanted {
            tracing::warn!(
                limit = self.limit,
                needed = self.wanted,
                max_connections = config.server.max_connections,
                accepted = self.connections,
                "the system allows too few open files: fewer connections are accepted; raise the \
                 hard limit (ulimit -Hn, LimitNOFILE)"
            );
        }
    }
}

/// What is no client's socket.
fn kept_back(config: &Config) -> u64 {
    let connection = if is_postgres(&config.database.url) {
        POSTGRES_SESSION
    } else {
        SQLITE_CONNECTION
    };
    // Readers of history and of logins, the writer, and one that is opened at the start.
    let readers = config.database.readers as u64;
    let connections = readers + readers / 5 + 3;
    PROGRAM + ADMIN_SOCKETS + CORE * cores() as u64 + connection * connections
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(limit: u64, max_connections: usize) -> (usize, usize) {
        let server = Server {
            max_connections,
            ..Server::default()
        };
        let wanted = 200 + max_connections as u64 + SPARE_SOCKETS;
        let files = OpenFiles::divide(limit, wanted, 200, &server);
        (files.connections, files.sockets)
    }

    /// Kills: readers' files given to sockets; no socket left that is told 503; more connections
    /// than the setting says.
    #[test]
    fn what_is_left_is_divided_among_sockets() {
        assert_eq!(divided(100_000, 10_000), (10_000, 11_024));
        assert_eq!(divided(1_000, 10_000), (600, 800));
        assert_eq!(divided(1_000, 100), (100, 300));
        assert_eq!(divided(200, 100), (1, 1));
        assert_eq!(divided(10, 100), (1, 1));
    }
}
