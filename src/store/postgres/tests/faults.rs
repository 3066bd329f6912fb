//! Servers that are away, and connections that are cut.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use buzz_actors::ports::{EventStore, Outcome, StoreError, StoreWriter};
use buzz_protocol::{Filter, Tag};

use super::{cluster, options, reader, store, writer};
use crate::store::{
    Options,
    postgres::PostgresStore,
    tests::{event, read, write},
};

/// What a client sends passes here; the connection is cut at one of its messages.
struct Proxy {
    url: String,
    /// Messages until the cut; below zero: none comes.
    left: Arc<AtomicI64>,
}

impl Proxy {
    /// In front of the server of `url`. `forward`: the message at which it cuts reaches the server,
    /// whose answer then reaches nobody.
    fn before(url: &str, forward: bool) -> Self {
        let (head, tail) = url.rsplit_once(':').expect("a port");
        let (port, database) = tail.split_once('/').expect("a database");
        let port: u16 = port.parse().expect("a port");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let left = Arc::new(AtomicI64::new(-1));
        let counter = Arc::clone(&left);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
                pass(client, server, Arc::clone(&counter), forward);
            }
        });
        Self {
            url: format!("{head}:{own}/{database}"),
            left,
        }
    }
}

fn pass(client: TcpStream, server: TcpStream, left: Arc<AtomicI64>, forward: bool) {
    let both = || {
        let client = client.try_clone().expect("a socket");
        (client, server.try_clone().expect("a socket"))
    };
    let ((mut from, mut to), (mut client, mut server)) = (both(), both());
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let cut = left.fetch_sub(1, Ordering::SeqCst) == 1;
            if cut {
                let _ = from.shutdown(Shutdown::Both);
            }
            if !cut || forward {
                let _ = to.write_all(&buffer[..count]);
            }
            if cut && !forward {
                let _ = to.shutdown(Shutdown::Both);
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            if client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// Kills: answering an error for what is stored, storing twice, calling an event a duplicate that
/// this batch brought, trusting a COMMIT that the server never got.
#[test]
fn a_batch_cut_at_any_message_is_stored_once_and_answered_truly() {
    for forward in [false, true] {
        let url = cluster::database();
        let proxy = Proxy::before(&url, forward);
        let store = store(&proxy.url);
        let mut writer = writer(&store);
        let mut reader = reader(&self::store(&url));
        let mut expected = 0;
        for at in 0..200_u32 {
            // An event, a version and the deletion of an earlier event: all kinds of statements.
            let old = event(4 * at + 3, 1, 1, 5, vec![]);
            assert_eq!(
                write(&mut writer, std::slice::from_ref(&old), 1).expect("a batch"),
                [Outcome::Stored]
            );
            let batch = [
                event(4 * at, 1, 1, 10, vec![]),
                event(4 * at + 1, 1, 0, 10 + u64::from(at), vec![]),
                event(
                    4 * at + 2,
                    1,
                    5,
                    10,
                    vec![Tag::new(["e", &old.id.to_hex()])],
                ),
            ];
            proxy.left.store(i64::from(at) + 1, Ordering::SeqCst);
            let outcomes = write(&mut writer, &batch, u64::from(at) + 2).expect("a batch");
            assert_eq!(
                outcomes,
                [Outcome::Stored; 3],
                "message {at}, forwarded: {forward}"
            );
            expected += 2;
            let filter = Filter {
                limit: Some(10_000),
                ..Filter::default()
            };
            let stored = read(&mut *reader, filter);
            assert_eq!(
                stored.len(),
                expected + 1,
                "message {at}, forwarded: {forward}"
            );
            if proxy.left.swap(-1, Ordering::SeqCst) > 0 {
                assert!(at > 8, "a batch takes {at} messages");
                break;
            }
            assert!(at < 199, "the batch never ends");
        }
        assert!(writer.last_batch().expect("a number") > 2);
    }
}

/// Kills: a reader or writer that keeps a session whose server has gone.
#[test]
fn after_a_crash_of_the_server_reads_and_writes_go_on() {
    let server = cluster::Cluster::start();
    let url = server.database();
    let store = store(&url);
    let (mut writer, mut reader) = (writer(&store), reader(&store));
    for round in 0..3 {
        let events = [event(round, 1, 1, 10, vec![])];
        assert_eq!(
            write(&mut writer, &events, u64::from(round) + 1).expect("a batch"),
            [Outcome::Stored]
        );
        assert_eq!(
            read(&mut *reader, Filter::default()).len(),
            round as usize + 1
        );
        server.kill();
        let down = write(&mut writer, &[event(100, 1, 1, 10, vec![])], 100);
        assert!(matches!(down, Err(StoreError::Unavailable(_))), "{down:?}");
        let down = reader.ping();
        assert!(matches!(down, Err(StoreError::Unavailable(_))), "{down:?}");
        let text = down.expect_err("an error").to_string();
        assert!(
            !text.contains("secret") && text.contains("127.0.0.1"),
            "{text}"
        );
        server.up();
    }
}

/// Kills: no wait, a wait without an end, waiting where the server says no for good.
#[test]
fn a_server_that_is_not_there_yet_is_waited_for_and_no_longer() {
    let server = cluster::Cluster::start();
    let url = server.database();
    server.down();
    let waiting = |wait| Options {
        start_wait: Duration::from_millis(wait),
        ..options(&url)
    };
    let started = Instant::now();
    let error = PostgresStore::open(&waiting(500)).expect_err("no server");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let took = started.elapsed();
    assert!((400..5_000).contains(&took.as_millis()), "{took:?}");
    thread::scope(|scope| {
        let starting = scope.spawn(|| PostgresStore::open(&waiting(20_000)));
        thread::sleep(Duration::from_millis(300));
        server.up();
        starting.join().expect("no panic").expect("a store");
    });
    let started = Instant::now();
    let error = PostgresStore::open(&Options {
        start_wait: Duration::from_secs(20),
        ..options(&server.url("nowhere"))
    });
    let error = error.expect_err("no database");
    assert!(
        error.to_string().contains("\"nowhere\" does not exist"),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Kills: a plain connection where an encrypted one was asked for.
#[test]
fn encryption_that_is_required_is_not_done_without() {
    let url = cluster::database();
    for mode in ["require", "verify-full"] {
        let error = PostgresStore::open(&options(&format!("{url}?sslmode={mode}")));
        let error = error.expect_err("the server has no TLS").to_string();
        assert!(
            error.to_lowercase().contains("tls") && !error.contains("secret"),
            "{error}"
        );
    }
    PostgresStore::open(&options(&format!("{url}?sslmode=disable"))).expect("a store");
    let error = PostgresStore::open(&options(&format!(
        "{url}?sslmode=require&sslrootcert=/none"
    )));
    let error = error.expect_err("no certificate").to_string();
    assert!(error.contains("sslrootcert: /none"), "{error}");
    let error = PostgresStore::open(&options(&format!("{url}?nonsense=1")));
    assert!(
        error
            .expect_err("a wrong URL")
            .to_string()
            .contains("nonsense")
    );
}

/// Kills: a certificate that is not verified, a name that is not, a root file that is not read.
#[test]
fn a_servers_certificate_is_verified_by_the_root_file() {
    let server = cluster::Cluster::start();
    let url = server.database();
    let certificate = server.offer_tls();
    let with = |parameters: &str| PostgresStore::open(&options(&format!("{url}?{parameters}")));
    let root = format!("sslrootcert={}", certificate.display());
    let verified = with(&format!("sslmode=require&{root}")).expect("a store");
    let _writer = verified.writer().expect("a writer");
    let encrypted = "SELECT count(*) FROM pg_stat_ssl WHERE ssl AND pid <> pg_backend_pid()";
    assert_eq!(cluster::sql(&url, encrypted), "1");
    let error = with("sslmode=require")
        .expect_err("no one vouches for it")
        .to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    let other_name = url.replace("127.0.0.1", "localhost");
    let error = PostgresStore::open(&options(&format!("{other_name}?sslmode=require&{root}")));
    let error = error.expect_err("another name").to_string();
    assert!(
        error.contains("not valid for name") || error.contains("NotValidForName"),
        "{error}"
    );
}
