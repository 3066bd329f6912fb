//! Quotas that several relays share, in a real Redis.

use std::time::{Duration, Instant};

use buzz_protocol::relay_frame::RelayFrame;
use serde_json::json;

use crate::{RELAY, admission::UNAVAILABLE, admission::logged_in, admission::reqs};
use buzz_testkit::{Author, Client, Redis, Relay, eventually, relay::DEFAULT_QUOTAS};

const REJECTED: &str =
    "buzz_admission_rejections_total{transport=\"websocket\",reason=\"unavailable\"}";

async fn with(redis: &Redis, settings: &str) -> Relay {
    let relay = RELAY
        .start_with(&format!("{settings}\n{DEFAULT_QUOTAS}{}", redis.backend()))
        .await;
    relay.log.line_with(&["shared admission is there"]).await;
    relay
}

/// Kills: a budget for each relay; a hint of its own on each.
#[tokio::test]
async fn two_relays_share_one_budget() {
    let redis = Redis::start().await;
    let (one, two) = (with(&redis, "").await, with(&redis, "").await);
    let author = Author::new(1);
    let (mut first, mut second) = (
        logged_in(&one, &author).await,
        logged_in(&two, &author).await,
    );
    let mut answers = reqs(&mut first, 30).await;
    answers.extend(reqs(&mut second, 30).await);
    let refused: Vec<_> = answers.iter().flatten().collect();
    assert_eq!(refused.len(), 10, "{refused:?}");
    assert!(
        refused
            .iter()
            .all(|text| text.starts_with("rate-limited: quota exceeded; retry in "))
    );
    assert!(reqs(&mut first, 1).await[0].is_some());
    let mut foreign = logged_in(&two, &Author::new(2)).await;
    assert_eq!(reqs(&mut foreign, 1).await, [None]);
}

/// Kills: a start that needs Redis; an admission that was not counted; a relay that does not find
/// Redis when it comes.
#[tokio::test]
async fn without_redis_the_relay_starts_and_refuses_and_finds_it_later() {
    let mut redis = Redis::start().await;
    let settings = format!("{DEFAULT_QUOTAS}{}", redis.backend());
    redis.kill();
    let relay = RELAY.start_with(&settings).await;
    let mut client = logged_in(&relay, &Author::new(1)).await;
    let answers = reqs(&mut client, 20).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.as_deref() == Some(UNAVAILABLE)),
        "{answers:?}"
    );
    assert_eq!(relay.metrics().await.get(REJECTED), 20.0);
    relay
        .log
        .line_with(&["shared admission is unavailable"])
        .await;
    redis.again().await;
    eventually("the relay finds Redis", async || {
        reqs(&mut client, 1).await[0].is_none().then_some(())
    })
    .await;
}

/// Kills: a client that waits for ever for its answer; more admissions than the quota; a
/// connection that is not opened anew.
#[tokio::test]
async fn redis_is_killed_and_started_again_under_load() {
    let mut redis = Redis::start().await;
    let relay = with(&redis, "").await;
    let mut clients = Vec::new();
    for n in 0..4 {
        clients.push(logged_in(&relay, &Author::new(n)).await);
    }
    for round in 0..3 {
        // Answers for the load are read after Redis is gone.
        for client in &mut clients {
            for n in 0..40 {
                client
                    .send(json!(["REQ", format!("k{n}"), {"kinds": [7], "limit": 1}]))
                    .await;
            }
        }
        redis.kill();
        for client in &mut clients {
            let mut served = 0;
            for _ in 0..40 {
                match client.next().await {
                    RelayFrame::Eose { .. } => served += 1,
                    RelayFrame::Closed { message, .. } => {
                        assert!(message.starts_with("rate-limited: "), "{message}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(served <= 40, "round {round}");
            assert_eq!(reqs(client, 2).await, vec![Some(UNAVAILABLE.to_owned()); 2]);
        }
        redis.again().await;
        for client in &mut clients {
            eventually("frames are admitted again", async || {
                reqs(client, 1).await[0].is_none().then_some(())
            })
            .await;
        }
    }
    // After the last start the budget holds: it is counted anew, and no further.
    let served = reqs(&mut clients[0], 60).await;
    assert!(served.iter().filter(|answer| answer.is_none()).count() <= 50);
}

/// Kills: a wait without a bound; a slow Redis that holds up frames that need none.
#[tokio::test]
async fn a_redis_that_does_not_answer_costs_a_bounded_wait() {
    let redis = Redis::start().await;
    let relay = with(&redis, "admission.timeout = \"100ms\"").await;
    let mut client = logged_in(&relay, &Author::new(1)).await;
    assert_eq!(reqs(&mut client, 1).await, [None]);
    redis.stop();
    let mut waits = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(reqs(&mut client, 1).await, [Some(UNAVAILABLE.to_owned())]);
        waits.push(began.elapsed());
    }
    waits.sort_unstable();
    assert!(waits[2] < Duration::from_secs(1), "{waits:?}");
    // What needs no budget goes on.
    let mut other = Client::connect(&relay).await;
    other.log_in(&Author::new(2)).await;
    redis.go_on();
    eventually("frames are admitted again", async || {
        reqs(&mut client, 1).await[0].is_none().then_some(())
    })
    .await;
}
