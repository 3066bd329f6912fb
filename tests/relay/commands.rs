//! `migrate`, `import`, `export`: events go in and out with every byte.

use std::{
    collections::HashSet,
    io::{Read, Write},
    path::Path,
    process::{Child, Output, Stdio},
};

use buzz_protocol::Event;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use buzz_testkit::{
    Author, Client, Relay,
    events::{REAL_EVENTS, REAL_LINES, brute_force, ids},
    eventually, now,
};

use crate::RELAY;

/// Runs a subcommand in `dir` with `input` on standard input.
fn run(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = RELAY
        .command(dir)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the relay starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("an end");
    // A command that reads nothing closes the pipe early; that is for its caller to judge.
    let _ = writer.join();
    output
}

fn out(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// The summary of an import: how many were accepted, duplicate, rejected.
fn summary(output: &Output) -> [u64; 3] {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().rfind(|line| line.ends_with(" events/s"));
    let line = line.unwrap_or_else(|| panic!("no summary in {text}"));
    ["accepted", "duplicate", "rejected"].map(|name| {
        let number = line.split(", ").find_map(|part| part.strip_prefix(name));
        let number = number.and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("no {name} in {line}"))
    })
}

/// What a relay keeps of the real events: of replaceable ones the newest.
pub(crate) fn kept() -> Vec<Event> {
    let newest_first = brute_force(REAL_EVENTS.iter(), &json!({}));
    let mut addresses = HashSet::new();
    let deleted = deleted(&newest_first);
    newest_first
        .into_iter()
        .filter(|event| {
            event
                .address()
                .is_none_or(|address| addresses.insert(address))
        })
        .filter(|event| !deleted.contains(&(event.id.to_hex(), event.pubkey.to_hex())))
        .filter(|event| !event.is_expired(now()))
        .filter(|event| !(20_000..30_000).contains(&event.kind))
        .collect()
}

fn deleted(events: &[Event]) -> HashSet<(String, String)> {
    let requests = events.iter().filter(|event| event.kind == 5);
    requests
        .flat_map(|request| {
            let key = request.pubkey.to_hex();
            request
                .tag_values("e")
                .map(move |id| (id.to_owned(), key.clone()))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn real_events_come_out_as_they_went_in() {
    let dir = Relay::prepare("");
    std::fs::write(dir.path().join("events.jsonl"), REAL_LINES).expect("a file");
    let output = run(dir.path(), &["import", "events.jsonl"], "");
    out(&output);
    let [accepted, duplicate, rejected] = summary(&output);
    assert_eq!(accepted + duplicate + rejected, 215);
    let kept = kept();
    assert!(accepted >= kept.len() as u64);

    let exported = out(&run(dir.path(), &["export"], ""));
    let lines: Vec<_> = exported.lines().collect();
    let expected: HashSet<_> = kept.iter().map(Event::to_json).collect();
    assert_eq!(lines.len(), expected.len());
    for line in &lines {
        assert!(expected.contains(*line), "{line}");
    }
    // In particular: each line holds the same values as the file it came from.
    let as_values = |text: &str| -> HashSet<String> {
        let value = |line: &str| serde_json::from_str::<Value>(line).expect(line).to_string();
        text.lines().map(value).collect()
    };
    assert!(as_values(&exported).is_subset(&as_values(REAL_LINES)));

    // Again: everything is there already, or superseded, as before.
    let output = run(dir.path(), &["import", "-"], &exported);
    assert_eq!(summary(&output), [0, lines.len() as u64, 0]);

    // Into another relay, from standard input.
    let other = Relay::prepare("");
    let output = run(other.path(), &["import"], &exported);
    assert_eq!(summary(&output), [lines.len() as u64, 0, 0]);
    let again = out(&run(other.path(), &["export"], ""));
    assert_eq!(again, exported);
}

#[test]
fn export_takes_a_filter() {
    let dir = Relay::prepare("");
    out(&run(dir.path(), &["import", "-"], REAL_LINES));
    let kept = kept();
    let author = kept[0].pubkey;
    for filter in [
        json!({"kinds": [1]}),
        json!({"authors": [author]}),
        json!({"kinds": [0, 3], "limit": 5}),
        json!({"ids": [kept[3].id, kept[7].id]}),
        json!({"ids": []}),
    ] {
        let text = out(&run(
            dir.path(),
            &["export", "--filter", &filter.to_string()],
            "",
        ));
        let got: Vec<_> = text.lines().collect();
        let expected: Vec<_> = brute_force(&kept, &filter)
            .iter()
            .map(Event::to_json)
            .collect();
        assert_eq!(got, expected, "{filter}");
    }
    let bad = run(dir.path(), &["export", "--filter", "{\"kinds\":\"x\"}"], "");
    assert!(!bad.status.success());
    assert!(!String::from_utf8_lossy(&bad.stderr).contains("panicked"));
}

#[test]
fn import_verifies_every_line_and_goes_on_behind_a_bad_one() {
    let dir = Relay::prepare("");
    let good = Author::new(1).note("good").at(1_000).sign();
    let mut forged = Author::new(1).note("forged").at(1_000).sign();
    forged.content.push('!');
    let last = Author::new(1).note("last").at(1_001).sign();
    let lines = [
        good.to_json(),
        forged.to_json(),
        "not json".to_owned(),
        String::new(),
        "{}".to_owned(),
        good.to_json(),
        last.to_json(),
    ];
    let output = run(dir.path(), &["import", "-"], &lines.join("\n"));
    assert_eq!(summary(&output), [2, 1, 3]);
    let exported = out(&run(dir.path(), &["export"], ""));
    assert_eq!(
        exported,
        format!("{}\n{}\n", last.to_json(), good.to_json())
    );
}

#[test]
fn an_export_holds_more_than_one_answers_limit() {
    let dir = Relay::prepare("limits.max_limit = 10");
    let lines: Vec<_> = (0..1_500u64)
        .map(|n| Author::new(1).note(&n.to_string()).at(1_000 + n / 3).sign())
        .collect();
    let text: String = lines.iter().map(|event| event.to_json() + "\n").collect();
    assert_eq!(
        summary(&run(dir.path(), &["import", "-"], &text)),
        [1_500, 0, 0]
    );
    let exported = out(&run(dir.path(), &["export"], ""));
    let expected: String = brute_force(&lines, &json!({}))
        .iter()
        .map(|event| event.to_json() + "\n")
        .collect();
    assert_eq!(exported, expected);
}

#[test]
fn migrate_makes_the_database_and_may_be_repeated() {
    let dir = Relay::prepare("");
    for _ in 0..2 {
        out(&run(dir.path(), &["migrate"], ""));
        assert!(dir.path().join("relay.db").exists());
    }
}

#[test]
fn a_missing_file_is_named() {
    let dir = Relay::prepare("");
    let output = run(dir.path(), &["import", "nowhere.jsonl"], "");
    assert!(!output.status.success());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        err.contains("nowhere.jsonl") && !err.contains("panicked"),
        "{err}"
    );
}

#[tokio::test]
async fn imported_events_are_served_and_published_ones_exported() {
    let dir = Relay::prepare("");
    out(&run(dir.path(), &["import", "-"], REAL_LINES));
    let mut relay = RELAY.start_in(dir.clone(), |_| {}).await;
    let mut client = Client::connect(&relay).await;
    let note = Author::new(1).note("new").sign();
    client.accept(&note).await;
    let mut expected = kept();
    let filter = json!({"until": REAL_EVENTS.iter().map(|e| e.created_at).max(), "limit": 500});
    assert_eq!(ids(&client.fetch(filter).await), ids(&expected));
    relay.terminate();
    relay.ended().await;
    expected.insert(0, note);
    let exported = out(&run(dir.path(), &["export"], ""));
    let expected: String = expected
        .iter()
        .map(|event| event.to_json() + "\n")
        .collect();
    assert_eq!(exported, expected);
}

/// A subcommand that runs, its three streams piped.
fn start(dir: &Path, arguments: &[&str]) -> Child {
    RELAY
        .command(dir)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the relay starts")
}

/// How many events are stored; none where there is no database yet.
fn stored(dir: &Path) -> usize {
    let output = run(dir, &["export"], "").stdout;
    String::from_utf8(output).expect("UTF-8").lines().count()
}

/// Mutants: lines kept until there are many, or until the end; a signal that loses them, that says
/// nothing, or that is taken for the input's end.
#[tokio::test]
async fn what_came_through_a_slow_pipe_is_stored_and_a_signal_ends_the_import() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = Relay::prepare("");
        let mut child = start(dir.path(), &["import"]);
        let mut stdin = child.stdin.take().expect("standard input is piped");
        let mut lines = (0..).map(|n| Author::new(1).note(&format!("{n}")).sign().to_json());
        for (more, count) in [(1, 1), (1, 2), (5, 7)] {
            for line in lines.by_ref().take(more) {
                writeln!(stdin, "{line}").expect("it reads");
            }
            eventually("the events", async || {
                (stored(dir.path()) == count).then_some(())
            })
            .await;
        }
        // Half a line is nothing that came.
        write!(stdin, "{{\"id\":").expect("it reads");
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(summary(&output), [7, 0, 0]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("a signal ended it"), "{error}");
        assert_eq!(stored(dir.path()), 7);
        drop(stdin);
    }
}

/// Mutants: a batch cut in the middle; a summary that counts what is not stored.
#[test]
fn a_signal_in_the_middle_of_an_import_leaves_what_the_summary_says() {
    let dir = Relay::prepare("database.durability = \"normal\"");
    let mut child = start(dir.path(), &["import"]);
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let pid = Pid::from_child(&child);
    let writer = std::thread::spawn(move || {
        let mut written = 0;
        for n in 0..1_000_000 {
            let line = Author::new(1).note(&format!("{n}")).sign().to_json();
            if writeln!(stdin, "{line}").is_err() {
                break;
            }
            written += 1;
            if written == 1_000 {
                kill_process(pid, Signal::TERM).expect("it runs");
            }
        }
        written
    });
    let output = child.wait_with_output().expect("an end");
    let written: u64 = writer.join().expect("a writer");
    let [accepted, duplicate, rejected] = summary(&output);
    assert_eq!((duplicate, rejected, output.status.code()), (0, 0, Some(1)));
    assert!((1..=written).contains(&accepted), "{accepted} of {written}");
    assert_eq!(stored(dir.path()) as u64, accepted);
}

/// Mutants: a signal that waits for whoever should take the output; one that ends as if all were
/// written.
#[test]
fn a_signal_ends_an_export_that_nobody_reads() {
    let dir = Relay::prepare("");
    let notes =
        (0..2_000).map(|n| Author::new(1).note(&format!("{n:0200}")).sign().to_json() + "\n");
    out(&run(dir.path(), &["import"], &notes.collect::<String>()));
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = start(dir.path(), &["export"]);
        let mut stdout = child.stdout.take().expect("standard output is piped");
        // It has begun, and waits for room in the pipe.
        stdout.read_exact(&mut [0; 100]).expect("a beginning");
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("a signal ended it"), "{error}");
        drop(stdout);
    }
}
