//! What operators see: health, metrics, the access log.

use serde_json::json;

use buzz_testkit::{Author, Client, eventually, http, now, raw::RawSocket};

use crate::RELAY;

#[tokio::test]
async fn live_and_ready_are_on_the_admin_port_only() {
    let relay = RELAY.start().await;
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(http::get(relay.admin, path).await.status, 200, "{path}");
        let public = http::get(relay.addr, path).await.body;
        let admin = http::get(relay.admin, path).await.body;
        assert!(
            public != admin && !public.contains("buzz_events_total"),
            "{path}: {public}"
        );
    }
    assert_eq!(http::get(relay.admin, "/").await.status, 404);
    let metrics = http::get(relay.admin, "/metrics").await;
    let kind = metrics.header("content-type").expect("a content type");
    assert!(kind.starts_with("text/plain"), "{kind}");
}

#[tokio::test]
async fn every_promised_metric_is_there_from_the_start() {
    let relay = RELAY.start().await;
    let metrics = relay.metrics().await;
    for name in [
        "buzz_auth_outcomes_total",
        "buzz_admission_rejections_total",
        "buzz_events_total",
        "buzz_ws_connections_active",
        "buzz_subscriptions_active",
        "buzz_live_events_total",
        "buzz_db_seconds",
        "buzz_verify_seconds",
        "buzz_write_batch_events",
        "buzz_build_info",
        "buzz_feature_flags_ready",
        "buzz_concurrency_limit_refresh_panics_total",
    ] {
        assert!(metrics.describes(name), "{name} is missing:\n{}", metrics.0);
    }
    for histogram in [
        "buzz_db_seconds",
        "buzz_verify_seconds",
        "buzz_write_batch_events",
    ] {
        let kind = format!("# TYPE {histogram} histogram");
        assert!(metrics.0.contains(&kind), "{histogram} is no histogram");
    }
    let build = metrics
        .0
        .lines()
        .find(|line| line.starts_with("buzz_build_info{"));
    let build = build.expect("a version");
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(
        build.contains(&version) && build.contains("commit=\""),
        "{build}"
    );
    assert!(build.ends_with(" 1"), "{build}");
}

#[tokio::test]
async fn event_outcomes_add_up_to_the_events_that_arrived() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let note = author.note("x").at(1_000).sign();
    let profile = author.event(0, "new").at(1_000).sign();
    let deletion = author.deletion(&[("e", &note.id.to_hex())]).sign();
    let mut forged = author.note("y").sign();
    forged.content.push('!');
    let mut frames = 0.0;
    for event in [
        &note,
        &note,
        &author.event(20_000, "").sign(),
        &profile,
        &author.event(0, "old").at(999).sign(),
        &deletion,
        &note,
        &forged,
        &author.note("late").at(now() + 10_000).sign(),
        &author.note("expired").tag(&["expiration", "1000"]).sign(),
        &author.note("mine").tag(&["-"]).sign(),
    ] {
        client.publish(event).await;
        frames += 1.0;
    }
    // One that is no event at all, and one whose id can't be read.
    for text in [
        &format!("[\"EVENT\",{{\"id\":\"{}\"}}]", note.id),
        "[\"EVENT\",{}]",
    ] {
        client.send_text(text).await;
        client.next().await;
        frames += 1.0;
    }
    let metrics = relay.metrics().await;
    assert_eq!(metrics.sum("buzz_events_total"), frames, "{}", metrics.0);
    let outcome = |name: &str| metrics.get(&format!("buzz_events_total{{outcome=\"{name}\"}}"));
    assert_eq!(outcome("duplicate"), 1.0);
    assert!(metrics.sum("buzz_write_batch_events_count") >= 5.0);
    assert!(metrics.sum("buzz_verify_seconds_count") >= 1.0);
}

#[tokio::test]
async fn login_outcomes_add_up_to_the_logins_that_arrived() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    client.log_in(&Author::new(1)).await;
    client.log_in(&Author::new(2)).await;
    let wrong = Author::new(3).login("wrong", "ws://other.test").sign();
    client.log_in_with(&wrong).await;
    let metrics = relay.metrics().await;
    assert_eq!(metrics.sum("buzz_auth_outcomes_total"), 3.0);
    assert_eq!(metrics.get("buzz_auth_outcomes_total{outcome=\"ok\"}"), 2.0);
    assert_eq!(
        metrics.get("buzz_auth_outcomes_total{outcome=\"invalid\"}"),
        1.0
    );
}

#[tokio::test]
async fn gauges_follow_sockets_and_subscriptions() {
    let relay = RELAY.start().await;
    let gauges = async |connections: f64, subscriptions: f64| {
        eventually("the gauges", async || {
            let metrics = relay.metrics().await;
            let now = (
                metrics.get("buzz_ws_connections_active"),
                metrics.get("buzz_subscriptions_active"),
            );
            (now == (connections, subscriptions)).then_some(())
        })
        .await;
    };
    gauges(0.0, 0.0).await;
    let mut one = Client::connect(&relay).await;
    let mut two = Client::connect(&relay).await;
    one.subscribe("a", json!({})).await;
    one.subscribe("b", json!({})).await;
    one.subscribe("b", json!({})).await;
    two.subscribe("a", json!({})).await;
    gauges(2.0, 3.0).await;
    one.send(json!(["CLOSE", "a"])).await;
    gauges(2.0, 2.0).await;
    drop(one);
    gauges(1.0, 1.0).await;
    drop(two);
    gauges(0.0, 0.0).await;
}

#[tokio::test]
async fn live_events_are_counted_as_delivered() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    client.subscribe("a", json!({"kinds": [1]})).await;
    client.subscribe("b", json!({})).await;
    client.accept(&Author::new(1).note("x").sign()).await;
    client.live().await;
    client.live().await;
    let metrics = relay.metrics().await;
    assert_eq!(
        metrics.get("buzz_live_events_total{outcome=\"delivered\"}"),
        2.0
    );
    assert_eq!(
        metrics.get("buzz_live_events_total{outcome=\"fell_behind\"}"),
        0.0
    );
}

#[tokio::test]
async fn labels_never_carry_what_clients_sent() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    for text in [
        "[\"MARK77\",\"MARK77\"]",
        "[\"REQ\",\"MARK77\",{\"MARK77\":1}]",
        "MARK77",
    ] {
        client.send_text(text).await;
        client.next().await;
    }
    client.subscribe("MARK77", json!({"#t": ["MARK77"]})).await;
    let note = Author::new(1).note("MARK77").tag(&["t", "MARK77"]).sign();
    client.accept(&note).await;
    assert!(!relay.metrics().await.0.contains("MARK77"));
}

#[tokio::test]
async fn the_access_log_has_a_line_for_each_login_refusal_and_finished_connection() {
    let mut relay = RELAY.start().await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    client.log_in(&author).await;
    let login = relay.log.line_with(&["access", "login"]).await;
    assert!(login.contains("ok"), "{login}");
    let wrong = Author::new(3).login("wrong", "ws://other.test").sign();
    client.log_in_with(&wrong).await;
    relay
        .log
        .line_with(&["access", "denied/invalid", "AUTH"])
        .await;
    client
        .send_text("[\"REQ\",\"s\",{\"kinds\":[\"SECRET77\"]}]")
        .await;
    client.next().await;
    relay
        .log
        .line_with(&["access", "denied/invalid", "refused"])
        .await;
    let mut forged = author.note("SECRET77").sign();
    forged.content.push('!');
    client.refuse(&forged, "invalid: ").await;
    relay
        .log
        .line_with(&["access", "denied/invalid", "EVENT"])
        .await;
    drop(client);
    relay
        .log
        .line_with(&["access", "connection", "finished"])
        .await;
    relay.terminate();
    relay.ended().await;
    let log = relay.log.text();
    assert!(!log.contains("SECRET77"), "content in the log:\n{log}");
    let keys = [author.pubkey(), Author::new(3).pubkey()];
    assert!(
        !keys.iter().any(|key| log.contains(key)),
        "a key in the log:\n{log}"
    );
}

#[tokio::test]
async fn as_json_every_line_of_the_log_is_an_object() {
    let mut relay = RELAY.start_with("telemetry.log_format = \"json\"").await;
    let mut client = Client::connect(&relay).await;
    client.log_in(&Author::new(1)).await;
    client.send_text("nonsense").await;
    client.next().await;
    drop(client);
    relay.log.line_with(&["\"access\"", "finished"]).await;
    relay.terminate();
    relay.ended().await;
    let mut outcomes = Vec::new();
    for line in relay.log.lines() {
        let value: serde_json::Value = serde_json::from_str(&line).expect(&line);
        assert!(
            value["level"].is_string() && value["timestamp"].is_string(),
            "{line}"
        );
        if value["target"] == "access" {
            let fields = if value["fields"].is_object() {
                &value["fields"]
            } else {
                &value
            };
            outcomes.push(fields["outcome"].clone());
            assert!(fields["reason"].is_string(), "{line}");
        }
    }
    assert!(outcomes.contains(&json!("ok")) && outcomes.contains(&json!("denied")));
}

#[tokio::test]
async fn a_forwarded_address_counts_only_from_a_trusted_proxy() {
    let forwarded = "X-Forwarded-For: 198.51.100.7, 203.0.113.9\r\n";
    for (settings, expected) in [
        ("", "127.0.0.1"),
        ("server.trusted_proxies = [\"10.0.0.0/8\"]", "127.0.0.1"),
        ("server.trusted_proxies = [\"127.0.0.0/8\"]", "203.0.113.9"),
        (
            "server.trusted_proxies = [\"127.0.0.1/32\", \"203.0.113.0/24\"]",
            "198.51.100.7",
        ),
    ] {
        let relay = RELAY.start_with(settings).await;
        drop(RawSocket::connect_with(&relay, forwarded).await);
        let line = relay.log.line_with(&["access", "finished"]).await;
        assert!(line.contains(expected), "{settings}: {line}");
    }
}

/// Kills: a warning that never comes; one that always does.
#[tokio::test]
async fn a_relay_that_listens_elsewhere_than_its_url_says_is_told_so() {
    const WARNING: &str = "server.listen was changed and server.url was not";
    let relay = RELAY
        .start_with("server.url = \"ws://localhost:3000\"")
        .await;
    relay.log.line_with(&["WARN", WARNING]).await;
    let mut relay = RELAY.start().await;
    relay.terminate();
    relay.ended().await;
    assert!(!relay.log.text().contains(WARNING));
}

/// Kills: a hang-up that ends the relay, or that is not logged.
#[tokio::test]
async fn a_hang_up_ends_nothing() {
    let relay = RELAY.start().await;
    let mut client = Client::connect(&relay).await;
    rustix::process::kill_process(relay.pid(), rustix::process::Signal::HUP).expect("it runs");
    relay.log.line_with(&["WARN", "SIGHUP"]).await;
    client
        .accept(&Author::new(1).note("still here").sign())
        .await;
}

/// Kills: a probe that asks the public port for readiness and hears that all is well.
#[tokio::test]
async fn a_probe_of_the_wrong_port_fails() {
    let relay = RELAY.start().await;
    for (path, status) in [
        ("/", 200),
        ("/chat", 200),
        ("/readyz", 404),
        ("/metrics", 404),
    ] {
        assert_eq!(http::get(relay.addr, path).await.status, status, "{path}");
    }
}

/// Kills: the presence of a header taken for its value; media types compared by case, or looked for
/// in one line of several; a refusal (`q=0`) taken for a wish.
#[tokio::test]
async fn the_value_of_a_header_counts_and_not_its_presence() {
    let relay = RELAY.start().await;
    let h2c = "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    for (headers, is_information) in [
        (format!("Accept: application/nostr+json\r\n{h2c}"), true),
        (
            "Accept: text/html\r\nAccept: */*;q=0.1, Application/Nostr+JSON;q=0.9\r\n".into(),
            true,
        ),
        ("Accept: application/nostr+json;q=0\r\n".into(), false),
        (h2c.into(), false),
    ] {
        let answer = http::request(relay.addr, "/", &headers).await;
        assert_eq!(answer.status, 200, "{headers}");
        let found = answer.header("content-type") == Some("application/nostr+json");
        assert_eq!(found, is_information, "{headers}");
        assert_eq!(answer.header("vary"), Some("Accept"), "{headers}");
    }
    let answer = http::request(relay.addr, "/openapi.json", h2c).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
}
