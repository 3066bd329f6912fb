//! The tables as the compiler knows them are those of the database.

use diesel::prelude::*;

use super::{Fixture, event};
use crate::store::schema::{entry, event as events, member, sqlite::last_batch};

/// Kills: a column that the database does not have, or has with another type.
#[test]
fn every_column_is_there() {
    let mut fixture = Fixture::new();
    fixture.write(&[event(1, 1, 1, 10, vec![])], 7);
    let mut connection = fixture.store.connect_writer().expect("a connection");
    let row = (member::pubkey.eq("a".repeat(64)), member::role.eq("owner"));
    let insert = diesel::insert_into(member::table).values(row);
    insert.execute(&mut connection).expect("a member");
    let connection = &mut connection;
    let row: (i64, i64, Option<i64>, String) = events::table.first(connection).expect("a row");
    assert_eq!((row.1, row.2), (7, None));
    let entries: Vec<(i64, i64)> = entry::table.load(connection).expect("rows");
    assert!(entries.iter().all(|(_, position)| *position == row.0));
    let row: (String, String) = member::table.first(connection).expect("a row");
    assert_eq!(row.1, "owner");
    let row: (i64, i64) = last_batch::table.first(connection).expect("a row");
    assert_eq!(row, (0, 7));
}
