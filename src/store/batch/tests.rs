use buzz_protocol::{Sig, Tag};

use super::*;
use Outcome::{Deleted, Duplicate, NoRoom, Stored, Superseded};

fn event(first: u8, kind: u16, created_at: u64, tags: &[[&str; 2]]) -> Event {
    let mut id = EventId([9; 32]);
    // The last byte only: all these ids share a block where they share the second.
    id.0[31] = first;
    Event {
        id,
        pubkey: Pubkey([1; 32]),
        created_at,
        kind,
        tags: tags.iter().map(|tag| Tag::new(*tag)).collect(),
        content: String::new(),
        sig: Sig([0; 64]),
    }
}

/// Decides on `events` against `stored`, which lie at the positions given; passes the changes on.
fn decided<T>(
    stored: &[(i64, &Event)],
    events: &[Event],
    look: impl FnOnce(&ChangeSet<'_>) -> T,
) -> (Vec<Outcome>, T) {
    let stored = stored.iter().map(|(position, event)| StoredRow {
        position: *position,
        batch: 1,
        expires_at: expires_at(event),
        json: event.to_json(),
    });
    let stored: Vec<_> = stored.collect();
    let jsons: Vec<_> = events.iter().map(Event::to_json).collect();
    let events = events.iter().zip(&jsons);
    let events: Vec<_> = events
        .map(|(event, json)| Incoming { event, json })
        .collect();
    let changes = decide(&events, &stored, 2).expect("changes");
    let seen = look(&changes);
    (changes.outcomes, seen)
}

fn home(event: &Event) -> i64 {
    position::home(event.created_at, &event.id)
}

#[test]
fn of_fifty_versions_in_one_batch_one_row_is_written() {
    let versions: Vec<_> = (0..50)
        .map(|i| event(i, 0, u64::from(i) * 7 % 50, &[]))
        .collect();
    let (outcomes, rows) = decided(&[], &versions, |changes| {
        assert!(changes.removed.is_empty());
        changes
            .rows
            .iter()
            .map(|row| row.position)
            .collect::<Vec<_>>()
    });
    assert_eq!(rows, [position::home(49, &versions[7].id)]);
    assert_eq!(outcomes[0], Stored);
    assert_eq!(outcomes[49], Superseded);
}

#[test]
fn equal_times_are_decided_by_the_lowest_id_in_either_order() {
    let (low, high) = (event(1, 0, 5, &[]), event(2, 0, 5, &[]));
    let outcomes = |events: &[Event]| decided(&[], events, |changes| changes.rows.len());
    assert_eq!(
        outcomes(&[low.clone(), high.clone()]),
        (vec![Stored, Superseded], 1)
    );
    assert_eq!(outcomes(&[high, low]), (vec![Stored, Stored], 1));
}

#[test]
fn an_address_without_d_with_d_alone_and_with_an_empty_d_is_one() {
    let mut bare = event(2, 30_000, 6, &[]);
    bare.tags = vec![Tag::new(["d"])];
    let versions = [
        event(1, 30_000, 5, &[]),
        bare,
        event(3, 30_000, 7, &[["d", ""]]),
    ];
    assert_eq!(
        decided(&[], &versions, |changes| changes.rows.len()),
        (vec![Stored; 3], 1)
    );
}

#[test]
fn a_kind_that_is_not_addressable_is_not_replaced_by_its_d_tag() {
    let notes = [event(1, 1, 5, &[["d", "x"]]), event(2, 1, 5, &[["d", "x"]])];
    assert_eq!(
        decided(&[], &notes, |changes| changes.rows.len()),
        (vec![Stored; 2], 2)
    );
}

#[test]
fn a_deletion_works_before_and_after_its_target_and_in_the_same_batch() {
    let target = event(1, 1, 5, &[]);
    let deletion = event(2, 5, 4, &[["e", &target.id.to_hex()]]);
    let both = [target.clone(), deletion.clone(), target.clone()];
    let (outcomes, rows) = decided(&[], &both, |changes| changes.rows.len());
    assert_eq!((outcomes, rows), (vec![Stored, Stored, Deleted], 1));
    let later = [target.clone()];
    let (outcomes, rows) = decided(&[(home(&deletion), &deletion)], &later, |changes| {
        changes.rows.len()
    });
    assert_eq!((outcomes, rows), (vec![Deleted], 0));
    let (_, removed) = decided(&[(home(&target), &target)], &[deletion], |changes| {
        changes.removed.clone()
    });
    assert_eq!(removed, [home(&target)]);
}

#[test]
fn a_deletion_of_another_key_or_of_a_deletion_does_nothing() {
    let target = event(1, 1, 5, &[]);
    let mut foreign = event(2, 5, 6, &[["e", &target.id.to_hex()]]);
    foreign.pubkey = Pubkey([7; 32]);
    let deletion = event(3, 5, 6, &[]);
    let of_deletion = event(4, 5, 7, &[["e", &deletion.id.to_hex()]]);
    let stored = [(home(&target), &target), (home(&deletion) - 8, &deletion)];
    let events = [foreign, of_deletion, deletion.clone(), target.clone()];
    let (outcomes, removed) = decided(&stored, &events, |changes| changes.removed.len());
    assert_eq!(
        (outcomes, removed),
        (vec![Stored, Stored, Duplicate, Duplicate], 0)
    );
}

#[test]
fn a_deletion_of_an_address_takes_what_is_not_newer_and_nothing_else() {
    let address = format!("30000:{}:x", Pubkey([1; 32]));
    let other = event(1, 30_000, 4, &[["d", "y"]]);
    let note = event(2, 1, 4, &[["d", "x"]]);
    let version = event(3, 30_000, 5, &[["d", "x"]]);
    let deletion = event(4, 5, 5, &[["a", &address]]);
    let stored = [
        (home(&other), &other),
        (home(&note) - 8, &note),
        (home(&version), &version),
    ];
    let late = [
        deletion.clone(),
        version.clone(),
        event(5, 30_000, 6, &[["d", "x"]]),
    ];
    let (outcomes, removed) = decided(&stored, &late, |changes| changes.removed.clone());
    assert_eq!(
        (outcomes, removed),
        (vec![Stored, Deleted, Stored], vec![home(&version)])
    );
    let early = event(4, 5, 4, &[["a", &address]]);
    let (outcomes, removed) = decided(&stored, &[early], |changes| changes.removed.len());
    assert_eq!((outcomes, removed), (vec![Stored], 0));
}

#[test]
fn ids_that_share_a_block_stand_in_order_until_it_is_full() {
    // In an order that leaves no gaps again and again.
    let events: Vec<_> = (0..33_u32)
        .map(|i| event((i * 13 % 33) as u8, 1, 5, &[]))
        .collect();
    let mut stored: Vec<(i64, &Event)> = Vec::new();
    for new in &events[..32] {
        let (outcomes, moved) = decided(&stored, std::slice::from_ref(new), |changes| {
            let row = |row: &NewRow<'_>| (row.position, json_layout::id(row.json.as_bytes()));
            (
                changes.removed.clone(),
                changes.rows.iter().map(row).collect::<Vec<_>>(),
            )
        });
        assert_eq!(outcomes, [Stored]);
        stored.retain(|(position, _)| !moved.0.contains(position));
        let find = |id| {
            events
                .iter()
                .find(|event| Some(event.id) == id)
                .expect("its event")
        };
        stored.extend(
            moved
                .1
                .into_iter()
                .map(|(position, id)| (position, find(id))),
        );
        stored.sort_unstable_by_key(|(position, _)| *position);
        assert!(stored.is_sorted_by(|a, b| a.0 < b.0 && a.1.id > b.1.id));
        assert!(
            stored
                .iter()
                .all(|(at, _)| position::block(*at) == position::block(home(new)))
        );
    }
    assert_eq!(stored.len(), 32);
    assert_eq!(
        decided(&stored, &events[32..], |changes| changes.is_empty()),
        (vec![NoRoom], true)
    );
}

#[test]
fn an_expired_deletion_is_hidden_and_out_of_the_purges_reach() {
    let deletion = event(1, 5, 5, &[["expiration", "10"]]);
    let note = event(1, 1, 5, &[["expiration", "10"]]);
    assert_eq!(expires_at(&note), Some(10));
    assert!(expires_at(&deletion).is_some_and(|at| at < 0));
    for column in [expires_at(&note), expires_at(&deletion)] {
        assert!(!is_expired(column, 9));
        assert!(is_expired(column, 10));
    }
    let far = event(1, 5, 5, &[["expiration", "18446744073709551615"]]);
    assert!(!is_expired(expires_at(&far), u64::from(u32::MAX)));
    assert!(!is_expired(None, u64::MAX));
}
