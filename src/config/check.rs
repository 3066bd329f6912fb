//! The bounds that the settings' types don't hold. What passes here, the relay can start with, as
//! far as that can be known without starting it.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use buzz_protocol::url::Url;

use super::{Config, Database, Server, mask_password};
use crate::store;

/// The key that is wrong, and why.
pub(crate) type Wrong = (&'static str, String);

/// More would each cost a thread and a database connection that no machine has a core for.
const MAX_READERS: usize = 1000;

impl Config {
    /// Everything that is wrong.
    pub(super) fn check(&self) -> Vec<Wrong> {
        let max_limit = self.limits.max_limit.try_into().unwrap_or(usize::MAX);
        let mut wrong: Vec<Wrong> = [
            ("server.max_frame_bytes", self.server.max_frame_bytes),
            ("server.max_connections", self.server.max_connections),
            ("server.handler_permits", self.server.handler_permits),
            ("server.send_queue", self.server.send_queue),
            ("limits.max_subscriptions", self.limits.max_subscriptions),
            ("limits.max_filters", self.limits.max_filters),
            ("limits.max_subid_length", self.limits.max_subid_length),
            ("database.readers", self.database.readers),
            ("limits.max_limit", max_limit),
        ]
        .into_iter()
        .filter(|(_, value)| *value == 0)
        .map(|(key, _)| (key, "must be at least 1".into()))
        .collect();
        if self.auth.recheck < Duration::from_millis(100) {
            wrong.push(("auth.recheck", "must be at least 100ms".into()));
        }
        if self.history.statement_timeout.as_millis() == 0 {
            let why = "must be at least 1ms".into();
            wrong.push(("history.statement_timeout", why));
        }
        self.server.check(&mut wrong);
        self.database.check(&mut wrong);
        self.admission.check(&mut wrong);
        self.feature_flags.check(&mut wrong);
        self.telemetry.check(&mut wrong);
        wrong
    }
}

impl Server {
    fn check(&self, wrong: &mut Vec<Wrong>) {
        let url = &self.url;
        let is_address =
            Url::parse(url).is_some_and(|url| url.user.is_none() && !url.rest.contains(['?', '#']));
        if !url.starts_with("ws://") && !url.starts_with("wss://") {
            let why = format!("`{url}` does not start with ws:// or wss://");
            wrong.push(("server.url", why));
        } else if !is_address {
            let why = "is no address such as wss://relay.example or ws://host:3000/path";
            wrong.push(("server.url", format!("`{url}` {why}")));
        }
        if collide(self.listen, self.admin_listen) {
            let why = format!(
                "{} and server.listen ({}) can't both be listened on",
                self.admin_listen, self.listen
            );
            wrong.push(("server.admin_listen", why));
        }
    }
}

/// Whether two sockets can't listen there at once. The address `::` takes IPv4's connections too.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let (here, there) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers = |all: IpAddr, ip: IpAddr| {
        all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4() || ip.is_unspecified())
    };
    one.port() != 0
        && one.port() == other.port()
        && (here == there || covers(here, there) || covers(there, here))
}

impl Database {
    fn check(&self, wrong: &mut Vec<Wrong>) {
        let shown = mask_password(&self.url);
        let mut url_is = |why: String| wrong.push(("database.url", why));
        if let Some(path) = self.url.strip_prefix("sqlite://") {
            if path.is_empty() || path.ends_with('/') || Path::new(path).is_dir() {
                url_is(format!("`{shown}` names no file"));
            } else if path == ":memory:" || path.starts_with("file:") {
                let why = "is not a file: several connections share the database";
                url_is(format!("`{shown}` {why}, so it must be one"));
            } else if path.contains('?') {
                let why = "has parameters (`?`), and a file's URL has none";
                url_is(format!("`{shown}` {why}"));
            }
        } else if store::is_postgres(&self.url) {
            if let Err(error) = store::postgres::check_url(&self.url) {
                url_is(error.to_string());
            }
        } else {
            url_is(format!(
                "`{shown}` does not start with sqlite:// or postgres://"
            ));
        }
        self.check_replica(wrong);
        if self.readers > MAX_READERS {
            wrong.push(("database.readers", format!("must be at most {MAX_READERS}")));
        }
    }

    fn check_replica(&self, wrong: &mut Vec<Wrong>) {
        let replica = &self.replica_url;
        let shown = mask_password(replica);
        let why = if replica.is_empty() {
            return;
        } else if !store::is_postgres(&self.url) {
            "only a PostgreSQL database has replicas".to_owned()
        } else if !store::is_postgres(replica) {
            format!("`{shown}` does not start with postgres://")
        } else if let Err(error) = store::postgres::check_url(replica) {
            error.to_string()
        } else {
            return;
        };
        wrong.push(("database.replica_url", why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: only equal addresses compared; different ports refused; port 0 refused.
    #[test]
    fn addresses_collide_where_one_holds_the_other() {
        for (one, other, is_taken) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(collide(one, other), is_taken, "{one} {other}");
            assert_eq!(collide(other, one), is_taken, "{other} {one}");
        }
    }
}
