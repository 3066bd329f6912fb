use buzz_actors::admission::{Principal, Quota, QuotaClass, Rates};
use buzz_testkit::admission_cases::CASES;

use super::*;

/// The budget that relays share on `server`, with the same limits for humans and agents.
fn shared(server: &buzz_testkit::Redis, frames: (u32, u32), messages: u32) -> Redis {
    let url = server.url();
    let rates = Rates {
        frames: Quota {
            limit: frames.0,
            window_ms: frames.1 * 1000,
        },
        messages: Quota::per_minute(messages),
        api_calls: Quota::OFF,
    };
    Redis {
        client: Client::open(&*url).expect("a URL"),
        shown: url,
        script: Script::new(include_str!("spend.lua")),
        quotas: Quotas {
            human: rates,
            agent: rates,
        },
        timeout: Duration::from_secs(10),
    }
}

fn ask(number: usize, text: &str) -> SharedAsk {
    let spend = |c| match c {
        'f' => Cost::Frame,
        _ => Cost::StoredEvent,
    };
    let address = std::net::Ipv4Addr::from(u32::try_from(number).expect("small"));
    SharedAsk {
        principal: Principal::address(address.into()),
        class: QuotaClass::Human,
        costs: text.chars().map(spend).collect(),
    }
}

/// The same list as for the local table. Mutants: any difference between the script and log.rs.
#[tokio::test]
async fn redis_admits_what_the_local_table_admits() {
    let server = buzz_testkit::Redis::start().await;
    for (number, case) in CASES.iter().enumerate() {
        let redis = shared(&server, case.frames, case.messages);
        let mut connection = redis.connect().await.expect("a connection");
        for &(at, text, expected) in case.steps {
            let start = 1_764_500_000_000;
            let command = redis.command(&ask(number, text), Some(start + at));
            let found: Vec<u32> = command
                .query_async(&mut connection)
                .await
                .expect("an answer");
            assert_eq!(found, expected, "{}: at {at}", case.name);
        }
    }
}

/// Mutants: a time that is not Redis's own; keys without an end; a script that is lost for good
/// when Redis forgets it; an ask that is counted twice when it is repeated.
#[tokio::test]
async fn the_script_is_loaded_again_and_keys_end_by_themselves() {
    let server = buzz_testkit::Redis::start().await;
    let redis = shared(&server, (2, 60), 1);
    let mut connection = redis.connect().await.expect("a connection");
    let (one, other) = (ask(1, "m"), ask(2, "ff"));
    let first = redis
        .ask(&mut connection, &[&one, &other])
        .await
        .expect("answers");
    assert_eq!(first, [vec![Verdict::Admitted], vec![Verdict::Admitted; 2]]);
    let _: () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut connection)
        .await
        .expect("flushed");
    let again = redis
        .ask(&mut connection, &[&other, &one])
        .await
        .expect("answers");
    assert!(matches!(
        again[0][..],
        [Verdict::Exceeded { .. }, Verdict::Exceeded { .. }]
    ));
    assert!(matches!(again[1][..], [Verdict::Exceeded { .. }]));
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut connection)
        .await
        .expect("keys");
    assert!(keys.len() >= 3, "{keys:?}");
    for key in keys {
        let left: i64 = redis::cmd("PTTL")
            .arg(&key)
            .query_async(&mut connection)
            .await
            .expect("a time");
        assert!((1..=61_000).contains(&left), "{key} lives for {left} ms");
    }
}
