//! Several relays on one database.

use std::{collections::HashMap, sync::Barrier, thread, time::Duration};

use buzz_actors::ports::{Outcome, StoreReader, StoreWriter};
use buzz_protocol::{Event, EventId, Filter, Pubkey, Tag};
use secp256k1::rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

use super::{cluster, options, reader, store, writer};
use crate::store::{
    postgres::PostgresStore,
    tests::{event, page, query, read, write},
};

fn ids_at(reader: &mut dyn StoreReader, committed: u64) -> Vec<EventId> {
    let mut query = query(vec![(Filter::default(), 500)]);
    query.committed = committed;
    page(reader, &mut query, usize::MAX).1
}

/// Kills: hiding what another relay wrote, showing one's own later batch, numbers that two relays
/// share.
#[test]
fn history_holds_what_others_wrote_and_not_ones_own_later_batches() {
    let url = cluster::database();
    let (a, b) = (store(&url), store(&url));
    let (mut write_a, mut write_b) = (writer(&a), writer(&b));
    let (mut read_a, mut read_b) = (reader(&a), reader(&b));
    let events: Vec<_> = (0..4)
        .map(|n| event(n, 1, 1, 40 - u64::from(n), vec![]))
        .collect();
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    write(&mut write_a, &events[..1], 1).expect("a batch");
    // Numbers far above A's own: they hide nothing, and nothing of A is hidden by them.
    write(&mut write_b, &events[1..2], 500).expect("a batch");
    write(&mut write_a, &events[2..3], 2).expect("a batch");
    assert_eq!(ids_at(&mut *read_a, 1), ids[..2]);
    assert_eq!(ids_at(&mut *read_a, 2), ids[..3]);
    assert_eq!(ids_at(&mut *read_b, 499), [ids[0], ids[2]]);
    assert_eq!(ids_at(&mut *read_b, 500), ids[..3]);
    assert_eq!(write_a.last_batch().expect("a number"), 2);
    assert_eq!(write_b.last_batch().expect("a number"), 500);
    // After a restart all that was there is history, and numbers begin anew.
    let again = store(&url);
    let mut write_again = writer(&again);
    assert_eq!(write_again.last_batch().expect("a number"), 0);
    assert_eq!(ids_at(&mut *reader(&again), 0), ids[..3]);
    write(&mut write_again, &events[3..], 1).expect("a batch");
    assert_eq!(ids_at(&mut *reader(&again), 0), ids[..3]);
    assert_eq!(ids_at(&mut *reader(&again), 1), ids);
}

/// Versions of few addresses, their deletions, notes and their deletions: what is left of them is
/// the same in whatever order they come.
fn rivals(random: &mut StdRng) -> Vec<Event> {
    let mut events = Vec::new();
    for n in 0..400_u32 {
        let author = random.random_range(1..3);
        let at = random.random_range(0..40);
        let word = ["x", "y"][random.random_range(0..2)];
        let address = format!("30000:{}:{word}", Pubkey([author; 32]));
        let (kind, tags) = match n % 4 {
            0 => (0, vec![]),
            1 => (30_000, vec![Tag::new(["d", word])]),
            2 => (1, vec![]),
            _ if n % 40 == 3 => (5, vec![Tag::new(["a", &address])]),
            _ => {
                let id = event(n - 1, author, 1, 0, vec![]).id.to_hex();
                (5, vec![Tag::new(["e", &id])])
            }
        };
        events.push(event(n, author, kind, at, tags));
    }
    events
}

/// What is left, whatever the order.
fn survivors(events: &[Event]) -> Vec<EventId> {
    let deleted = |event: &&Event| {
        events.iter().any(|other| {
            let id = other.tag_values("e").any(|id| id == event.id.to_hex());
            let address = event.kind == 30_000
                && other.tag_values("a").any(|address| {
                    let d = event.tag_values("d").next().unwrap_or_default();
                    address == format!("30000:{}:{d}", event.pubkey)
                })
                && event.created_at <= other.created_at;
            other.kind == 5 && event.kind != 5 && other.pubkey == event.pubkey && (id || address)
        })
    };
    let mut left: Vec<_> = events.iter().filter(|event| !deleted(event)).collect();
    let mut newest: HashMap<_, (u64, std::cmp::Reverse<EventId>)> = HashMap::new();
    for event in &left {
        let rank = (event.created_at, std::cmp::Reverse(event.id));
        if let Some(address) = event.address() {
            let best = newest.entry(address).or_insert(rank);
            *best = rank.max(*best);
        }
    }
    left.retain(|event| {
        event.address().is_none_or(|address| {
            newest.get(&address) == Some(&(event.created_at, std::cmp::Reverse(event.id)))
        })
    });
    left.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    left.iter().map(|event| event.id).collect()
}

/// Kills: a writer without the lock over all relays, or one that looks up before it has it.
#[test]
fn competing_versions_and_deletions_of_two_relays_end_like_those_of_one() {
    let url = cluster::database();
    for seed in 0..3 {
        let events = rivals(&mut StdRng::seed_from_u64(seed));
        let start = Barrier::new(2);
        let relay = |number: u64| {
            let random = &mut StdRng::seed_from_u64(seed * 10 + number);
            let mut order = events.clone();
            order.shuffle(random);
            let mut writer = writer(&store(&url));
            start.wait();
            let mut stored = Vec::new();
            let (mut rest, mut batch) = (&order[..], 0);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(random.random_range(1..=rest.len().min(12)));
                (rest, batch) = (later, batch + 1);
                let outcomes = write(&mut writer, now, batch).expect("a batch");
                let outcomes = now.iter().zip(outcomes);
                let new = outcomes.filter(|(_, outcome)| *outcome == Outcome::Stored);
                stored.extend(new.map(|(event, _)| event.id));
            }
            stored
        };
        let mut stored = thread::scope(|scope| {
            let other = scope.spawn(|| relay(1));
            let mut stored = relay(2);
            stored.extend(other.join().expect("a relay"));
            stored
        });
        let filter = Filter {
            limit: Some(1_000),
            ..Filter::default()
        };
        let left = read(&mut *reader(&store(&url)), filter);
        assert_eq!(left, survivors(&events), "seed {seed}");
        let count = stored.len();
        stored.sort_unstable();
        stored.dedup();
        assert_eq!(stored.len(), count, "an event was new twice");
        let lost = "SELECT count(*) FROM entry LEFT JOIN event USING (position) \
            WHERE event.position IS NULL";
        assert_eq!(cluster::sql(&url, lost), "0");
        cluster::sql(&url, "TRUNCATE event, entry");
    }
}

/// Kills: migrations without their lock.
#[test]
fn relays_that_start_at_once_do_not_race_for_the_tables() {
    for _ in 0..3 {
        let url = cluster::database();
        let start = Barrier::new(6);
        thread::scope(|scope| {
            let relay = || {
                start.wait();
                writer(&PostgresStore::open(&options(&url)).expect("a store"));
            };
            for _ in 0..6 {
                scope.spawn(relay);
            }
        });
        assert_eq!(cluster::sql(&url, "SELECT count(*) FROM last_batch"), "6");
    }
}

fn replayed(primary: &str, replica: &str) {
    let at = cluster::sql(primary, "SELECT pg_current_wal_lsn()");
    let there = format!("SELECT pg_last_wal_replay_lsn() >= '{at}'");
    for _ in 0..500 {
        if cluster::sql(replica, &there) == "t" {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the replica does not follow");
}

/// Kills: reading what is committed from a replica that has not got it yet, reading nothing while
/// the replica is down, staying away from one that is back, asking it for roles.
#[test]
fn a_replica_serves_history_that_it_has_and_the_primary_the_rest() {
    let primary = cluster::Cluster::start();
    let url = primary.database();
    store(&url);
    let replica = primary.replica();
    let replica_url = replica.url(url.rsplit('/').next().expect("a name"));
    let store = PostgresStore::open(&crate::store::Options {
        replica_url: Some(replica_url.clone()),
        ..options(&url)
    });
    let store = store.expect("a store");
    let (mut writer, mut reader) = (writer(&store), reader(&store));
    let events: Vec<_> = (0..3)
        .map(|n| event(n, 1, 1, 40 - u64::from(n), vec![]))
        .collect();
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    write(&mut writer, &events[..1], 1).expect("a batch");
    replayed(&url, &replica_url);
    assert_eq!(ids_at(&mut *reader, 1), ids[..1]);

    // What another relay wrote may come later: that is how to see who answers.
    cluster::sql(&replica_url, "SELECT pg_wal_replay_pause()");
    let other = self::store(&url);
    write(&mut self::writer(&other), &events[1..2], 1).expect("a batch");
    assert_eq!(ids_at(&mut *reader, 1), ids[..1], "the replica answers");
    // A batch of this relay that the replica lacks: the primary answers.
    write(&mut writer, &events[2..], 7).expect("a batch");
    assert_eq!(ids_at(&mut *reader, 7), ids);
    // Queries that began before it do not wait for it; later numbers that changed nothing do not count.
    assert_eq!(ids_at(&mut *reader, 1), ids[..1]);
    cluster::sql(&replica_url, "SELECT pg_wal_replay_resume()");
    replayed(&url, &replica_url);
    cluster::sql(&replica_url, "SELECT pg_wal_replay_pause()");
    write(&mut self::writer(&other), &[event(9, 1, 1, 1, vec![])], 2).expect("a batch");
    assert_eq!(ids_at(&mut *reader, 99), ids, "the replica answers again");

    replica.kill();
    assert_eq!(ids_at(&mut *reader, 99).len(), 4, "the primary answers");
    replica.up();
    cluster::sql(&replica_url, "SELECT pg_wal_replay_pause()");
    let marker = event(10, 1, 1, 2, vec![]);
    write(&mut self::writer(&other), std::slice::from_ref(&marker), 3).expect("a batch");
    let back = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        !ids_at(&mut *reader, 99).contains(&marker.id)
    });
    assert!(back, "the replica is asked again");
    // Roles come from the primary, whatever the replica has.
    let key = Pubkey([7; 32]);
    let role = Some(buzz_actors::ports::Role::Owner);
    writer.set_role(&key, role).expect("a change");
    assert_eq!(reader.role(&key).expect("a role"), role);
}
