//! What every database must do, through the contracts of `buzz_actors::ports` alone. A further
//! database is one more line in `stores`.

use std::{ops::ControlFlow, sync::Arc};

use buzz_actors::ports::{
    EventStore,
    Outcome::{self, Deleted, Duplicate, Stored, Superseded},
    Progress, Purpose, Query, Role, StoreReader, StoreWriter,
};
use buzz_protocol::{EventId, Filter, Tag, UnsignedEvent, VerifiedEvent, event::json_layout};
use buzz_relay::store::{self, Durability, Options};
use buzz_testkit::cluster;
use secp256k1::{Keypair, SecretKey};

type Signed = Arc<VerifiedEvent>;

struct Store {
    store: Arc<dyn EventStore>,
    writer: Box<dyn StoreWriter>,
    reader: Box<dyn StoreReader>,
    batch: u64,
    _directory: Option<tempfile::TempDir>,
}

/// An empty store of each database.
fn stores() -> Vec<Store> {
    let directory = tempfile::tempdir().expect("a directory");
    let sqlite = format!("sqlite://{}/relay.db", directory.path().display());
    let open = |(url, directory)| {
        let store = store::open(&Options {
            durability: Durability::Normal,
            ..Options::new(url)
        });
        let store = store.expect("a store");
        Store {
            writer: store.writer().expect("a writer"),
            reader: store.reader(Purpose::History).expect("a reader"),
            store,
            batch: 0,
            _directory: directory,
        }
    };
    let databases = [(sqlite, Some(directory)), (cluster::database(), None)];
    databases.into_iter().map(open).collect()
}

impl Store {
    fn store(&mut self, events: &[&Signed]) -> Vec<Outcome> {
        self.batch += 1;
        let events: Vec<Signed> = events.iter().map(|event| Arc::clone(event)).collect();
        self.writer.store(&events, self.batch).expect("a batch")
    }

    fn ids(&mut self, filter: &str) -> Vec<EventId> {
        let filter: Filter = serde_json::from_str(filter).expect("a filter");
        let limit = filter.limit.unwrap_or(500);
        page(
            &mut *self.reader,
            &mut query(vec![(filter, limit)]),
            usize::MAX,
        )
        .1
    }

    fn count(&mut self, filters: &[&str]) -> u64 {
        let filters = filters
            .iter()
            .map(|filter| (serde_json::from_str(filter).expect("a filter"), 1));
        self.reader
            .count(&query(filters.collect()))
            .expect("a count")
    }
}

fn query(filters: Vec<(Filter, u64)>) -> Query {
    Query {
        filters,
        now: 1_000,
        committed: u64::MAX,
        before: None,
    }
}

fn page(reader: &mut dyn StoreReader, query: &mut Query, size: usize) -> (Progress, Vec<EventId>) {
    let mut ids = Vec::new();
    let progress = reader.read(query, &mut |json| {
        ids.extend(json_layout::id(json.as_bytes()));
        if ids.len() < size {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    (progress.expect("rows"), ids)
}

fn signed(author: u8, kind: u16, created_at: u64, tags: &[&[&str]], content: &str) -> Signed {
    let keys =
        Keypair::from_secret_key(&SecretKey::from_secret_bytes([author; 32]).expect("a key"));
    let tags = tags
        .iter()
        .map(|tag| Tag::new(tag.iter().copied()))
        .collect();
    let event = UnsignedEvent {
        created_at,
        kind,
        tags,
        content: content.into(),
    }
    .sign(&keys);
    Arc::new(VerifiedEvent::verify(event).expect("valid"))
}

fn sorted(mut events: Vec<&Signed>) -> Vec<EventId> {
    events.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    events.iter().map(|event| event.id).collect()
}

/// Kills: a role that is added beside the old one; a removal that removes another's; no answer of
/// what it was before.
#[test]
fn a_member_has_one_role_until_it_is_removed() {
    for mut store in stores() {
        let (a, b) = (
            signed(1, 1, 1, &[], "").pubkey,
            signed(2, 1, 1, &[], "").pubkey,
        );
        let mut set = |key, role| store.writer.set_role(key, role).expect("a change");
        assert_eq!(set(&a, Some(Role::Member)), None);
        assert_eq!(set(&b, Some(Role::Owner)), None);
        assert_eq!(set(&a, Some(Role::Agent)), Some(Role::Member));
        let reader = store.store.reader(Purpose::Authorization);
        let mut reader = reader.expect("a reader");
        assert_eq!(reader.role(&a).expect("a role"), Some(Role::Agent));
        let mut both = vec![(a, Role::Agent), (b, Role::Owner)];
        both.sort();
        assert_eq!(reader.members().expect("members"), both);
        assert_eq!(
            store.writer.set_role(&a, None).expect("a change"),
            Some(Role::Agent)
        );
        assert_eq!(reader.role(&a).expect("a role"), None);
        assert_eq!(reader.members().expect("members"), [(b, Role::Owner)]);
        assert_eq!(store.writer.set_role(&a, None).expect("a change"), None);
    }
}

#[test]
fn an_event_is_stored_once_and_served_byte_for_byte() {
    for mut store in stores() {
        let note = signed(
            1,
            1,
            10,
            &[&["t", "a\"b"]],
            "ñ 🍕 \u{2028} / \u{1} \u{1f} \u{7f} \u{8} \u{c}",
        );
        assert_eq!(store.store(&[&note, &note]), [Stored, Duplicate]);
        assert_eq!(store.store(&[&note]), [Duplicate]);
        let mut texts = Vec::new();
        let mut all = query(vec![(Filter::default(), 10)]);
        let progress = store.reader.read(&mut all, &mut |json| {
            texts.push(json.to_owned());
            ControlFlow::Continue(())
        });
        assert_eq!(progress.expect("rows"), Progress::Done);
        assert_eq!(texts, [note.json()]);
    }
}

#[test]
fn of_many_versions_the_newest_stays_and_ties_go_to_the_lowest_id() {
    for mut store in stores() {
        let versions: Vec<_> = (0..50)
            .map(|i| signed(1, 0, 10 + i * 7 % 20, &[], &i.to_string()))
            .collect();
        for batch in versions.chunks(7) {
            store.store(&batch.iter().collect::<Vec<_>>());
        }
        let winner = sorted(versions.iter().collect())[0];
        assert_eq!(store.ids(r#"{"kinds":[0]}"#), [winner]);
        assert_eq!(store.count(&["{}"]), 1);
        let older = signed(1, 0, 9, &[], "older");
        assert_eq!(store.store(&[&older]), [Superseded]);
    }
}

#[test]
fn a_d_tag_replaces_addressable_events_only() {
    for mut store in stores() {
        let notes = [
            signed(1, 1, 10, &[&["d", "x"]], "a"),
            signed(1, 1, 10, &[&["d", "x"]], "b"),
        ];
        assert_eq!(store.store(&[&notes[0], &notes[1]]), [Stored; 2]);
        let bare = signed(1, 30_000, 10, &[], "");
        let valueless = signed(1, 30_000, 11, &[&["d"]], "");
        let empty = signed(1, 30_000, 12, &[&["d", ""]], "");
        for version in [&bare, &valueless, &empty] {
            assert_eq!(store.store(&[version]), [Stored]);
        }
        assert_eq!(store.ids(r#"{"kinds":[30000]}"#), [empty.id]);
        assert_eq!(store.count(&[r#"{"kinds":[1]}"#]), 2);
    }
}

#[test]
fn a_deleted_event_is_gone_from_every_path_and_cannot_return() {
    for mut store in stores() {
        let note = signed(1, 1, 10, &[&["t", "x"]], "gone");
        let id = note.id.to_hex();
        let foreign = signed(2, 5, 11, &[&["e", &id]], "");
        let deletion = signed(1, 5, 9, &[&["e", &id]], "");
        assert_eq!(store.store(&[&note, &foreign]), [Stored, Stored]);
        assert_eq!(store.ids(r#"{"kinds":[1]}"#), [note.id]);
        assert_eq!(store.store(&[&deletion]), [Stored]);
        for filter in [
            format!(r#"{{"ids":["{id}"]}}"#),
            r##"{"#t":["x"]}"##.into(),
            r#"{"kinds":[1]}"#.into(),
        ] {
            assert_eq!(store.ids(&filter), [], "{filter}");
            assert_eq!(store.count(&[&filter]), 0, "{filter}");
        }
        assert_eq!(store.store(&[&note]), [Deleted]);
        // A deletion can't be deleted, and is served.
        let again = signed(1, 5, 12, &[&["e", &deletion.id.to_hex()]], "");
        assert_eq!(store.store(&[&again, &note]), [Stored, Deleted]);
        assert_eq!(store.count(&[r#"{"kinds":[5]}"#]), 3);
        // Also where the deletion came first.
        let early = signed(1, 1, 20, &[], "early");
        let deletion = signed(1, 5, 19, &[&["e", &early.id.to_hex()]], "");
        assert_eq!(store.store(&[&deletion]), [Stored]);
        assert_eq!(store.store(&[&early]), [Deleted]);
    }
}

#[test]
fn a_deletion_by_address_takes_that_address_up_to_its_time_and_nothing_else() {
    for mut store in stores() {
        let old = signed(1, 30_000, 10, &[&["d", "x"]], "old");
        let other = signed(1, 30_000, 10, &[&["d", "y"]], "other");
        let note = signed(1, 1, 10, &[], "note");
        let address = format!("30000:{}:x", old.pubkey);
        let deletion = signed(1, 5, 11, &[&["a", &address]], "");
        let foreign = signed(2, 5, 50, &[&["a", &address]], "");
        assert_eq!(store.store(&[&old, &other, &note, &foreign]), [Stored; 4]);
        assert_eq!(store.store(&[&deletion]), [Stored]);
        assert_eq!(
            store.ids("{}"),
            sorted(vec![&other, &note, &deletion, &foreign])
        );
        let at_its_time = signed(1, 30_000, 11, &[&["d", "x"]], "");
        let newer = signed(1, 30_000, 12, &[&["d", "x"]], "");
        assert_eq!(
            store.store(&[&old, &at_its_time, &newer]),
            [Deleted, Deleted, Stored]
        );
        // No target at all is no target, not every target.
        let empty = signed(
            1,
            5,
            100,
            &[&["a", "nonsense"], &["e", ""], &["k", "1"]],
            "",
        );
        assert_eq!(store.store(&[&empty]), [Stored]);
        assert_eq!(store.count(&["{}"]), 6);
    }
}

#[test]
fn of_many_deletions_of_an_address_the_newest_counts() {
    for mut store in stores() {
        let version = |at| signed(1, 30_000, at, &[&["d", "x"]], "");
        let address = format!("30000:{}:x", version(1).pubkey);
        for at in 1..=10 {
            assert_eq!(
                store.store(&[&signed(1, 5, at * 10, &[&["a", &address]], "")]),
                [Stored]
            );
        }
        assert_eq!(store.store(&[&version(100)]), [Deleted]);
        assert_eq!(store.store(&[&version(101)]), [Stored]);
    }
}

#[test]
fn an_expired_event_is_absent_before_and_after_its_purge() {
    for mut store in stores() {
        let gone = signed(1, 1, 10, &[&["expiration", "1000"]], "");
        let stays = signed(1, 1, 10, &[&["expiration", "1001"]], "");
        let deletion = signed(
            1,
            5,
            10,
            &[&["expiration", "5"], &["e", &"ab".repeat(32)]],
            "",
        );
        assert_eq!(store.store(&[&gone, &stays, &deletion]), [Stored; 3]);
        for _ in 0..2 {
            assert_eq!(store.ids("{}"), [stays.id]);
            assert_eq!(store.ids(&format!(r#"{{"ids":["{}"]}}"#, gone.id)), []);
            assert_eq!(store.count(&["{}"]), 1);
            store.writer.purge_expired(1_000, 10).expect("a purge");
        }
        assert_eq!(store.writer.purge_expired(1_000, 10).expect("a purge"), 0);
        assert_eq!(store.store(&[&gone, &deletion]), [Stored, Duplicate]);
    }
}

#[test]
fn pages_of_one_second_keep_their_order_and_counts_are_distinct() {
    for mut store in stores() {
        let events: Vec<_> = (0..25)
            .map(|i| signed(1, 1, 10, &[&["t", "x"]], &i.to_string()))
            .collect();
        store.store(&events.iter().collect::<Vec<_>>());
        let expected = sorted(events.iter().collect());
        for filters in [&["{}"][..], &[r##"{"#t":["x"]}"##, r#"{"kinds":[1]}"#]] {
            let parsed = filters
                .iter()
                .map(|filter| (serde_json::from_str(filter).expect("a filter"), 500));
            let mut pages = query(parsed.collect());
            let mut ids = Vec::new();
            for size in [10, 10, 5] {
                let (progress, page) = page(&mut *store.reader, &mut pages, 10);
                assert_eq!(page.len(), size);
                assert_eq!(progress == Progress::Done, size == 5);
                ids.extend(page);
            }
            assert_eq!(ids, expected);
            assert_eq!(store.count(filters), 25);
        }
    }
}

#[test]
fn what_is_committed_after_a_query_began_is_left_out() {
    for mut store in stores() {
        let (first, second) = (signed(1, 1, 10, &[], "1"), signed(1, 1, 9, &[], "2"));
        store.store(&[&first]);
        let mut began = query(vec![(Filter::default(), 500)]);
        began.committed = store.writer.last_batch().expect("a number");
        assert_eq!(page(&mut *store.reader, &mut began, 1).1, [first.id]);
        store.store(&[&second]);
        assert_eq!(
            page(&mut *store.reader, &mut began, 9),
            (Progress::Done, vec![])
        );
        assert_eq!(store.ids("{}"), [first.id, second.id]);
        assert_eq!(store.writer.last_batch().expect("a number"), 2);
        let mut reopened = store.store.writer().expect("a writer");
        assert_eq!(reopened.last_batch().expect("a number"), 2);
        store.reader.ping().expect("a sign of life");
    }
}

#[test]
fn void_filters_and_limits_of_zero_give_nothing() {
    for mut store in stores() {
        store.store(&[&signed(1, 1, 10, &[], "")]);
        for filter in [
            r#"{"ids":[]}"#,
            r#"{"authors":[]}"#,
            r##"{"#t":[]}"##,
            r#"{"since":11,"until":10}"#,
            r#"{"limit":0}"#,
        ] {
            assert_eq!(store.ids(filter), [], "{filter}");
        }
    }
}
