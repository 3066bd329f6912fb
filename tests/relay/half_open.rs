//! A peer whose packets stop coming, without FIN or RST: cut by a deadline.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;

use buzz_testkit::{Client, DEADLINE};

use crate::RELAY;

/// Set where the test runs in a network of its own, whose one link it may cut.
const INSIDE: &str = "BUZZ_TEST_OWN_NETWORK";
const NAME: &str = "half_open::a_peer_that_vanishes_from_the_network_is_cut";

fn set_link(state: &str) {
    let done = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status();
    assert!(done.expect("ip, of the package iproute2").success());
}

#[test]
fn a_peer_that_vanishes_from_the_network_is_cut() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let this = std::env::current_exe().expect("this test's program");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(this)
        .args(["--exact", NAME, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare, of the package util-linux");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}{errors}");
}

#[tokio::main(flavor = "current_thread")]
async fn inside() {
    set_link("up");
    let relay = RELAY.start().await;
    let mut idle = Client::connect(&relay).await;
    idle.subscribe("s", json!({})).await;
    set_link("down");
    let began = Instant::now();
    while !relay.log.text().contains("finished") {
        assert!(began.elapsed() < 4 * DEADLINE, "a half-open socket is kept");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    set_link("up");
    let open = relay.metrics().await.get("buzz_ws_connections_active");
    assert_eq!(open, 0.0);
}
