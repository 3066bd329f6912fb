//! Expiration (NIP-40): an expired event is neither accepted nor served, on any path.

use serde_json::json;

use buzz_testkit::{Author, Client, eventually, now};

use crate::RELAY;

#[tokio::test]
async fn an_expired_event_is_refused_and_not_passed_on() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.subscribe("live", json!({"limit": 0})).await;
    for kind in [1, 20_001, 0, 30_000] {
        let past = (now() - 1).to_string();
        let event = author.event(kind, "").tag(&["expiration", &past]).sign();
        client.refuse(&event, "invalid: ").await;
    }
    let marker = author.note("marker").sign();
    client.accept(&marker).await;
    assert_eq!(client.live().await.1, marker);
    assert_eq!(client.count(json!({})).await, Ok(1));
}

#[tokio::test]
async fn an_event_is_served_until_it_expires_and_on_no_path_after() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let expires = now() + 3;
    let event = author
        .event(30_000, "")
        .tag(&["d", "x"])
        .tag(&["expiration", &expires.to_string()])
        .sign();
    client.accept(&event).await;
    let filters = [
        json!({"ids": [event.id]}),
        json!({"kinds": [30_000]}),
        json!({"#d": ["x"]}),
        json!({"authors": [event.pubkey]}),
        json!({}),
    ];
    for filter in &filters {
        let found = client.fetch(filter.clone()).await.len();
        assert!(found == 1 || now() >= expires, "gone too early: {filter}");
    }
    let (gone, client) = (tokio::sync::Mutex::new(client), ());
    let () = client;
    eventually("the event's expiry", async || {
        let (before, found) = (now(), gone.lock().await.fetch(json!({})).await.len());
        assert!(found == 0 || before < expires + 1, "served after its time");
        (found == 0).then_some(())
    })
    .await;
    let mut client = gone.into_inner();
    assert!(now() >= expires, "gone too early");
    for filter in &filters {
        assert_eq!(client.fetch(filter.clone()).await, [], "{filter}");
        assert_eq!(client.count(filter.clone()).await, Ok(0), "{filter}");
    }
    client.refuse(&event, "invalid: ").await;
}

#[tokio::test]
async fn an_unreadable_expiration_is_none() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for value in ["", "soon", "-5", "1.5"] {
        let event = author.note(value).tag(&["expiration", value]).sign();
        client.accept(&event).await;
        assert_eq!(client.fetch(json!({"ids": [event.id]})).await, [event]);
    }
}
