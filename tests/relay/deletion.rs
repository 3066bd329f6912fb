//! Deletion requests (NIP-09): what they name goes and stays away, and nothing else.

use serde_json::json;

use buzz_testkit::{
    Author, Client,
    events::{address, ids},
};

use crate::RELAY;

const DELETED: &str = "blocked: deleted";

#[tokio::test]
async fn a_deleted_event_is_gone_from_every_path_and_can_not_return() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let note = author.note("gone").at(1_000).tag(&["t", "x"]).sign();
    let kept = author.note("kept").at(1_000).tag(&["t", "x"]).sign();
    client.accept(&note).await;
    client.accept(&kept).await;
    let request = author.deletion(&[("e", &note.id.to_hex())]).sign();
    client.accept(&request).await;

    for filter in [
        json!({"kinds": [1]}),
        json!({"ids": [note.id, kept.id]}),
        json!({"#t": ["x"]}),
        json!({"authors": [author.pubkey()], "kinds": [1]}),
        json!({"until": 1_000}),
    ] {
        assert_eq!(
            ids(&client.fetch(filter.clone()).await),
            [kept.id.to_hex()],
            "{filter}"
        );
        assert_eq!(client.count(filter.clone()).await, Ok(1), "{filter}");
    }
    client.subscribe("live", json!({"limit": 0})).await;
    client.refuse(&note, DELETED).await;
    let marker = author.note("marker").sign();
    client.accept(&marker).await;
    assert_eq!(client.live().await.1, marker, "the refused one is not live");
    assert_eq!(client.fetch(json!({"ids": [note.id]})).await, []);
}

#[tokio::test]
async fn a_deletion_is_remembered_over_a_restart() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let note = author.note("gone").at(1_000).sign();
    client.accept(&note).await;
    client
        .accept(&author.deletion(&[("e", &note.id.to_hex())]).sign())
        .await;
    let mut relay = relay;
    relay.kill().await;
    let relay = relay.again().await;
    let mut client = Client::connect(&relay).await;
    client.refuse(&note, DELETED).await;
}

#[tokio::test]
async fn a_deletion_that_comes_first_blocks_the_event_it_names() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let note = author.note("never seen").at(1_000).sign();
    client
        .accept(&author.deletion(&[("e", &note.id.to_hex())]).sign())
        .await;
    client.refuse(&note, DELETED).await;
}

#[tokio::test]
async fn the_request_itself_is_stored_served_and_live() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let note = author.note("").at(1_000).sign();
    client.accept(&note).await;
    let mut listener = Client::connect(&relay).await;
    listener.subscribe("live", json!({"kinds": [5]})).await;
    let request = author.deletion(&[("e", &note.id.to_hex())]).sign();
    client.accept(&request).await;
    assert_eq!(listener.live().await.1, request);
    let stored = client.fetch(json!({"#e": [note.id]})).await;
    assert_eq!(ids(&stored), [request.id.to_hex()]);
}

#[tokio::test]
async fn another_keys_request_does_nothing() {
    let relay = RELAY.start().await;
    let (author, other) = (Author::new(1), Author::new(2));
    let mut client = Client::connect(&relay).await;
    let note = author.note("").at(1_000).sign();
    let page = author.event(30_023, "").at(1_000).tag(&["d", "p"]).sign();
    client.accept(&note).await;
    client.accept(&page).await;
    let request = other
        .deletion(&[("e", &note.id.to_hex()), ("a", &address(&page))])
        .sign();
    client.accept(&request).await;
    let left = client.fetch(json!({"kinds": [1, 30_023]})).await;
    assert_eq!(left.len(), 2);
    let again = client.publish(&note).await;
    assert!(again.0, "{again:?}");

    // Before the event itself: neither may a stranger reserve its id.
    let later = author.note("later").sign();
    client
        .accept(&other.deletion(&[("e", &later.id.to_hex())]).sign())
        .await;
    client.accept(&later).await;
}

#[tokio::test]
async fn a_request_with_only_a_tags_removes_that_address_up_to_its_own_time_and_nothing_else() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let page = author.event(30_023, "v1").at(1_000).tag(&["d", "p"]).sign();
    let others = [
        author.event(30_023, "").at(1_000).tag(&["d", "q"]).sign(),
        author.event(30_024, "").at(1_000).tag(&["d", "p"]).sign(),
        author.event(0, "").at(1_000).sign(),
        author.note("").at(1_000).tag(&["d", "p"]).sign(),
        Author::new(2)
            .event(30_023, "")
            .at(1_000)
            .tag(&["d", "p"])
            .sign(),
    ];
    client.accept(&page).await;
    for other in &others {
        client.accept(other).await;
    }
    let request = author.deletion(&[("a", &address(&page))]).at(1_500).sign();
    client.accept(&request).await;
    assert_eq!(client.fetch(json!({"ids": [page.id]})).await, []);
    assert_eq!(client.count(json!({"ids": ids(&others)})).await, Ok(5));

    client.refuse(&page, DELETED).await;
    let older = author.event(30_023, "v0").at(900).tag(&["d", "p"]).sign();
    client.refuse(&older, DELETED).await;
    let as_old = author.event(30_023, "x").at(1_500).tag(&["d", "p"]).sign();
    client.refuse(&as_old, DELETED).await;
    let newer = author.event(30_023, "v2").at(1_501).tag(&["d", "p"]).sign();
    client.accept(&newer).await;
    let stored = client.fetch(json!({"#d": ["p"], "kinds": [30_023]})).await;
    assert!(stored.contains(&newer));
}

#[tokio::test]
async fn a_request_older_than_the_version_it_names_leaves_it() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for (kind, d) in [(30_023, "p"), (10_002, ""), (0, "")] {
        let page = author.event(kind, "").at(2_000).tag(&["d", d]).sign();
        client.accept(&page).await;
        let request = author.deletion(&[("a", &address(&page))]).at(1_999).sign();
        client.accept(&request).await;
        assert_eq!(client.fetch(json!({"ids": [page.id]})).await, [page]);
    }
}

#[tokio::test]
async fn a_request_that_names_nothing_readable_removes_nothing() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let note = author.note("").at(1_000).sign();
    let page = author.event(30_023, "").at(1_000).tag(&["d", "p"]).sign();
    client.accept(&note).await;
    client.accept(&page).await;
    let id = note.id.to_hex();
    let key = author.pubkey();
    for (name, value) in [
        ("e", ""),
        ("e", &id[..63]),
        ("e", &id.to_uppercase() as &str),
        ("a", ""),
        ("a", "30023"),
        ("a", &format!("30023:{key}")),
        ("a", &format!("30023:{key}:P")),
        ("a", &format!("1:{key}:")),
        ("k", "1"),
        ("p", &key),
    ] {
        client
            .publish(&author.deletion(&[(name, value)]).sign())
            .await;
        let left = client.fetch(json!({"kinds": [1, 30_023]})).await;
        assert_eq!(left.len(), 2, "{name} {value:?}");
    }
    client.publish(&author.deletion(&[]).sign()).await;
    let left = client.fetch(json!({"kinds": [1, 30_023]})).await;
    assert_eq!(left.len(), 2);
}

#[tokio::test]
async fn a_deletion_can_not_be_deleted() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let note = author.note("").at(1_000).sign();
    client.accept(&note).await;
    let request = author.deletion(&[("e", &note.id.to_hex())]).sign();
    client.accept(&request).await;
    let undo = author.deletion(&[("e", &request.id.to_hex())]).sign();
    client.publish(&undo).await;
    client.refuse(&note, DELETED).await;
}
