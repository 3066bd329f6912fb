//! Every setting of `[admission]` changes a result, and wrong ones end the start.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use serde_json::{Value, json};

use crate::{RELAY, admission::reqs};
use buzz_testkit::{Client, http, relay::DEFAULT_QUOTAS};

async fn advertised(settings: &str) -> Value {
    let relay = RELAY.start_with(settings).await;
    http::relay_information(relay.addr).await.json()["limitation"]["rate_limits"].clone()
}

/// Kills: figures that are written by hand; a limit of 0 that is advertised as one.
#[tokio::test]
async fn what_is_enforced_is_advertised() {
    assert_eq!(
        advertised(DEFAULT_QUOTAS).await,
        json!({
            "human": {"frames": 50, "window_secs": 5, "messages_per_min": 60, "api_calls_per_min": 300},
            "agent": {"frames": 50, "window_secs": 5, "messages_per_min": 120, "api_calls_per_min": 600},
        })
    );
    let changed = "\
        admission.human_ws_events_per_sec = 3\n\
        admission.agent_ws_events_per_sec = 0\n\
        admission.burst_window = \"4s\"\n\
        admission.human_messages_per_min = 5\n\
        admission.agent_messages_per_min = 6\n\
        admission.human_api_calls_per_min = 0\n\
        admission.agent_api_calls_per_min = 8\n";
    assert_eq!(
        advertised(changed).await,
        json!({
            "human": {"frames": 12, "window_secs": 4, "messages_per_min": 5},
            "agent": {"messages_per_min": 6, "api_calls_per_min": 8},
        })
    );
}

const NAMES: [(&str, &str); 6] = [
    (
        "BUZZ_RATE_LIMIT_HUMAN_WS_EVENTS_PER_SEC",
        "human_ws_events_per_sec",
    ),
    (
        "BUZZ_RATE_LIMIT_HUMAN_MESSAGES_PER_MIN",
        "human_messages_per_min",
    ),
    (
        "BUZZ_RATE_LIMIT_HUMAN_API_CALLS_PER_MIN",
        "human_api_calls_per_min",
    ),
    (
        "BUZZ_RATE_LIMIT_AGENT_STANDARD_WS_EVENTS_PER_SEC",
        "agent_ws_events_per_sec",
    ),
    (
        "BUZZ_RATE_LIMIT_AGENT_STANDARD_MESSAGES_PER_MIN",
        "agent_messages_per_min",
    ),
    (
        "BUZZ_RATE_LIMIT_AGENT_STANDARD_API_CALLS_PER_MIN",
        "agent_api_calls_per_min",
    ),
];

fn check(variables: &[(&str, OsString)]) -> (Option<i32>, String, String) {
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    std::fs::write(dir.path().join("relay.toml"), "").expect("a configuration");
    let mut command = RELAY.command(dir.path());
    command.arg("check-config").envs(variables.iter().cloned());
    let output = command.output().expect("an end");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Kills: a name that is ignored, or sets another key.
#[test]
fn each_documented_name_sets_its_key() {
    for (name, key) in NAMES {
        let (code, out, err) = check(&[(name, "17".into())]);
        assert_eq!(code, Some(0), "{name}: {err}");
        let config: toml::Table = out.parse().expect("TOML");
        assert_eq!(config["admission"][key].as_integer(), Some(17), "{name}");
        let own = format!("BUZZ_ADMISSION__{}", key.to_uppercase());
        let (code, out, _) = check(&[(&own, "0".into())]);
        assert_eq!(code, Some(0), "0 is no limit");
        let config: toml::Table = out.parse().expect("TOML");
        assert_eq!(config["admission"][key].as_integer(), Some(0), "{own}");
    }
}

/// Kills: a value that is cut, rounded or taken for the default; an error that does not say where
/// it comes from; a password that is shown.
#[test]
fn a_wrong_value_ends_the_start_and_is_named() {
    let not_utf8 = OsString::from_vec(vec![b'1', 0xff]);
    let values: [OsString; 7] = [
        "many".into(),
        "-1".into(),
        "1.5".into(),
        "4294967296".into(),
        "99999999999999999999".into(),
        "".into(),
        not_utf8,
    ];
    for (name, key) in NAMES {
        let own = format!("BUZZ_ADMISSION__{}", key.to_uppercase());
        for value in &values {
            for variable in [name, &own] {
                let (code, _, err) = check(&[(variable, value.clone())]);
                assert_eq!(code, Some(2), "{variable}={value:?}: {err}");
                let is_named = err.contains(variable) && err.to_lowercase().contains(key);
                assert!(
                    is_named && !err.contains("panicked"),
                    "{variable}={value:?}: {err}"
                );
            }
        }
    }
    for (key, value) in [
        ("burst_window", "0s"),
        ("burst_window", "1500ms"),
        ("burst_window", "2h"),
        ("burst_window", "soon"),
        ("timeout", "0s"),
        ("timeout", "2m"),
        ("backend", "memcached://x"),
        ("backend", "Local"),
        ("backend", "redis://user:hunter2@:x"),
        ("connections_per_ip", "-1"),
        ("handshakes_per_ip_per_min", "x"),
        ("invalid_signatures_per_ip_per_min", "1000001"),
        ("human_ws_events_per_sec", "1000001"),
    ] {
        let variable = format!("BUZZ_ADMISSION__{}", key.to_uppercase());
        let (code, _, err) = check(&[(&variable, value.into())]);
        assert_eq!(code, Some(2), "{key}={value}: {err}");
        assert!(
            err.contains(&variable) && err.contains(&format!("admission.{key}")),
            "{err}"
        );
        assert!(!err.contains("hunter2"), "{err}");
    }
    let misspelt = "BUZZ_RATE_LIMIT_HUMAN_WS_EVENT_PER_SEC";
    let (code, _, err) = check(&[(misspelt, "5".into())]);
    assert!(code == Some(2) && err.contains(misspelt), "{err}");
    let backend = "redis://user:hunter2@127.0.0.1:1/".into();
    let (code, out, _) = check(&[("BUZZ_ADMISSION__BACKEND", backend)]);
    assert_eq!(code, Some(0));
    assert!(
        out.contains("user:***@") && !out.contains("hunter2"),
        "{out}"
    );
}

/// Kills: a window or a rate that is not what is enforced. (Messages and agents: `admission.rs`;
/// addresses: `admission_guards.rs`; the backend and its timeout: `admission_redis.rs`.)
#[tokio::test]
async fn the_frames_of_a_window_are_rate_times_window() {
    for (rate, window, limit) in [(1, 30, 30), (3, 20, 60)] {
        let settings = format!(
            "admission.human_ws_events_per_sec = {rate}\nadmission.burst_window = \"{window}s\""
        );
        let relay = RELAY.start_with(&settings).await;
        let mut client = Client::connect(&relay).await;
        let answers = reqs(&mut client, limit + 5).await;
        assert_eq!(
            answers.iter().filter(|answer| answer.is_none()).count(),
            limit
        );
    }
}
