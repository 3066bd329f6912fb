//! The concurrency caps, tightened while the relay works. The reads and checks that take their
//! time are real ones: another session holds a lock on what they read.

use std::time::{Duration, Instant};

use serde_json::json;

use buzz_testkit::{
    Author, Client, Relay,
    cluster::{self, Lock},
    eventually,
    relay::URL,
    rest,
};

use crate::RELAY;

pub(crate) const HISTORY: &str = "buzz.relay.concurrency.history-reads";
pub(crate) const AUTH: &str = "buzz.relay.concurrency.auth";

fn flags_text(values: &[(&str, i64)]) -> String {
    let lines = values.iter();
    lines
        .map(|(key, value)| format!("\"{key}\" = {value}\n"))
        .collect()
}

fn flags(relay: &Relay, values: &[(&str, i64)]) {
    let text = flags_text(values);
    // As an operator's tools do it: the file is there as a whole or not at all.
    let new = relay.dir().join("flags.new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(new, relay.dir().join("flags.toml")).expect("a file");
}

async fn gate(relay: &Relay, what: &str, gate: &str) -> f64 {
    let series = format!("buzz_concurrency_{what}{{gate=\"{gate}\"}}");
    relay.metrics().await.get(&series)
}

pub(crate) async fn gate_shows(relay: &Relay, what: &str, of: &str, value: f64) {
    eventually(&format!("{what} of {of}: {value}"), || async {
        (gate(relay, what, of).await == value).then_some(())
    })
    .await;
}

/// A relay on PostgreSQL that reads `flags.toml`, and the database's URL.
pub(crate) async fn relay(settings: &str, values: &[(&str, i64)]) -> (Relay, String) {
    let url = cluster::database();
    let settings = format!(
        "database.url = \"{url}\"\nfeature_flags.provider = \"file\"\n\
         feature_flags.file = \"flags.toml\"\nfeature_flags.refresh = \"1s\"\n{settings}"
    );
    let dir = Relay::prepare(&settings);
    let text = flags_text(values);
    std::fs::write(dir.path().join("flags.toml"), text).expect("a file");
    (RELAY.start_in(dir, |_| {}).await, url)
}

/// Kills: a limit that is read at the start only; reads in flight that are cancelled; a debt that
/// is not counted, or not repaid; a ninth read that is admitted, or refused; 0 as a limit.
#[tokio::test]
async fn a_cap_lowered_while_eight_reads_run_holds_within_a_refresh() {
    let settings = "history.wait = \"30s\"\nhistory.statement_timeout = \"30s\"";
    let (relay, url) = relay(settings, &[]).await;
    let author = Author::new(1);
    let note = author.note("hello").sign();
    Client::connect(&relay).await.accept(&note).await;
    let lock = Lock::on(&url, "event");
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = Client::connect(&relay).await;
        client.send(json!(["REQ", "slow", {}])).await;
        clients.push(client);
    }
    gate_shows(&relay, "in_flight", "history_reads", 8.0).await;
    assert_eq!(gate(&relay, "limit", "history_reads").await, 8.0);

    let lowered = Instant::now();
    flags(&relay, &[(HISTORY, 1)]);
    gate_shows(&relay, "limit", "history_reads", 1.0).await;
    assert!(
        lowered.elapsed() <= Duration::from_secs(10),
        "{:?}",
        lowered.elapsed()
    );
    relay
        .log
        .line_with(&["cap changed", "history_reads", "old=8", "new=1", "file"])
        .await;
    assert_eq!(gate(&relay, "debt", "history_reads").await, 7.0);
    assert_eq!(gate(&relay, "in_flight", "history_reads").await, 8.0);
    let mut ninth = Client::connect(&relay).await;
    ninth.send(json!(["REQ", "slow", {}])).await;
    gate_shows(&relay, "waiting", "history_reads", 1.0).await;
    assert_eq!(gate(&relay, "in_flight", "history_reads").await, 8.0);

    drop(lock);
    clients.push(ninth);
    for client in &mut clients {
        let event = client.text().await;
        assert!(event.starts_with("[\"EVENT\",\"slow\",") && event.contains(&note.id.to_hex()));
        assert_eq!(client.text().await, json!(["EOSE", "slow"]).to_string());
    }
    for what in ["debt", "in_flight", "waiting"] {
        gate_shows(&relay, what, "history_reads", 0.0).await;
    }
    flags(&relay, &[(HISTORY, 0)]);
    gate_shows(&relay, "limit", "history_reads", 8.0).await;
    assert_eq!(gate(&relay, "shed_total", "history_reads").await, 0.0);
}

/// Kills: an empty EOSE in place of the refusal; a COUNT without its CLOSED; a read that waits on.
#[tokio::test]
async fn a_read_that_waits_too_long_is_refused_by_name_and_can_be_retried() {
    let settings = "history.wait = \"300ms\"\nhistory.statement_timeout = \"30s\"";
    let (relay, url) = relay(settings, &[(HISTORY, 1)]).await;
    let lock = Lock::on(&url, "event");
    let mut holder = Client::connect(&relay).await;
    holder.send(json!(["REQ", "first", {}])).await;
    gate_shows(&relay, "in_flight", "history_reads", 1.0).await;
    let mut client = Client::connect(&relay).await;
    let busy = "rate-limited: history reads are busy; retry in 1s";
    client.send(json!(["REQ", "r", {}])).await;
    assert_eq!(
        client.text().await,
        json!(["CLOSED", "r", busy]).to_string()
    );
    client.send(json!(["COUNT", "c", {}])).await;
    assert_eq!(
        client.text().await,
        json!(["CLOSED", "c", busy]).to_string()
    );
    assert_eq!(client.text().await, json!(["NOTICE", busy]).to_string());
    assert_eq!(gate(&relay, "shed_total", "history_reads").await, 2.0);
    drop(lock);
    assert_eq!(holder.text().await, json!(["EOSE", "first"]).to_string());
    assert_eq!(client.fetch(json!({})).await, []);
    assert_eq!(client.count(json!({})).await, Ok(0));
}

/// Kills: history that takes every reader; a login that waits for one of them.
#[tokio::test]
async fn a_login_finds_a_reader_while_every_reader_of_history_is_busy() {
    let settings = "history.wait = \"30s\"\nhistory.statement_timeout = \"30s\"";
    let (relay, url) = relay(settings, &[]).await;
    let lock = Lock::on(&url, "event");
    let mut busy = Client::connect(&relay).await;
    for sub in 0..16 {
        busy.send(json!(["REQ", sub.to_string(), {}])).await;
    }
    gate_shows(&relay, "waiting", "history_reads", 8.0).await;
    let mut client = Client::connect(&relay).await;
    client.log_in(&Author::new(1)).await;
    drop(lock);
}

/// Kills: a shed login that gets an OK or a close frame, or is not counted; a permit that is lost
/// with its socket; an auth cap that history reads would feel.
#[tokio::test]
async fn of_twenty_logins_at_once_under_a_cap_of_one_all_get_in_by_reconnecting() {
    let settings = "auth.required = true\nauth.wait = \"8s\"\nhistory.statement_timeout = \"60s\"";
    let (relay, url) = relay(settings, &[(AUTH, 1)]).await;
    gate_shows(&relay, "limit", "auth", 1.0).await;
    let lock = Lock::on(&url, "member");
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = Client::connect(&relay).await;
        let challenge = client.challenge().await;
        let login = Author::new(number).login(&challenge, URL).sign();
        client.send(json!(["AUTH", login])).await;
        clients.push(client);
    }
    gate_shows(&relay, "waiting", "auth", 19.0).await;
    let begun = Instant::now();
    gate_shows(&relay, "waiting", "auth", 0.0).await;
    assert!(
        begun.elapsed() > Duration::from_secs(1),
        "shed before their time"
    );
    assert_eq!(gate(&relay, "in_flight", "auth").await, 1.0);
    drop(lock);

    // The first gets its OK, the others a bare close: no OK, no code, no reason.
    let mut bare_closes = 0;
    let mut outside = Vec::new();
    for (number, mut client) in (0..).zip(clients) {
        match client.try_next().await {
            Some(answer) => assert!(format!("{answer:?}").contains("true"), "{answer:?}"),
            None => {
                assert_eq!(client.closed().await, None);
                bare_closes += 1;
                outside.push(number);
            }
        }
    }
    assert_eq!(bare_closes, 19);
    let relay = &relay;
    let again = outside.into_iter().map(|number| async move {
        let mut sheds = 0;
        loop {
            // Jitter, from the client's number: nothing here is random.
            tokio::time::sleep(Duration::from_millis(number * 37 % 200)).await;
            let mut client = Client::connect(relay).await;
            let challenge = client.challenge().await;
            let login = Author::new(number).login(&challenge, URL).sign();
            client.send(json!(["AUTH", login])).await;
            match client.try_next().await {
                Some(_) => return sheds,
                None => sheds += 1,
            }
        }
    });
    let sheds: u32 = futures_util::future::join_all(again)
        .await
        .into_iter()
        .sum();
    let shed = f64::from(bare_closes + sheds);
    let metrics = relay.metrics().await;
    let outcome = |name| metrics.get(&format!("buzz_auth_outcomes_total{{outcome=\"{name}\"}}"));
    assert_eq!(outcome("concurrency_limit"), shed);
    assert_eq!(outcome("ok"), 20.0);
    assert_eq!(
        metrics.get("buzz_concurrency_shed_total{gate=\"auth\"}"),
        shed
    );
    let lines = relay.log.lines();
    let denied = lines
        .iter()
        .filter(|line| line.contains("denied/concurrency_limit"));
    // One for the login, one for the socket that it ends.
    assert_eq!(denied.count() as f64, 2.0 * shed);
    gate_shows(relay, "in_flight", "auth", 0.0).await;
}

/// Kills: permits spent on refused or abandoned reads; a queue that serves the client that
/// asks most often.
#[tokio::test]
async fn one_permit_and_many_impatient_clients_do_useful_reads_only() {
    const FOR: Duration = Duration::from_millis(500);
    let (relay, _) = relay("history.wait = \"100ms\"", &[(HISTORY, 1)]).await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    for number in 0..200 {
        client
            .accept(&author.note("x").at(1_000 + number).sign())
            .await;
    }
    let read_for = |mut client: Client| async move {
        let (begun, mut useful) = (Instant::now(), 0_u32);
        while begun.elapsed() < FOR {
            client.send(json!(["REQ", "r", {}])).await;
            loop {
                let text = client.text().await;
                if text.starts_with("[\"EOSE\"") {
                    useful += 1;
                }
                if !text.starts_with("[\"EVENT\"") {
                    break;
                }
            }
        }
        (client, useful)
    };
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(Client::connect(&relay).await);
    }
    // Both are measured again where other work on this machine came between them.
    let mut measured = Vec::new();
    for _ in 0..10 {
        let alone;
        (client, alone) = read_for(client).await;
        let together = crowd
            .into_iter()
            .map(|client| tokio::spawn(read_for(client)));
        let together = futures_util::future::try_join_all(together).await;
        let (clients, useful): (Vec<_>, Vec<u32>) =
            together.expect("the crowd").into_iter().unzip();
        crowd = clients;
        let together: u32 = useful.into_iter().sum();
        if together * 10 >= alone * 8 {
            return;
        }
        measured.push((alone, together));
    }
    panic!("reads alone, and together: {measured:?}");
}

/// Kills: an end that waits for a database that takes no writes; a read in work that keeps its
/// socket from its close frame.
#[tokio::test]
async fn a_relay_whose_database_is_stuck_ends_in_time_and_says_so() {
    let settings = "server.drain = \"1s\"\nhistory.statement_timeout = \"60s\"";
    let (mut relay, url) = relay(settings, &[]).await;
    let lock = Lock::on(&url, "event");
    let mut reading = Client::connect(&relay).await;
    reading.send(json!(["REQ", "stuck", {}])).await;
    let mut writing = Client::connect(&relay).await;
    let note = Author::new(1).note("stuck").sign();
    writing.send(json!(["EVENT", note])).await;
    gate_shows(&relay, "in_flight", "history_reads", 1.0).await;
    let begun = Instant::now();
    relay.terminate();
    for client in [&mut reading, &mut writing] {
        let close = client.closed().await.expect("a close frame");
        assert_eq!(u16::from(close.code), 1012);
    }
    assert_eq!(relay.ended().await.code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    drop(lock);
}

/// Kills: an end that cuts REST calls in work while there is time for them.
#[tokio::test]
async fn a_call_in_work_at_the_end_is_answered() {
    let settings = "server.drain = \"10s\"\nhistory.statement_timeout = \"60s\"";
    let (mut relay, url) = relay(settings, &[]).await;
    let lock = Lock::on(&url, "event");
    let author = Author::new(1);
    let query = rest::post(&relay, &author, "/query", "{}");
    let ending = async {
        gate_shows(&relay, "in_flight", "history_reads", 1.0).await;
        relay.terminate();
        relay.log.line_with(&["shutting down"]).await;
        drop(lock);
    };
    let (answer, ()) = futures_util::future::join(query, ending).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "[]"));
    assert_eq!(relay.ended().await.code(), Some(0));
}
