//! No statement reads more than it must: no scan of a table, no sorting.

use buzz_protocol::{Filter, Pubkey};
use diesel::{
    QueryableByName, RunQueryDsl, debug_query, sql_query, sql_types::Text, sqlite::Sqlite,
};

use super::{Fixture, event};
use crate::store::{
    sqlite::statement,
    statements::{expired, role_of},
};

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

#[test]
fn every_statement_searches_and_none_sorts() {
    let fixture = Fixture::new();
    let mut connection = fixture.store.connect_reader().expect("a connection");
    let text_of = |text: String| text.split(" -- binds").next().map(str::to_owned);
    let fixed = [
        (
            "expired",
            debug_query::<Sqlite, _>(&expired(1, 1)).to_string(),
        ),
        (
            "role_of",
            debug_query::<Sqlite, _>(&role_of("x")).to_string(),
        ),
    ];
    let fixed = fixed.map(|(name, text)| (name, text_of(text).expect("a text")));
    for (name, text) in statement::texts().into_iter().chain(fixed) {
        let text = text.replace('?', "1");
        let steps = sql_query(format!("EXPLAIN QUERY PLAN {text}"));
        let steps = steps.load::<Step>(&mut connection).expect("a plan");
        for Step { detail } in steps {
            let scans = detail.starts_with("SCAN")
                && !detail.contains("CONSTANT ROW")
                && !detail.contains("VALUES")
                // The values of a statement.
                && !["SCAN wanted", "SCAN block"].contains(&detail.as_str());
            assert!(
                !scans && !detail.contains("TEMP B-TREE"),
                "{name}: {detail}: {text}"
            );
        }
    }
}

#[test]
fn five_hundred_authors_with_a_limit_do_not_read_everything() {
    let mut fixture = Fixture::new();
    // Two authors of 3,000 events are asked for; the 498 others have none.
    let events: Vec<_> = (0..6_000)
        .map(|i| {
            event(
                i,
                if i % 2 == 0 { 1 } else { (i % 97) as u8 + 100 },
                1,
                u64::from(i) + 10,
                vec![],
            )
        })
        .collect();
    for (batch, events) in events.chunks(1_000).enumerate() {
        fixture.write(events, batch as u64);
    }
    let unknown = (0..498_u16).map(|i| {
        let mut key = Pubkey([50; 32]);
        key.0[..2].copy_from_slice(&i.to_be_bytes());
        key
    });
    let authors = unknown
        .chain([Pubkey([1; 32]), Pubkey([100; 32])])
        .collect();
    let filter = Filter {
        authors: Some(authors),
        limit: Some(50),
        ..Filter::default()
    };
    let before = statement::rows_read();
    let ids = fixture.read(filter.clone());
    let read = statement::rows_read() - before;
    let expected = events.iter().rev().filter(|event| filter.matches(event));
    assert_eq!(
        ids,
        expected.take(50).map(|event| event.id).collect::<Vec<_>>()
    );
    assert!(read < 1_500, "{read} rows were read for 50 of 6,000");
}
