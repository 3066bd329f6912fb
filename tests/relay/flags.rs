//! Feature flags from the environment and from a file, and what is refused at the start. Observed
//! where operators do: the caps on `/metrics`, the log, the exit code. Each test names the changes
//! of the code that it catches.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use buzz_testkit::{Relay, eventually};

use crate::RELAY;

const HISTORY: &str = "buzz_concurrency_limit{gate=\"history_reads\"}";
const AUTH: &str = "buzz_concurrency_limit{gate=\"auth\"}";
/// Of the history gate, with the ten readers there are by default.
const CEILING: f64 = 8.0;

async fn caps(relay: &Relay) -> (f64, f64) {
    let metrics = relay.metrics().await;
    (metrics.get(HISTORY), metrics.get(AUTH))
}

async fn caps_become(relay: &Relay, expected: (f64, f64)) {
    eventually(&format!("caps {expected:?}"), async || {
        (caps(relay).await == expected).then_some(())
    })
    .await;
}

async fn ready(relay: &Relay, provider: &str) -> f64 {
    let series = format!("buzz_feature_flags_ready{{provider=\"{provider}\"}}");
    relay.metrics().await.get(&series)
}

/// Kills: a default that caps; `static` not ready.
#[tokio::test]
async fn without_a_provider_the_caps_are_their_ceilings() {
    let relay = RELAY.start().await;
    assert_eq!(caps(&relay).await, (CEILING, 0.0));
    assert_eq!(ready(&relay, "static").await, 1.0);
}

/// Kills: limits set after the socket is open; flags mixed up; a value in the log; a malformed
/// value that is 0 or the other flag's; a silent typo.
#[tokio::test]
async fn the_environment_sets_caps_before_the_socket_opens() {
    let relay = RELAY
        .start_in(Relay::prepare(""), |command| {
            command
                .env("BUZZ_FEATURE_FLAGS_PROVIDER", "environment")
                .env(
                    "BUZZ_FEATURE_FLAG_BUZZ_RELAY_CONCURRENCY_HISTORY_READS",
                    "3",
                )
                .env("BUZZ_FEATURE_FLAG_BUZZ_RELAY_CONCURRENCY_AUTH", "4x7y9")
                .env("BUZZ_FEATURE_FLAG_BUZZ_RELAY_CONCURENCY_AUTH", "5");
        })
        .await;
    assert_eq!(caps(&relay).await, (3.0, 0.0));
    assert_eq!(ready(&relay, "environment").await, 1.0);
    let log = relay.log.text();
    let wrong = log
        .lines()
        .filter(|line| line.contains("RELAY_CONCURRENCY_AUTH"));
    assert_eq!(wrong.count(), 1, "{log}");
    assert!(
        log.contains("RELAY_CONCURENCY_AUTH"),
        "the typo is silent:\n{log}"
    );
    assert!(!log.contains("4x7y9"), "a value in the log:\n{log}");
}

/// Kills: a cap above the ceiling; a value below 1 as a cap of its own.
#[tokio::test]
async fn a_flag_only_tightens() {
    for (history, auth) in [("9", "0"), ("0", "-1"), ("-3", "0"), ("3.7", "0")] {
        let relay = RELAY
            .start_in(Relay::prepare(""), |command| {
                command
                    .env("BUZZ_FEATURE_FLAGS__PROVIDER", "environment")
                    .env(
                        "BUZZ_FEATURE_FLAG_BUZZ_RELAY_CONCURRENCY_HISTORY_READS",
                        history,
                    )
                    .env("BUZZ_FEATURE_FLAG_BUZZ_RELAY_CONCURRENCY_AUTH", auth);
            })
            .await;
        assert_eq!(caps(&relay).await, (CEILING, 0.0), "{history} {auth}");
    }
}

fn write(relay_dir: &Path, text: &str) {
    std::fs::write(relay_dir.join("flags.toml"), text).expect("a file");
}

fn flags(history: &str, auth: &str) -> String {
    format!(
        "\"buzz.relay.concurrency.history-reads\" = {history}\n\
         \"buzz.relay.concurrency.auth\" = {auth}\n"
    )
}

const FILE: &str = "feature_flags.provider = \"file\"\nfeature_flags.file = \"flags.toml\"\n";

/// Kills: a file read once; a refresh later than promised; a broken or missing file that lifts the
/// caps; the same complaint at each refresh; 0 that is a cap; a silent typo.
#[tokio::test]
async fn a_file_is_followed_and_its_last_good_values_stay() {
    let dir = Relay::prepare(&format!("{FILE}feature_flags.refresh = \"200ms\""));
    write(dir.path(), &flags("2", "6"));
    let relay = RELAY.start_in(dir, |_| {}).await;
    assert_eq!(caps(&relay).await, (2.0, 6.0));
    assert_eq!(ready(&relay, "file").await, 1.0);

    let began = Instant::now();
    write(relay.dir(), &flags("1", "5"));
    caps_become(&relay, (1.0, 5.0)).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    relay
        .log
        .line_with(&["cap changed", "history_reads", "old=2", "new=1", "file"])
        .await;

    // Each state is seen before the next one; none of them moves a cap.
    write(relay.dir(), &flags("1", "")[..60]);
    relay.log.line_with(&["last good values", "line 2"]).await;
    write(relay.dir(), "");
    relay.log.line_with(&["last good values", "empty"]).await;
    std::fs::remove_file(relay.dir().join("flags.toml")).expect("a file");
    relay
        .log
        .line_with(&["last good values", "No such file"])
        .await;
    // Several refreshes pass before the log line of a change.
    assert_eq!(caps(&relay).await, (1.0, 5.0));
    write(
        relay.dir(),
        &(flags("1", "4") + "\"buzz.relay.concurency.auth\" = 1\n"),
    );
    caps_become(&relay, (1.0, 4.0)).await;
    relay.log.line_with(&["can be read again"]).await;
    relay
        .log
        .line_with(&["no such feature flag", "concurency"])
        .await;
    assert_eq!(relay.log.text().matches("No such file").count(), 1);

    write(relay.dir(), &flags("0", "3.7"));
    caps_become(&relay, (CEILING, 0.0)).await;
    relay
        .log
        .line_with(&["not a whole number", "concurrency.auth"])
        .await;
    assert_eq!(ready(&relay, "file").await, 1.0);
}

/// Kills: a start that fails without the file; ready without values; a file never looked for again.
#[tokio::test]
async fn a_file_that_comes_later_is_found() {
    let relay = RELAY
        .start_with(&format!("{FILE}feature_flags.refresh = \"100ms\""))
        .await;
    assert_eq!(caps(&relay).await, (CEILING, 0.0));
    assert_eq!(ready(&relay, "file").await, 0.0);
    relay.log.line_with(&["no flag has a value yet"]).await;
    // As a deployment does it: written beside, then moved over.
    std::fs::write(relay.dir().join("new"), flags("7", "9")).expect("a file");
    std::fs::rename(relay.dir().join("new"), relay.dir().join("flags.toml")).expect("a move");
    caps_become(&relay, (7.0, 9.0)).await;
    eventually("ready", async || {
        (ready(&relay, "file").await == 1.0).then_some(())
    })
    .await;
}

/// What `check-config` or `serve` make of these settings and variables.
fn run(subcommand: &str, settings: &str, variables: &[(&str, OsString)]) -> (Output, String) {
    let dir = Relay::prepare(settings);
    let mut command: Command = RELAY.command(dir.path());
    for (name, value) in variables {
        command.env(name, value);
    }
    let output = command.arg(subcommand).output().expect("the relay starts");
    let text = [&*output.stdout, &*output.stderr].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

/// Kills: each check taken out; a secret or a content in an error; a relay that starts all the same.
#[test]
fn what_cannot_work_exits_2_and_names_its_place() {
    let launchdarkly = "feature_flags.provider = \"launchdarkly\"\n";
    let with_key = format!("{launchdarkly}feature_flags.launchdarkly.sdk_key = \"sdk-hunter2\"\n");
    let url = "feature_flags.launchdarkly.relay_proxy_url";
    for (settings, parts) in [
        (
            "feature_flags.provider = \"consul\"",
            &["relay.toml", "feature_flags.provider", "consul", "static"][..],
        ),
        (launchdarkly, &["sdk_key", "is needed"]),
        (
            &format!("{launchdarkly}feature_flags.launchdarkly.sdk_key = \"sdk hunter2\""),
            &["relay.toml", "sdk_key"],
        ),
        (
            &format!("{with_key}{url} = \"proxy:8030\""),
            &["relay.toml", url],
        ),
        (
            &format!("{with_key}{url} = \"http://user:hunter2@proxy\""),
            &["relay.toml", url],
        ),
        (
            "feature_flags.refresh = \"0s\"",
            &["relay.toml", "feature_flags.refresh", "100ms"],
        ),
        (
            "feature_flags.provider = \"file\"\nfeature_flags.file = \"\"",
            &["feature_flags.file"],
        ),
        (
            &format!("{with_key}feature_flags.launchdarkly.start_wait = \"2m\""),
            &["start_wait"],
        ),
        ("feature_flags.fil = 1", &["fil", "unknown"]),
    ] {
        for subcommand in ["check-config", "serve"] {
            let (output, text) = run(subcommand, settings, &[]);
            assert_eq!(output.status.code(), Some(2), "{settings}: {text}");
            assert!(
                parts.iter().all(|part| text.contains(part)),
                "{settings}: {text}"
            );
            assert!(!text.contains("hunter2"), "{settings}: {text}");
        }
    }
}

/// Kills: a documented name that is ignored, refused, wins in silence over its longer form, or is
/// taken where it holds nothing to use.
#[test]
fn documented_names_of_variables_work_and_are_checked() {
    let (output, text) = run(
        "check-config",
        "",
        &[
            ("BUZZ_FEATURE_FLAGS_PROVIDER", "launchdarkly".into()),
            ("BUZZ_LAUNCHDARKLY_SDK_KEY", "sdk-hunter2".into()),
            (
                "BUZZ_LAUNCHDARKLY_RELAY_PROXY_URL",
                "http://proxy:8030".into(),
            ),
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "provider = \"launchdarkly\"",
        "sdk_key = \"***\"",
        "http://proxy:8030",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");

    let no_text = OsString::from_vec(b"sdk-\xff".to_vec());
    for (name, value, why) in [
        ("BUZZ_FEATURE_FLAGS_PROVIDER", "".into(), "empty"),
        ("BUZZ_FEATURE_FLAGS_PROVIDER", "consul".into(), "consul"),
        (
            "BUZZ_FEATURE_FLAGS_PROVIDER",
            "launchdarkly".into(),
            "sdk_key",
        ),
        ("BUZZ_LAUNCHDARKLY_SDK_KEY", " ".into(), "empty"),
        ("BUZZ_LAUNCHDARKLY_SDK_KEY", no_text.clone(), "UTF-8"),
        ("BUZZ_LAUNCHDARKLY_RELAY_PROXY_URL", "proxy".into(), "URL"),
        (
            "BUZZ_FEATURE_FLAGS__LAUNCHDARKLY__SDK_KEY",
            no_text,
            "UTF-8",
        ),
        ("BUZZ_FEATURE_FLAGS__PROVIDER", "consul".into(), "consul"),
        (
            "BUZZ_FEATURE_FLAGS_REFRESH",
            "1s".into(),
            "BUZZ_FEATURE_FLAGS__REFRESH",
        ),
        (
            "BUZZ_FEATURE_FLAGS_LAUNCHDARKLY_START_WAIT",
            "1s".into(),
            "BUZZ_FEATURE_FLAGS__LAUNCHDARKLY__START_WAIT",
        ),
    ] {
        // Settings of a provider that is not chosen only warn.
        let provider = ("BUZZ_FEATURE_FLAGS__PROVIDER", "launchdarkly".into());
        let is_of_provider = name.contains("LAUNCHDARKLY_");
        let chosen = is_of_provider.then_some(provider);
        let variables: Vec<_> = chosen.into_iter().chain([(name, value)]).collect();
        let (output, text) = run("check-config", "", &variables);
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        // What is missing has no variable to name.
        let place = if why == "sdk_key" { why } else { name };
        assert!(text.contains(place) && text.contains(why), "{name}: {text}");
    }
    let both = [
        ("BUZZ_FEATURE_FLAGS_PROVIDER", "file".into()),
        ("BUZZ_FEATURE_FLAGS__PROVIDER", "static".into()),
    ];
    let (output, text) = run("check-config", "", &both);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(both.iter().all(|(name, _)| text.contains(name)), "{text}");
}
