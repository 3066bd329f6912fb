//! The real binary against a small relay: each mode's JSON line must hold the numbers that the
//! relay knows to be true.

#![allow(clippy::unwrap_used)]

mod clients;
mod rules;

use std::{net::TcpListener, process::Command};

use buzz_protocol::Event;
use buzz_testkit::{SmallRelay, small_relay::Rules};
use serde_json::Value;

/// Runs it; gives the exit code, the JSON line and what it said on stderr.
fn bench(url: &str, args: &str) -> (i32, Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_buzz-bench"))
        .args(args.split(' '))
        .args(["--url", url, "--deadline", "60"])
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stdout.lines().count() <= 1, "{stdout}");
    let report = serde_json::from_str(stdout.trim()).unwrap_or(Value::Null);
    println!("{stderr}");
    assert_documented(&report);
    assert!(!stderr.contains("null"), "{stderr}");
    (output.status.code().unwrap(), report, stderr)
}

/// Every key of a JSON line stands in the section of the guide that explains them. Keys that name a
/// client, a shape, a file or an outcome are data.
fn assert_documented(report: &Value) {
    const DATA: [&str; 5] = [
        "clients",
        "shapes",
        "counts",
        "disk_growth",
        "auth_outcomes",
    ];
    let guide = include_str!("../../../../docs/performance.md");
    let (_, section) = guide.split_once("## Keys of the JSON line").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let Value::Object(fields) = report else {
        return;
    };
    for (key, value) in fields {
        assert!(
            section.contains(&format!("`{key}`")),
            "{key} is not documented"
        );
        match value {
            Value::Object(inner) if DATA.contains(&key.as_str()) => {
                inner.values().for_each(assert_documented);
            }
            value => assert_documented(value),
        }
    }
}

fn pid() -> String {
    format!("--relay-pid {}", std::process::id())
}

#[test]
fn ingest_counts_every_ok_and_a_second_run_finds_duplicates() {
    let relay = SmallRelay::start(Rules::default());
    let disk = tempfile::tempdir().unwrap();
    let args = format!(
        "ingest --events 600 --authors 20 --sockets 4 --in-flight 8 --disk {}/relay.db {}",
        disk.path().display(),
        pid()
    );
    let (code, report, _) = bench(&relay.url, &args);
    assert_eq!(code, 0);
    assert_eq!(report["accepted"], 600);
    assert_eq!(report["unmatched"], 0);
    assert_eq!(report["sockets_cut"], 0);
    assert_eq!(report["disk_bytes_per_event"], 0.0);
    assert!(report["accepted_per_sec"].as_f64().unwrap() > 0.0);
    let p50 = report["latency_ms"]["p50"].as_f64().unwrap();
    assert!(p50 > 0.0 && p50 <= report["latency_ms"]["max"].as_f64().unwrap());
    for figure in [
        "verify_us",
        "relay_cpu_us_per_accepted",
        "relay_cpu_per_verify",
        "relay_rss_kib",
    ] {
        assert!(report[figure].as_f64().unwrap() > 0.0, "{figure}");
    }

    let (code, report, _) = bench(&relay.url, &args);
    assert_eq!((code, &report["accepted"]), (0, &0.into()));
    assert_eq!(report["duplicates"], 600);
}

#[test]
fn ingest_counts_refusals_by_prefix() {
    let relay = SmallRelay::start(rules::refuses_half());
    let (code, report, _) = bench(&relay.url, "ingest --events 200 --authors 5 --sockets 2");
    assert_eq!(code, 0);
    assert_eq!(
        (&report["accepted"], &report["refused"]),
        (&100.into(), &100.into())
    );
    assert_eq!(report["problems"]["counts"]["OK blocked"], 100);
    assert_eq!(
        report["problems"]["first_texts"][0],
        "OK: blocked: every second one"
    );
}

#[test]
fn ingest_ends_when_the_relay_is_silent_or_cuts_or_is_not_there() {
    let silent = SmallRelay::start(rules::silent());
    let args = "ingest --events 50 --authors 5 --sockets 2 --in-flight 4 --deadline 1";
    let output = Command::new(env!("CARGO_BIN_EXE_buzz-bench"))
        .args(args.split(' '))
        .args(["--url", &silent.url])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["unanswered"], 50);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("50 of 50 events have no answer"), "{said}");

    let cuts = SmallRelay::start(rules::cuts());
    let (code, report, said) = bench(
        &cuts.url,
        "ingest --events 50 --authors 5 --sockets 4 --in-flight 2",
    );
    assert_eq!((code, &report["sockets_cut"]), (1, &4.into()));
    assert!(
        said.contains("cut: the relay ended") || said.contains("cut: the connection broke"),
        "{said}"
    );

    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (code, report, said) = bench(&format!("ws://{closed}"), "ingest --events 5");
    assert_eq!((code, report), (1, Value::Null));
    assert!(said.contains("can't connect"), "{said}");
}

#[test]
fn query_checks_every_shape_and_finds_a_broken_order() {
    let args = format!(
        "query --load --events 1000 --authors 600 --sockets 4 --seconds 1 --verify-order {}",
        pid()
    );
    let (code, report, _) = bench(&SmallRelay::start(Rules::default()).url, &args);
    assert_eq!(code, 0);
    for (shape, events) in [
        ("author", 1.0..4.0),
        ("kind", 20.0..500.0),
        ("e", 1.0..5.0),
        ("ids", 19.0..20.1),
        ("authors500", 50.0..50.1),
    ] {
        let shape = &report["shapes"][shape];
        assert!(shape["answers"].as_u64().unwrap() > 0, "{shape}");
        let per_answer = shape["events_per_answer"].as_f64().unwrap();
        assert!(events.contains(&per_answer), "{shape}");
        for none in ["wrong", "short", "refused", "unanswered", "sockets_cut"] {
            assert_eq!(shape[none], 0, "{none}: {shape}");
        }
        assert!(shape["latency_ms"]["p50"].as_f64().unwrap() > 0.0);
    }

    let args = args.replace("--seconds", "--shape kind --seconds");
    let (code, report, said) = bench(&SmallRelay::start(rules::ties_reversed()).url, &args);
    assert_eq!(code, 1);
    assert!(report["shapes"]["kind"]["wrong"].as_u64().unwrap() > 0);
    assert!(said.contains("ties and has the lower id"), "{said}");
}

#[test]
fn query_says_when_nothing_is_found_or_all_is_refused() {
    let args = "query --events 100 --authors 5 --sockets 2 --seconds 0.2 --shape ids";
    let (code, _, said) = bench(&SmallRelay::start(Rules::default()).url, args);
    assert!(
        code == 1 && said.contains("does the relay hold the data set"),
        "{said}"
    );
    let (code, report, _) = bench(&SmallRelay::start(rules::refuses_reqs()).url, args);
    assert_eq!(code, 1);
    let refused = &report["problems"]["counts"]["CLOSED rate-limited"];
    assert_eq!(refused, &report["shapes"]["ids"]["refused"]);
    assert!(refused.as_u64().unwrap() > 0);
}

#[test]
fn fanout_counts_every_delivery_at_full_speed_and_at_a_rate() {
    let relay = SmallRelay::start(Rules::default());
    for (args, events) in [
        ("fanout --subscribers 20 --events 100 --in-flight 16", 100),
        ("fanout --subscribers 20 --rate 100 --events 30", 30),
    ] {
        let (code, report, _) = bench(&relay.url, &format!("{args} {}", pid()));
        assert_eq!(code, 0);
        assert_eq!(
            (&report["accepted"], &report["deliveries"]),
            (&events.into(), &(20 * events).into())
        );
        for none in [
            "lost",
            "duplicates",
            "out_of_order",
            "refused",
            "sockets_cut",
        ] {
            assert_eq!(report[none], 0, "{none}");
        }
        assert!(report["latency_ms"]["p50"].as_f64().unwrap() > 0.0);
        if report["rate"] == 100.0 {
            let seconds = report["seconds"].as_f64().unwrap();
            assert!((0.29..20.0).contains(&seconds), "{seconds}");
        }
    }
}

#[test]
fn fanout_counts_what_is_lost() {
    let relay = SmallRelay::start(rules::loses_tenth());
    let (code, report, said) = bench(&relay.url, "fanout --subscribers 5 --events 100");
    assert_eq!((code, &report["lost"]), (1, &50.into()));
    assert!(said.contains("50 deliveries lost"), "{said}");
}

#[test]
fn idle_waits_for_every_eose() {
    let relay = SmallRelay::start(Rules::default());
    let (code, report, _) = bench(
        &relay.url,
        &format!("idle --connections 200 --settle 0.1 {}", pid()),
    );
    assert_eq!((code, &report["subscribed"]), (0, &200.into()));
    assert!(report["relay_kib_per_connection"].is_f64());

    let refusing = SmallRelay::start(rules::refuses_reqs());
    let args = "idle --connections 3 --settle 0.1";
    let (code, report, _) = bench(&refusing.url, args);
    assert_eq!((code, &report["subscribed"]), (1, &0.into()));
    assert_eq!(report["problems"]["counts"]["CLOSED rate-limited"], 3);
}

#[test]
fn generate_writes_the_events_that_ingest_sends() {
    let output = Command::new(env!("CARGO_BIN_EXE_buzz-bench"))
        .args(["generate", "--events", "50", "--authors", "5"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Event> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 50);
    events.iter().for_each(|event| event.verify().unwrap());
}
