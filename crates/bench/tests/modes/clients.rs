//! The modes that measure clients: a storm of logins, and a change of relay.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use buzz_testkit::{SmallRelay, small_relay::Rules};

use super::{bench, rules};

/// Kills: a shed client that gives up or that is not counted; a login of a shed attempt counted;
/// a median or an order of the times that is not theirs.
#[test]
fn a_storm_brings_in_everyone_whom_the_relay_sheds() {
    let relay = SmallRelay::start(rules::sheds_logins());
    let (code, report, _) = bench(&relay.url, "auth-storm --clients 12");
    assert_eq!((code, &report["logged_in"]), (0, &12.into()));
    // Every third login gets in.
    assert_eq!(report["attempts"], 36);
    assert_eq!(report["bare_closes"], 24);
    for none in ["refused", "handshakes_refused", "sockets_cut"] {
        assert_eq!(report[none], 0, "{none}");
    }
    let seconds = |name: &str| report[name].as_f64().unwrap();
    let (first, last) = (
        seconds("first_login_seconds"),
        seconds("last_login_seconds"),
    );
    let median = seconds("median_login_seconds");
    assert!(
        first <= median && median <= last && last <= seconds("seconds") + 0.01,
        "{report}"
    );
    assert!(report["auth_latency_ms"]["p50"].as_f64().unwrap() > 0.0);
    let slowest = report["login_ms"]["max"].as_f64().unwrap() / 1e3;
    assert!((slowest - last).abs() <= 0.01 + last / 100.0, "{report}");
    assert!(report["relay"].is_null());
}

/// Kills: a refusal without its reason; a client that comes again although it can't get in.
#[test]
fn a_storm_ends_where_the_relay_refuses_for_good() {
    let relay = SmallRelay::start(rules::refuses_logins());
    let (code, report, said) = bench(&relay.url, "auth-storm --clients 7");
    assert_eq!((code, &report["refused"]), (1, &7.into()));
    assert_eq!(
        (&report["attempts"], &report["logged_in"]),
        (&7.into(), &0.into())
    );
    assert_eq!(report["problems"]["counts"]["OK restricted"], 7);
    assert!(said.contains("OK: restricted: not a member"), "{said}");

    // A login that names another relay than it goes to.
    let relay = SmallRelay::start(Rules::default());
    let args = "auth-storm --clients 2 --auth-url ws://relay.example";
    let (code, report, _) = bench(&relay.url, args);
    assert_eq!((code, &report["refused"]), (1, &2.into()));
    assert_eq!(report["problems"]["counts"]["OK invalid"], 2);
}

/// Kills: a deadline that is not kept; a refused dial that ends the run or is not counted.
#[test]
fn a_storm_on_a_closed_door_ends_at_its_deadline() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_buzz-bench"))
        .args(["auth-storm", "--clients", "3", "--deadline", "1"])
        .args(["--url", &format!("ws://{address}")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["logged_in"], 0);
    assert!(report["handshakes_refused"].as_u64().unwrap() >= 3);
    assert!((0.9..5.0).contains(&report["seconds"].as_f64().unwrap()));
}

/// Answers each GET of `/metrics` with the next reading; gives its address.
fn admin(readings: Vec<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for at in 0.. {
            let mut stream = listener.accept().unwrap().0;
            let n = stream.read(&mut [0; 1024]).unwrap();
            assert!(n > 0);
            let body = readings[readings.len().min(at + 1) - 1];
            write!(stream, "HTTP/1.1 200 OK\r\n\r\n{body}").unwrap();
        }
    });
    format!("http://{address}")
}

/// Kills: the last reading taken for the peak; the relay's totals taken for the run's.
#[test]
fn a_storm_shows_the_peak_and_the_work_that_the_relay_reports() {
    let metrics = admin(vec![
        "buzz_db_seconds_count{op=\"role\"} 100\nbuzz_auth_outcomes_total{outcome=\"ok\"} 100\n",
        "buzz_concurrency_in_flight{gate=\"auth\"} 4\nbuzz_concurrency_waiting{gate=\"auth\"} 9\n",
        "buzz_db_seconds_count{op=\"role\"} 105\nbuzz_auth_outcomes_total{outcome=\"ok\"} 103\n\
         buzz_auth_outcomes_total{outcome=\"concurrency_limit\"} 2\n",
    ]);
    let relay = SmallRelay::start(rules::sheds_logins());
    let args = format!("auth-storm --clients 5 --admin {metrics}");
    let (code, report, _) = bench(&relay.url, &args);
    assert_eq!(code, 0);
    let relay = &report["relay"];
    assert_eq!(relay["auth_in_flight_peak"], 4);
    assert_eq!(relay["auth_waiting_peak"], 9);
    assert_eq!(relay["role_reads"], 5);
    assert_eq!(
        relay["auth_outcomes"],
        serde_json::json!({"ok": 3, "concurrency_limit": 2})
    );
}

/// Kills: the library's REQs not packed; a refusal that is not counted; a plain client that never
/// sends again, or always does; channels counted as live that were refused.
#[test]
fn a_change_of_relay_costs_the_library_few_frames_and_a_plain_client_its_message() {
    let relay = SmallRelay::start(rules::quota());
    let args = "switch --channels 40 --rounds 1 --pause 5.5";
    let (code, report, _) = bench(&relay.url, args);
    assert_eq!(code, 0);
    let of = |client: &str, figure: &str| report["clients"][client][figure].as_u64().unwrap();
    for (client, ok, frames, refusals, live) in [
        ("library", 1, 5, 0, 40),
        // 40 frames before the change, 10 after it, and the message again.
        ("plain_retry", 1, 42, 31, 10),
        ("plain", 0, 41, 31, 10),
    ] {
        assert_eq!(of(client, "ok"), ok, "{client}");
        assert_eq!(of(client, "failed"), 1 - ok, "{client}");
        assert_eq!(of(client, "frames"), frames, "{client}");
        assert_eq!(of(client, "refusals"), refusals, "{client}");
        assert_eq!(of(client, "channels_live"), live, "{client}");
        assert_eq!(of(client, "channels_lost"), 40 - live, "{client}");
    }
    let ok_ms = |client: &str| report["clients"][client]["ok_ms"]["max"].as_f64().unwrap();
    assert!(ok_ms("library") < 1000.0, "{report}");
    assert!(ok_ms("plain_retry") > 1000.0, "{report}");
    assert_eq!(report["problems"]["counts"]["OK rate-limited"], 2);
    assert_eq!(report["problems"]["counts"]["CLOSED rate-limited"], 60);
}

/// Kills: a sidebar with one subscription a channel, or without the single ones; frames that grow
/// with the subscriptions although ten share one.
#[test]
fn a_sidebar_has_two_subscriptions_a_channel_and_ten_single_ones() {
    let relay = SmallRelay::start(Rules::default());
    let args = "switch --pattern sidebar --channels 20 --rounds 1 --pause 0";
    let (code, report, _) = bench(&relay.url, args);
    assert_eq!(code, 0);
    assert_eq!(report["pattern"], "sidebar");
    assert_eq!(report["subscriptions"], 50);
    for (client, frames) in [("library", 6), ("plain", 51)] {
        let figures = &report["clients"][client];
        assert_eq!(figures["frames"], frames, "{client}");
        assert_eq!(figures["subscriptions_live"], 50, "{client}");
        assert_eq!(figures["channels_live"], 20, "{client}");
    }
}

/// Kills: the channels opened, or the message sent, at the relay that is left.
#[test]
fn a_change_of_relay_goes_to_the_other_one() {
    let (from, to) = (
        SmallRelay::start(Rules::default()),
        SmallRelay::start(rules::refuses_half()),
    );
    let args = format!("switch --channels 3 --rounds 1 --pause 0 --to {}", to.url);
    let (code, report, _) = bench(&from.url, &args);
    assert_eq!(code, 0);
    assert_eq!(report["to"], to.url);
    assert_eq!(report["clients"]["library"]["ok"], 1);
    // The second of three messages, refused for good: not sent again.
    assert_eq!(report["clients"]["plain_retry"]["failed"], 1);
    assert_eq!(report["clients"]["plain_retry"]["frames"], 4);
    assert_eq!(report["clients"]["plain"]["ok"], 1);
    assert_eq!(report["problems"]["counts"]["OK blocked"], 1);
}
