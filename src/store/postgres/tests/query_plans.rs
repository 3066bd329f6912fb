//! No statement reads more than it must: no scan of a table, and no sorting where an index has the
//! order.

use diesel::{debug_query, pg::Pg};

use super::{cluster, store};
use crate::store::{
    postgres::{link, statement},
    statements::{expired, role_of},
};

/// What each statement's values are.
fn values(name: &str) -> &'static str {
    match name {
        "WalkKey" | "KeyPositions" => "1::bigint, 9::bigint, 0::bigint, 5::bigint",
        "WalkTime" | "AllPositions" => "9::bigint, 0::bigint, 5::bigint",
        "AtPositions" | "InBlocks" | "OfKeys" | "RemoveEvents" => "'{1,2}'::bigint[]",
        "Heads" => "'{1,2}'::bigint[], 9::bigint, 0::bigint, 4::bigint",
        "expired" => "0::bigint, 5::bigint, 5::bigint",
        "RemoveEntries" => "'{1,2}'::bigint[], '{1,2}'::bigint[]",
        "role_of" => "'x'::text",
        _ => "",
    }
}

/// The statement as a session of the relay has it planned.
fn plan(url: &str, name: &str, text: &str) -> Option<String> {
    let values = values(name);
    if values.is_empty() {
        return None;
    }
    let types: Vec<_> = values
        .split(", ")
        .filter_map(|value| value.split("::").nth(1))
        .collect();
    let script = format!(
        "{}PREPARE s({}) AS {text}; EXPLAIN EXECUTE s({values})",
        link::PLANS,
        types.join(", "),
    );
    Some(cluster::sql(url, &script))
}

/// `$1`, `$2` and so on for the values.
fn numbered(text: &str) -> String {
    let mut pieces = text.split('?');
    let mut numbered = pieces.next().unwrap_or_default().to_owned();
    for (piece, number) in pieces.zip(1..) {
        numbered += &format!("${number}{piece}");
    }
    numbered
}

fn filled() -> String {
    let url = cluster::database();
    store(&url);
    cluster::sql(
        &url,
        "INSERT INTO event SELECT n * 97, 1, NULLIF(n % 9, 1), repeat('x', 300) \
         FROM generate_series(1, 20000) AS n; \
         INSERT INTO entry SELECT n % 50, n * 97 FROM generate_series(1, 20000) AS n; \
         INSERT INTO entry SELECT 1000 + n, n * 97 FROM generate_series(1, 20000) AS n; \
         ANALYZE",
    );
    url
}

/// Kills: a missing index, `ANY` where `eq` keeps the order, a bound that no index knows.
#[test]
fn every_statement_searches_and_no_walk_sorts() {
    let url = filled();
    let mut looked_at = 0;
    let texts = statement::TEXTS.iter();
    let texts = texts.map(|(name, text)| (*name, numbered(text)));
    let text_of = |text: String| text.split(" -- binds").next().map(str::to_owned);
    let fixed = [
        ("expired", debug_query::<Pg, _>(&expired(1, 1)).to_string()),
        ("role_of", debug_query::<Pg, _>(&role_of("x")).to_string()),
    ];
    let fixed = fixed.map(|(name, text)| (name, text_of(text).expect("a text")));
    for (name, text) in texts.chain(fixed) {
        let Some(plan) = plan(&url, name, &text) else {
            continue;
        };
        looked_at += 1;
        // A table of one page may be read as it is.
        assert!(
            name == "role_of" || !plan.contains("Seq Scan"),
            "{name}:\n{plan}"
        );
        // Only what comes by a list of positions is sorted: as many rows as were asked for.
        let sorts = plan.contains("Sort") || plan.contains("Hash") || plan.contains("Bitmap");
        assert!(name == "AtPositions" || !sorts, "{name}:\n{plan}");
    }
    assert!(looked_at >= 12, "{looked_at} plans");
}
