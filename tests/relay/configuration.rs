//! `check-config`: every setting with its default, and errors that name file, key and reason.

use std::{
    path::Path,
    process::{Command, Output},
};

use buzz_testkit::Relay;

use crate::RELAY;

/// Runs `check-config` on a file with `text`, with further environment.
fn check(text: &str, environment: &[(&str, &str)]) -> (Output, String, String) {
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    std::fs::write(dir.path().join("relay.toml"), text).expect("a configuration");
    run(RELAY
        .command(dir.path())
        .envs(environment.iter().copied())
        .arg("check-config"))
}

fn run(command: &mut Command) -> (Output, String, String) {
    let output = command.output().expect("the relay starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

fn effective(text: &str, environment: &[(&str, &str)]) -> toml::Table {
    let (output, out, err) = check(text, environment);
    assert_eq!(output.status.code(), Some(0), "{err}");
    out.parse().expect("TOML")
}

fn get<'a>(table: &'a toml::Table, key: &str) -> &'a toml::Value {
    let mut parts = key.split('.');
    let first = parts.next().expect("a key");
    let value = table
        .get(first)
        .unwrap_or_else(|| panic!("no {first} in {table:?}"));
    parts.fold(value, |value, part| {
        value
            .get(part)
            .unwrap_or_else(|| panic!("no {key} in {table:?}"))
    })
}

/// Every key with its value, dotted.
fn flat(prefix: &str, value: &toml::Value, into: &mut Vec<(String, String)>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                flat(&format!("{prefix}.{key}"), value, into);
            }
        }
        value => into.push((prefix.trim_start_matches('.').to_owned(), value.to_string())),
    }
}

#[test]
fn the_defaults_are_the_promised_ones() {
    let config = effective("", &[]);
    for (key, value) in [
        ("server.listen", "\"127.0.0.1:3000\""),
        ("server.admin_listen", "\"127.0.0.1:9090\""),
        ("server.url", "\"ws://localhost:3000\""),
        ("server.max_frame_bytes", "262144"),
        ("server.max_connections", "10000"),
        ("server.handler_permits", "1024"),
        ("server.send_queue", "1024"),
        ("server.ping", "\"30s\""),
        ("server.drain", "\"5s\""),
        ("server.trusted_proxies", "[]"),
        ("limits.max_subscriptions", "1024"),
        ("limits.max_filters", "10"),
        ("limits.max_limit", "500"),
        ("limits.max_subid_length", "64"),
        ("limits.max_event_tags", "5000"),
        ("limits.created_at_future", "\"15m\""),
        ("limits.created_at_past", "\"\""),
        ("database.url", "\"sqlite://data/relay.db\""),
        ("database.readers", "10"),
        ("database.durability", "\"full\""),
        ("auth.required", "false"),
        ("auth.challenge", "\"connect\""),
        ("auth.timeout", "\"10s\""),
        ("admission.human_ws_events_per_sec", "10"),
        ("admission.agent_ws_events_per_sec", "10"),
        ("admission.burst_window", "\"5s\""),
        ("admission.human_messages_per_min", "60"),
        ("admission.agent_messages_per_min", "120"),
        ("admission.human_api_calls_per_min", "300"),
        ("admission.agent_api_calls_per_min", "600"),
        ("admission.backend", "\"local\""),
        ("admission.timeout", "\"250ms\""),
        ("admission.connections_per_ip", "0"),
        ("admission.handshakes_per_ip_per_min", "12000"),
        ("admission.invalid_signatures_per_ip_per_min", "60"),
        ("feature_flags.provider", "\"static\""),
        ("feature_flags.refresh", "\"5s\""),
        ("feature_flags.file", "\"config/flags.toml\""),
        ("feature_flags.launchdarkly.sdk_key", "\"\""),
        ("feature_flags.launchdarkly.relay_proxy_url", "\"\""),
        ("feature_flags.launchdarkly.start_wait", "\"3s\""),
        ("telemetry.log", "\"info\""),
        ("telemetry.log_format", "\"text\""),
    ] {
        assert_eq!(get(&config, key).to_string(), value, "{key}");
    }
}

#[test]
fn the_sample_file_holds_every_key_with_its_default_and_a_comment_each() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/relay.toml");
    let sample = std::fs::read_to_string(path).expect("the sample file");
    let keys = |table: toml::Table| {
        let mut keys = Vec::new();
        flat("", &toml::Value::Table(table), &mut keys);
        keys.sort();
        keys
    };
    let in_sample = keys(sample.parse().expect("TOML"));
    assert_eq!(in_sample, keys(effective("", &[])));
    assert_eq!(in_sample, keys(effective(&sample, &[])));
    let lines: Vec<_> = sample.lines().map(str::trim).collect();
    for pair in lines.windows(2) {
        if pair[1].contains(" = ") && !pair[1].starts_with('#') {
            assert!(pair[0].starts_with('#'), "no comment above {}", pair[1]);
        }
    }
}

#[test]
fn what_check_config_prints_is_itself_a_configuration() {
    let changed = "server.listen = \"127.0.0.1:4000\"\nlimits.max_limit = 77\n";
    let (_, printed, _) = check(changed, &[]);
    let (_, again, _) = check(&printed, &[]);
    assert_eq!(printed, again);
    let config: toml::Table = printed.parse().expect("TOML");
    assert_eq!(get(&config, "limits.max_limit").to_string(), "77");
}

#[test]
fn the_environment_overrides_the_file() {
    let file = "server.listen = \"127.0.0.1:1\"\nlimits.max_limit = 7\n";
    let config = effective(
        file,
        &[
            ("BUZZ_DATABASE__URL", "sqlite://other.db"),
            ("BUZZ_SERVER__LISTEN", "127.0.0.1:4321"),
            ("BUZZ_LIMITS__MAX_LIMIT", "99"),
            ("BUZZ_AUTH__REQUIRED", "true"),
            ("BUZZ_SERVER__DRAIN", "250ms"),
        ],
    );
    for (key, value) in [
        ("database.url", "\"sqlite://other.db\""),
        ("server.listen", "\"127.0.0.1:4321\""),
        ("limits.max_limit", "99"),
        ("auth.required", "true"),
    ] {
        assert_eq!(get(&config, key).to_string(), value, "{key}");
    }
}

#[test]
fn a_wrong_file_exits_2_and_names_file_key_and_reason() {
    for (text, key, reason) in [
        ("server.listne = 1", "listne", "unknown"),
        ("sever.listen = \"x\"", "sever", "unknown"),
        ("server.listen = \"nowhere\"", "listen", ""),
        ("server.listen = 5", "listen", ""),
        ("server.drain = \"soon\"", "drain", ""),
        ("server.drain = 5", "drain", ""),
        ("server.max_frame_bytes = -1", "max_frame_bytes", ""),
        ("server.max_frame_bytes = \"big\"", "max_frame_bytes", ""),
        (
            "server.trusted_proxies = [\"10.0.0.0/33\"]",
            "trusted_proxies",
            "",
        ),
        ("server.url = \"relay.example\"", "url", ""),
        ("database.url = \"mysql://x\"", "url", ""),
        ("database.readers = 0", "readers", ""),
        ("database.durability = \"some\"", "durability", ""),
        ("telemetry.log_format = \"xml\"", "log_format", ""),
        ("limits.max_limit = 1.5", "max_limit", ""),
    ] {
        let (output, _, err) = check(text, &[]);
        assert_eq!(output.status.code(), Some(2), "{text}: {err}");
        for part in ["relay.toml", key, reason] {
            assert!(err.contains(part), "{text}: no {part:?} in {err}");
        }
        assert!(!err.contains("panicked"), "{err}");
    }
    let (output, _, err) = check("server = [", &[]);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("relay.toml"), "{err}");
}

#[test]
fn a_wrong_environment_variable_exits_2_by_its_name() {
    for (name, value) in [
        ("BUZZ_LIMITS__MAX_LIMIT", "many"),
        ("BUZZ_SERVER__NOTHING", "1"),
    ] {
        let (output, _, err) = check("", &[(name, value)]);
        assert_eq!(output.status.code(), Some(2), "{name}: {err}");
        let key = name.rsplit("__").next().expect("a key").to_lowercase();
        assert!(err.to_lowercase().contains(&key), "{err}");
    }
}

#[test]
fn a_missing_file_that_was_named_exits_2() {
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    for subcommand in ["check-config", "serve", "migrate"] {
        let (output, _, err) = run(RELAY.command(dir.path()).arg(subcommand));
        assert_eq!(output.status.code(), Some(2), "{subcommand}: {err}");
        assert!(err.contains("relay.toml"), "{err}");
    }
}

#[test]
fn serve_refuses_what_check_config_refuses() {
    let dir = Relay::prepare("limits.max_limt = 5");
    let (output, _, err) = run(&mut RELAY.command(dir.path()));
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("max_limt"), "{err}");
}

#[test]
fn passwords_are_shown_nowhere() {
    for text in [
        "database.url = \"postgres://user:hunter2@db/relay\"",
        "database.url = \"sqlite://user:hunter2@db/relay\"",
        "database.url = \"nothing://user:hunter2@db/relay\"",
    ] {
        let (_, out, err) = check(text, &[]);
        assert!(
            !out.contains("hunter2") && !err.contains("hunter2"),
            "{out}{err}"
        );
        assert!(
            out.contains("db/relay") || err.contains("db/relay"),
            "{out}{err}"
        );
    }
}

#[tokio::test]
async fn a_taken_port_is_named_and_ends_the_start() {
    let relay = RELAY.start().await;
    let dir = Relay::prepare(&format!("server.listen = \"{}\"", relay.addr));
    let (output, _, err) = run(&mut RELAY.command(dir.path()));
    assert!(!output.status.success());
    assert!(err.contains(&relay.addr.to_string()), "{err}");
    assert!(!err.contains("panicked"), "{err}");
}

/// Mutants: the first mistake ends the check; a place without its line; no suggestion.
#[test]
fn all_mistakes_are_told_at_once_with_line_key_and_what_was_meant() {
    let text = "[server]\nlistne = \"127.0.0.1:1\"\nmax_limit = 5\ndrain = 5\n\n[limits]\n\
        max_filters = 0\nmax_limit = \"many\"\n\n[databse]\nurl = \"x\"\n";
    let variables = [("BUZZ_HISTORY__WIAT", "1s"), ("BUZZ_AUTH__WAIT", "soon")];
    let (output, out, err) = check(text, &variables);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert_eq!(out, "");
    for line in [
        "error: relay.toml:2: server.listne: unknown key; did you mean server.listen?",
        "error: relay.toml:3: server.max_limit: unknown key; did you mean limits.max_limit?",
        "error: relay.toml:4: server.drain: `5` is no duration",
        "error: relay.toml:7: limits.max_filters: must be at least 1",
        "error: relay.toml:8: limits.max_limit: invalid type",
        "error: relay.toml:10: databse: unknown key; did you mean database?",
        "error: environment variable BUZZ_HISTORY__WIAT: history.wiat: unknown key; \
         did you mean BUZZ_HISTORY__WAIT?",
        "error: environment variable BUZZ_AUTH__WAIT: auth.wait: `soon` is no duration",
    ] {
        assert!(err.contains(line), "no {line:?} in\n{err}");
    }
    assert_eq!(err.lines().count(), 8, "{err}");
}

/// Mutants: a mistake of the syntax shown with its line's text; only the first one told.
#[test]
fn mistakes_of_the_syntax_show_their_line_and_no_secret() {
    let text = "[database]\nurl = \"postgres://u:hunter2@db/relay\nreaders = = 4\n";
    let (output, _, err) = check(text, &[]);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("relay.toml:2: ") && err.contains("relay.toml:3: "),
        "{err}"
    );
    assert!(!err.contains("hunter2"), "{err}");
}

/// Mutant: a bound that `serve` meets and `check-config` does not.
#[test]
fn what_serve_could_not_start_with_is_refused() {
    for (text, key) in [
        (
            "server.listen = \"127.0.0.1:7000\"\nserver.admin_listen = \"127.0.0.1:7000\"",
            "server.admin_listen",
        ),
        (
            "server.listen = \"0.0.0.0:7000\"\nserver.admin_listen = \"127.0.0.1:7000\"",
            "server.admin_listen",
        ),
        ("server.listen = \"127.0.0.1:9090\"", "server.admin_listen"),
        ("database.url = \"sqlite://:memory:\"", "database.url"),
        ("database.url = \"sqlite://x.db?mode=rwc\"", "database.url"),
        ("database.url = \"sqlite://file:x.db\"", "database.url"),
        ("database.url = \"sqlite://.\"", "database.url"),
        ("database.url = \"sqlite://data/\"", "database.url"),
        ("database.url = \"postgres://u@h:port/db\"", "database.url"),
        (
            "database.url = \"postgres://u@h/db?sslmode=sometimes\"",
            "database.url",
        ),
        (
            "database.url = \"postgres://u@h/db?sslmode=require&sslrootcert=missing.pem\"",
            "database.url",
        ),
        (
            "database.url = \"postgres://u@h/db\"\ndatabase.replica_url = \"postgres://u@h:x/db\"",
            "database.replica_url",
        ),
        (
            "telemetry.otlp_endpoint = \"http://\"",
            "telemetry.otlp_endpoint",
        ),
        ("server.drain = \"100000000years\"", "server.drain"),
    ] {
        for subcommand in ["check-config", "serve"] {
            let dir = tempfile::TempDir::new().expect("a directory");
            std::fs::write(dir.path().join("relay.toml"), text).expect("a configuration");
            let (output, _, err) = run(RELAY.command(dir.path()).arg(subcommand));
            assert_eq!(output.status.code(), Some(2), "{text}: {err}");
            assert!(err.contains(&format!(": {key}: ")), "{text}: {err}");
            let files = std::fs::read_dir(dir.path()).expect("a directory").count();
            assert_eq!(files, 1, "{text}: a file was made");
        }
    }
}

/// Mutants: an address refused; an IPv4 address in IPv6 form that no client has.
#[test]
fn a_proxy_is_an_address_or_a_range() {
    let text =
        "server.trusted_proxies = [\"10.0.0.1\", \"::1\", \"10.1.0.0/16\", \"::ffff:10.0.0.2\"]";
    let config = effective(text, &[]);
    let expected = "[\"10.0.0.1/32\", \"::1/128\", \"10.1.0.0/16\", \"10.0.0.2/32\"]";
    assert_eq!(get(&config, "server.trusted_proxies").to_string(), expected);
    let variable = ("BUZZ_SERVER__TRUSTED_PROXIES", "[\"10.0.0.1\"]");
    let config = effective("", &[variable]);
    let expected = "[\"10.0.0.1/32\"]";
    assert_eq!(get(&config, "server.trusted_proxies").to_string(), expected);
}

/// Mutants: a mistake there that ends the start; a setting that is unused without a word; the
/// provider that is chosen not checked.
#[tokio::test]
async fn settings_of_a_provider_that_is_not_chosen_only_warn() {
    for (text, variables, key) in [
        (
            "",
            &[("BUZZ_LAUNCHDARKLY_SDK_KEY", "")][..],
            "feature_flags.launchdarkly.sdk_key",
        ),
        (
            "",
            &[("BUZZ_LAUNCHDARKLY_RELAY_PROXY_URL", "proxy:8030")],
            "feature_flags.launchdarkly.relay_proxy_url",
        ),
        (
            "feature_flags.launchdarkly.start_wait = \"soon\"",
            &[],
            "feature_flags.launchdarkly.start_wait",
        ),
        (
            "feature_flags.launchdarkly.key = 1",
            &[],
            "feature_flags.launchdarkly.key",
        ),
        ("feature_flags.file = \"x.toml\"", &[], "feature_flags.file"),
        (
            "feature_flags.provider = \"environment\"",
            &[("BUZZ_LAUNCHDARKLY_SDK_KEY", "sdk-hunter2")],
            "feature_flags.launchdarkly.sdk_key",
        ),
    ] {
        let (output, out, err) = check(text, variables);
        assert_eq!(output.status.code(), Some(0), "{text}: {err}");
        assert!(err.starts_with("warning: ") && err.contains(key), "{err}");
        assert!(
            !err.contains("hunter2") && out.contains("[feature_flags]"),
            "{err}"
        );
        let relay = RELAY.start_in(Relay::prepare(text), |command| {
            command.envs(variables.iter().copied());
        });
        drop(relay.await);
    }
    let empty_key = [
        ("BUZZ_FEATURE_FLAGS_PROVIDER", "launchdarkly"),
        ("BUZZ_LAUNCHDARKLY_SDK_KEY", ""),
    ];
    let (output, _, err) = check("", &empty_key);
    assert_eq!(output.status.code(), Some(2), "{err}");
    let (_, _, err) = check("", &[]);
    assert_eq!(err, "");
}
