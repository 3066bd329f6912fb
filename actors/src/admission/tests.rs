use std::collections::VecDeque;

use buzz_testkit::admission_cases::CASES;
use proptest::prelude::*;

use super::{
    bounded::{Bounded, Fingerprint},
    budgets::Budgets,
    guards::{GuardSettings, Guards},
    quota::{Cost, Principal, Quota, QuotaClass, Quotas, Rates, Verdict},
};

fn quotas(frames: (u32, u32), messages: u32) -> Quotas {
    let rates = Rates {
        frames: Quota {
            limit: frames.0,
            window_ms: frames.1 * 1000,
        },
        messages: Quota::per_minute(messages),
        api_calls: Quota::OFF,
    };
    Quotas {
        human: rates,
        agent: rates,
    }
}

fn costs(text: &str) -> Vec<Cost> {
    let cost = |c| match c {
        'f' => Cost::Frame,
        'm' => Cost::StoredEvent,
        other => panic!("{other}"),
    };
    text.chars().map(cost).collect()
}

fn secs(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Admitted => 0,
        Verdict::Exceeded { retry_in_secs } => retry_in_secs.get(),
        Verdict::Unavailable => panic!("nobody was asked"),
    }
}

const ME: Fingerprint = Fingerprint(1, 2);

/// Mutants: `<` for `<=` at the limit or at the window's end; a window that begins at a multiple
/// of its length; seconds rounded down; a refusal that is counted, or moves the end; a message
/// that costs half of its price; a limit of zero that refuses.
#[test]
fn what_is_admitted_when() {
    // The second start is a millisecond before the 32-bit clock wraps, in the middle of a case.
    for start in [0, u64::from(u32::MAX) - 4_000, 1 << 40] {
        for case in CASES {
            let mut budgets = Budgets::new(quotas(case.frames, case.messages), 10);
            for &(at, text, expected) in case.steps {
                let verdicts = budgets.spend(ME, QuotaClass::Human, &costs(text), start + at);
                let found: Vec<_> = verdicts.into_iter().map(secs).collect();
                assert_eq!(found, expected, "{}: at {at} from {start}", case.name);
            }
        }
    }
}

proptest! {
    /// Against a log without tricks: never more than the limit in any window, what is refused is
    /// refused until the hint is over and admitted then. Mutants: entries dropped too early or
    /// kept for ever; a hint that is a second off.
    #[test]
    fn any_window_holds_at_most_the_limit(
        limit in 1u32..8, window in 1u32..4,
        gaps in proptest::collection::vec(0u64..2_000, 1..200),
    ) {
        let mut budgets = Budgets::new(quotas((limit, window), 0), 10);
        let window = u64::from(window) * 1000;
        let (mut now, mut closed_until) = (0, 0);
        let mut log = VecDeque::new();
        for gap in gaps {
            now += gap;
            let found = secs(budgets.spend(ME, QuotaClass::Human, &[Cost::Frame], now)[0]);
            while log.front().is_some_and(|t| now - t >= window) {
                log.pop_front();
            }
            let wait = match log.len() >= limit as usize {
                _ if now < closed_until => closed_until - now,
                true => log[log.len() - limit as usize] + window - now,
                false => 0,
            };
            let expected = u32::try_from(wait.div_ceil(1000)).expect("short");
            prop_assert_eq!(found, expected, "at {}", now);
            if expected == 0 {
                log.push_back(now);
            } else if now >= closed_until {
                closed_until = now + u64::from(expected) * 1000;
            }
        }
    }
}

/// Mutants: one budget for all; one class of quotas for both parties.
#[test]
fn principals_and_parties_are_apart() {
    let mut quotas = quotas((1, 5), 0);
    quotas.agent.frames.limit = 3;
    let mut budgets = Budgets::new(quotas, 10);
    let all = costs("ffff");
    let mut admitted = |who, class| {
        let verdicts = budgets.spend(who, class, &all, 0);
        verdicts.into_iter().filter(|v| secs(*v) == 0).count()
    };
    assert_eq!(admitted(Fingerprint(1, 1), QuotaClass::Human), 1);
    assert_eq!(admitted(Fingerprint(1, 2), QuotaClass::Human), 1);
    assert_eq!(admitted(Fingerprint(2, 1), QuotaClass::Agent), 3);
}

/// Mutants: a table without a bound; the newest forgotten instead of the oldest; a new principal
/// that is not counted when the table is full.
#[test]
fn a_full_table_forgets_who_was_silent_longest_and_counts_the_new_one() {
    let mut budgets = Budgets::new(quotas((1, 5), 0), 3);
    let mut spend = |who: u64, now| {
        let found = budgets.spend(Fingerprint(who, 0), QuotaClass::Human, &[Cost::Frame], now);
        (secs(found[0]), budgets.len(), budgets.shed())
    };
    for who in 0..3 {
        assert_eq!(spend(who, who), (0, who as usize + 1, 0));
    }
    // The first speaks again: now the second is the one that was silent longest.
    assert_eq!(spend(0, 3), (5, 3, 0));
    assert_eq!(spend(3, 4), (0, 3, 1));
    assert_eq!(spend(3, 5).0, 5, "the new one is counted");
    assert_eq!(spend(0, 6).0, 5, "the first is still known");
    assert_eq!(spend(1, 7), (0, 3, 2), "the second is not");
}

/// Mutants: idle principals kept; active ones dropped; a reused place that keeps its old budget.
#[test]
fn who_is_idle_expires_and_memory_goes_with_the_last() {
    let mut table: Bounded<u64> = Bounded::new(10_000, 1_000);
    for n in 0..5_000 {
        *table.seen(Fingerprint(n, n), n).0 = n + 1;
    }
    table.expire(3_000, usize::MAX);
    assert_eq!(table.len(), 2_999, "those of 2001 and later");
    for n in 0..2_001 {
        assert_eq!(
            *table.seen(Fingerprint(n, n), 5_000).0,
            0,
            "{n} begins anew"
        );
    }
    assert_eq!(*table.seen(Fingerprint(2_001, 2_001), 2_999).0, 2_002);
    table.expire(6_000, usize::MAX);
    assert_eq!(table.len(), 0);
    // Idle, but nobody came by to forget it.
    *table.seen(ME, 7_000).0 = 7;
    assert_eq!(*table.seen(ME, 8_000).0, 0);
}

/// Mutants: the whole IPv6 address; a mapped IPv4 address as another.
#[test]
fn an_address_is_its_network() {
    let of = |text: &str| Principal::address(text.parse().expect("an address")).to_string();
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "ip:2001:db8:1:2::");
    assert_eq!(of("2001:db8:1:2::9"), of("2001:db8:1:2:3:4:5:6"));
    assert_ne!(of("2001:db8:1:3::9"), of("2001:db8:1:2::9"));
    assert_eq!(of("::ffff:10.1.2.3"), "ip:10.1.2.3");
}

/// Mutants: places never given back; a refused handshake that takes a place.
#[test]
fn an_address_has_so_many_sockets_and_handshakes() {
    let settings = GuardSettings {
        connections: 2,
        handshakes: Quota::per_minute(4),
        invalid_signatures: Quota::per_minute(3),
    };
    let mut guards = Guards::new(settings, 10);
    assert!(guards.open_socket(ME, 0).is_ok() && guards.open_socket(ME, 0).is_ok());
    assert!(guards.open_socket(ME, 0).is_err(), "two are open");
    assert!(
        guards.open_socket(Fingerprint(9, 9), 0).is_ok(),
        "another address"
    );
    guards.close_socket(ME);
    assert!(guards.open_socket(ME, 10).is_ok());
    guards.close_socket(ME);
    assert_eq!(guards.open_socket(ME, 500).map_err(u32::from), Err(60));
    assert!(guards.open_socket(ME, 60_499).is_err());
    assert!(guards.open_socket(ME, 60_500).is_ok());

    assert_eq!(guards.invalid_signatures(ME, 3, 0), None);
    assert_eq!(guards.invalid_signatures(ME, 1, 0).map(u32::from), Some(60));
    assert_eq!(guards.invalid_signatures(Fingerprint(9, 9), 3, 0), None);
}
