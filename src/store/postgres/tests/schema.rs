//! The tables as the compiler knows them are those of the database.

use std::time::Duration;

use diesel_async::RunQueryDsl;

use super::{cluster, store};
use crate::store::{
    postgres::{link::Link, server::Server},
    schema::{entry, event, member, postgres::last_batch},
};

/// Kills: a column that the database does not have, or has with another type.
#[test]
fn every_column_is_there() {
    let url = cluster::database();
    store(&url);
    cluster::sql(
        &url,
        "INSERT INTO event VALUES (1, 2, NULL, 'x'); INSERT INTO entry VALUES (3, 1); \
         INSERT INTO member VALUES (repeat('a', 64), 'owner'); \
         INSERT INTO last_batch VALUES (4, 5, 6)",
    );
    let server = Server::new(&url).expect("a server");
    let mut link = Link::open(&server, Duration::from_secs(5), "").expect("a session");
    link.run(async |session| {
        let row: (i64, i64, Option<i64>, String) = event::table.first(session).await?;
        assert_eq!(row, (1, 2, None, "x".to_owned()));
        let row: (i64, i64) = entry::table.first(session).await?;
        assert_eq!(row, (3, 1));
        let row: (String, String) = member::table.first(session).await?;
        assert_eq!(row.1, "owner");
        let row: (i64, i64, i64) = last_batch::table.first(session).await?;
        assert_eq!(row, (4, 5, 6));
        Ok(())
    })
    .expect("all columns");
}
