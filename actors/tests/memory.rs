//! What admission's memory of principals costs, in a process of its own, so that nothing else is
//! measured.

use std::time::Instant;

use buzz_actors::admission::{Budgets, Cost, Fingerprint, Quota, QuotaClass, Quotas, Rates};

const PRINCIPALS: u64 = 1_000_000;

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.expect("a size") / 1024
}

/// Kills: memory for a principal that grows beyond what its frames need; principals that are
/// forgotten while their windows run; idle ones that are kept.
#[test]
fn a_million_principals_in_a_minute_cost_less_than_150_megabytes() {
    let rates = Rates {
        frames: Quota {
            limit: 50,
            window_ms: 5_000,
        },
        messages: Quota::per_minute(60),
        api_calls: Quota::per_minute(300),
    };
    let quotas = Quotas {
        human: rates,
        agent: rates,
    };
    let (before, began) = (resident_mib(), Instant::now());
    let mut budgets = Budgets::new(quotas, 1 << 20);
    for number in 0..PRINCIPALS {
        let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        let who = Fingerprint(hash ^ number << 40, number);
        let now_ms = number * 60 / 1000;
        budgets.spend(who, QuotaClass::Human, &[Cost::StoredEvent], now_ms);
    }
    let grown = resident_mib() - before;
    println!(
        "{grown} MiB, {} ns a frame",
        began.elapsed().as_nanos() / u128::from(PRINCIPALS)
    );
    assert_eq!(budgets.len() as u64, PRINCIPALS);
    assert!(grown * 1024 * 1024 < 150_000_000, "{grown} MiB");
    budgets.expire(200_000, usize::MAX);
    assert_eq!(budgets.len(), 0);
}
