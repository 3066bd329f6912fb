//! Work that the relay does not take: each refusal names the frame that it refuses.

use std::collections::HashSet;

use buzz_protocol::relay_frame::RelayFrame;
use serde_json::json;

use buzz_testkit::{Author, Client};

use crate::RELAY;

const BUSY: &str = "rate-limited: too many concurrent requests; retry in 1s";
const REJECTED: &str = "buzz_admission_rejections_total";

#[tokio::test]
async fn without_a_handler_permit_every_kind_of_frame_is_refused_by_name() {
    const FRAMES: usize = 60;
    let relay = RELAY.start_with("server.handler_permits = 1").await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let events: Vec<_> = (0..FRAMES)
        .map(|n| author.note(&n.to_string()).sign())
        .collect();
    for (n, event) in events.iter().enumerate() {
        client
            .send(json!(["REQ", format!("r{n}"), {"kinds": [7]}]))
            .await;
        client
            .send(json!(["COUNT", format!("c{n}"), {"kinds": [7]}]))
            .await;
        client
            .send_text(&format!("[\"EVENT\",{}]", event.to_json()))
            .await;
    }
    let mut answered = HashSet::new();
    let (mut stored, mut refused, mut counts_refused, mut notices) = (0, 0, 0, 0);
    while answered.len() < 3 * FRAMES || notices < counts_refused {
        let frame = client.next().await;
        let name = match frame {
            RelayFrame::Ok {
                id,
                accepted,
                message,
            } => {
                if accepted {
                    stored += 1;
                } else {
                    assert_eq!(message, BUSY);
                    refused += 1;
                }
                id.to_hex()
            }
            RelayFrame::Closed { sub, message } => {
                assert_eq!(message, BUSY);
                refused += 1;
                counts_refused += usize::from(sub.starts_with('c'));
                sub
            }
            RelayFrame::Notice { message } => {
                assert_eq!(message, BUSY);
                notices += 1;
                continue;
            }
            RelayFrame::Eose { sub } => sub,
            RelayFrame::Count { query, count } => {
                assert_eq!(count, 0);
                query
            }
            other => panic!("{other:?}"),
        };
        assert!(answered.insert(name.clone()), "{name} was answered twice");
    }
    assert_eq!(notices, counts_refused, "a NOTICE for each refused COUNT");
    assert!(refused > 0, "one permit was enough for everything at once");
    let metrics = relay.metrics().await;
    let handler = format!("{REJECTED}{{transport=\"websocket\",reason=\"handler\"}}");
    assert_eq!(metrics.get(&handler), f64::from(refused));

    // The permit comes back: one at a time, everything is taken.
    let mut quiet = Client::connect(&relay).await;
    for n in 0..20 {
        quiet
            .accept(&author.note(&format!("again {n}")).sign())
            .await;
    }
    assert_eq!(quiet.count(json!({"kinds": [1]})).await, Ok(stored + 20));
}
