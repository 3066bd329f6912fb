//! The load tool's storm of logins against the relay: what clients, metrics and log say of it agree.

use std::process::Command;

use serde_json::Value;

use buzz_testkit::{Relay, relay::URL};

use crate::RELAY;

/// Runs `buzz-bench auth-storm` until all are in; its figures.
async fn storm(relay: &Relay, clients: usize) -> Value {
    let mut command = Command::new(RELAY.sibling("buzz-bench"));
    command
        .args(["auth-storm", "--deadline", "60", "--auth-url", URL])
        .args(["--clients", &clients.to_string()])
        .args(["--url", &relay.url()])
        .args(["--admin", &format!("http://{}", relay.admin)]);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("a thread")
        .expect("buzz-bench; cargo build --workspace first");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect(&said)
}

/// Kills: a cap that lets two in at once; a shed login that gets an OK, or that is not counted; a
/// client that is shed and not let in later.
#[tokio::test]
async fn everyone_gets_in_past_an_auth_cap_of_one_and_all_counts_agree() {
    let dir = Relay::prepare("feature_flags.provider = \"environment\"\nauth.wait = \"1ms\"");
    let relay = RELAY
        .start_in(dir, |command| {
            command.env("BUZZ_FEATURE_FLAG_BUZZ_RELAY_CONCURRENCY_AUTH", "1");
        })
        .await;
    let report = storm(&relay, 300).await;
    let outcomes = &report["relay"]["auth_outcomes"];
    assert_eq!(report["logged_in"], 300);
    assert_eq!(outcomes["ok"], 300);
    assert_eq!(report["relay"]["auth_limit"], 1);
    assert_eq!(report["relay"]["auth_in_flight_peak"], 1);
    // One look at a role for each that was not shed.
    assert_eq!(report["relay"]["role_reads"], 300);
    let shed = outcomes["concurrency_limit"].as_u64().unwrap_or_default();
    assert!(shed > 0, "nobody had to wait: {report}");
    assert_eq!(report["bare_closes"], shed);
    assert_eq!(report["attempts"], 300 + shed);
    let lines = relay.log.lines();
    let denied = lines
        .iter()
        .filter(|line| line.contains("denied/concurrency_limit"));
    // One for the login, one for the socket that it ends.
    assert_eq!(denied.count() as u64, 2 * shed);
}
