//! Open files: the limit is raised where the system lets it, and shared out where it does not.

use std::{process::Command, sync::Arc};

use buzz_testkit::{Author, Client, Relay, eventually, http};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::RELAY;

/// A relay that is started where `ulimit` has been called with these arguments.
async fn limited(dir: Arc<TempDir>, ulimit: &str) -> Relay {
    let script = format!("ulimit {ulimit}; exec \"$0\" --config relay.toml");
    let start = |command: &mut Command| {
        let mut shell = Command::new("bash");
        shell
            .current_dir(command.get_current_dir().expect("a directory"))
            .args(["-c", &script])
            .arg(RELAY.path());
        *command = shell;
    };
    RELAY.start_in(dir, start).await
}

fn process(relay: &Relay, file: &str) -> String {
    format!("/proc/{}/{file}", relay.pid().as_raw_nonzero())
}

/// Soft and hard.
fn limits(relay: &Relay) -> [u64; 2] {
    let limits = std::fs::read_to_string(process(relay, "limits")).expect("limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.expect("a limit").split_whitespace().skip(3);
    [(); 2].map(|()| {
        words
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(u64::MAX)
    })
}

/// The status that a handshake gets, and its socket.
async fn handshake(relay: &Relay) -> (u16, TcpStream) {
    let mut socket = TcpStream::connect(relay.addr).await.expect("a connection");
    let request = "GET / HTTP/1.1\r\nHost: relay.test\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket
        .write_all(request.as_bytes())
        .await
        .expect("a request");
    let mut head = [0; 12];
    socket.read_exact(&mut head).await.expect("an answer");
    let status = std::str::from_utf8(&head[9..]).expect("a status");
    (status.parse().expect("a number"), socket)
}

/// Mutant: the limit left as it is.
#[tokio::test]
async fn the_soft_limit_is_raised_to_what_the_settings_need() {
    let relay = limited(Relay::prepare("server.max_connections = 2000"), "-Sn 256").await;
    let [soft, hard] = limits(&relay);
    assert!(soft >= 3000 || soft == hard, "{soft} of {hard}");
    let is_warned = relay.log.text().contains("too few open files");
    assert_eq!(is_warned, soft < 3000, "{}", relay.log.text());
}

/// Mutants: no word about it; sockets take the readers' and the admin port's files; a client that
/// does not fit hangs.
#[tokio::test]
async fn past_a_limit_that_cannot_be_raised_clients_get_503_and_the_others_are_served() {
    let dir = Relay::prepare("database.readers = 5");
    let relay = limited(dir, "-n 500").await;
    let warning = relay.log.line_with(&["too few open files"]).await;
    let accepted = warning.split("accepted=").nth(1).expect("a number");
    let accepted: usize = accepted
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert!(
        warning.contains("limit=500") && warning.contains("max_connections=10000"),
        "{warning}"
    );
    assert!((20..450).contains(&accepted), "{warning}");

    let mut client = Client::connect(&relay).await;
    let mut sockets = Vec::new();
    for _ in 1..accepted {
        let (status, socket) = handshake(&relay).await;
        assert_eq!(status, 101);
        sockets.push(socket);
    }
    for _ in 0..3 {
        assert_eq!(handshake(&relay).await.0, 503);
    }
    // And strangers that connect and say nothing, more than there are files.
    let mut silent = Vec::new();
    for _ in 0..600 {
        let connecting = TcpStream::connect(relay.addr);
        let within = tokio::time::timeout(std::time::Duration::from_millis(20), connecting);
        silent.extend(within.await.ok().and_then(Result::ok));
    }
    for n in 0..10 {
        let note = Author::new(n).note("served").sign();
        client.accept(&note).await;
        assert_eq!(client.fetch(json!({"ids": [note.id]})).await, [note]);
        assert_eq!(http::get(relay.admin, "/readyz").await.status, 200);
    }
    let open = std::fs::read_dir(process(&relay, "fd"))
        .expect("files")
        .count();
    assert!(open < 500, "{open} files are open");
    assert!(
        !relay.log.text().contains("Too many open files"),
        "{}",
        relay.log.text()
    );
    drop((sockets, silent));
    eventually("a free place", async || {
        let (status, _) = handshake(&relay).await;
        (status == 101).then_some(())
    })
    .await;
}
