//! `buzz`, the command-line client, against the real relay.

use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use buzz_protocol::{Event, nip19};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use buzz_testkit::{Author, Client, Relay, now, relay::own_address};

use crate::RELAY;

const SECRET: &str = "1111111111111111111111111111111111111111111111111111111111111111";

/// A relay whose URL is the one that it is reached at.
async fn relay_with(settings: &str) -> Relay {
    let address = own_address();
    let own = format!("server.listen = \"{address}\"\nserver.url = \"ws://{address}\"\n");
    RELAY.start_with(&(own + settings)).await
}

struct Buzz {
    command: Command,
}

impl Buzz {
    fn new(relay: &str, arguments: &[&str]) -> Self {
        let program = RELAY.sibling("buzz");
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BUZZ_") {
                command.env_remove(name);
            }
        }
        command
            .env("BUZZ_RELAY", relay)
            .env("BUZZ_SECRET_KEY", SECRET);
        command.args(arguments);
        Self { command }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    fn without_key(mut self) -> Self {
        self.command.env_remove("BUZZ_SECRET_KEY");
        self
    }

    /// Runs it with `input` on a thread, since it waits for the relay.
    async fn run(mut self, input: &str) -> Done {
        let input = input.to_owned();
        let run = tokio::task::spawn_blocking(move || {
            let command = self.command.stdin(Stdio::piped());
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command
                .spawn()
                .unwrap_or_else(|error| panic!("buzz: {error}; cargo build --workspace first"));
            let mut stdin = child.stdin.take().expect("a pipe");
            // A command that reads nothing closes the pipe early.
            let _ = stdin.write_all(input.as_bytes());
            drop(stdin);
            Done(child.wait_with_output().expect("an end"))
        });
        run.await.expect("a result")
    }
}

struct Done(Output);

impl Done {
    fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).expect("UTF-8")
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// What a command that does what it should prints.
    fn ok(&self) -> String {
        assert_eq!(
            self.0.status.code(),
            Some(0),
            "{}{}",
            self.out(),
            self.err()
        );
        self.out()
    }

    fn fails(&self, code: i32, why: &str) {
        let err = self.err();
        assert_eq!(self.0.status.code(), Some(code), "{err}");
        assert!(err.contains(why), "no {why:?} in {err}");
        assert!(!err.contains("panicked"), "{err}");
        assert!(!err.contains(SECRET), "the secret is shown: {err}");
    }
}

/// Mutants: flags left out of the event; an answer printed in another form than the store's.
#[tokio::test]
async fn what_is_published_is_found_and_counted() {
    let relay = relay_with("").await;
    let url = relay.url();
    let publish = [
        "publish",
        "--kind",
        "30023",
        "--content",
        "-über\n",
        "--tag",
        "d=a=b",
        "--tag",
        "-",
        "--created-at",
        "1700000000",
    ];
    let id = Buzz::new(&url, &publish).run("").await.ok();
    let found = Buzz::new(&url, &["query", "--id", id.trim()])
        .run("")
        .await
        .ok();
    let event: Event = serde_json::from_str(found.trim()).expect("an event");
    assert_eq!(found, event.to_json() + "\n");
    assert_eq!(event.id.to_hex(), id.trim());
    assert_eq!((event.kind, event.created_at), (30023, 1_700_000_000));
    assert_eq!(event.content, "-über\n");
    let tags: Vec<_> = event.tags.iter().map(|tag| tag.0.clone()).collect();
    assert_eq!(tags, [vec!["d", "a=b"], vec!["-"]]);

    let json = Buzz::new(&url, &["--json", "publish", "--content", "two"])
        .run("")
        .await
        .ok();
    let verdict: Value = serde_json::from_str(&json).expect(&json);
    assert_eq!(verdict["accepted"], json!(true));
    let count = |arguments: &'static [&str]| Buzz::new(&url, arguments).run("");
    assert_eq!(count(&["count"]).await.ok(), "2\n");
    assert_eq!(count(&["count", "--kind", "1"]).await.ok(), "1\n");
    assert_eq!(count(&["count", "--tag", "d=a=b"]).await.ok(), "1\n");
    let either = ["--json", "count", "{\"kinds\":[1]}", "{\"kinds\":[30023]}"];
    assert_eq!(
        Buzz::new(&url, &either).run("").await.ok(),
        "{\"count\":2}\n"
    );
    let lines = Buzz::new(&url, &["query", "--limit", "1"])
        .run("")
        .await
        .ok();
    assert!(
        lines.lines().count() == 1 && lines.contains("\"two\""),
        "{lines}"
    );
    assert_eq!(
        Buzz::new(&url, &["query", "--kind", "7"])
            .run("")
            .await
            .ok(),
        ""
    );
}

/// Mutants: a signed event signed anew; an unsigned one sent with another's key.
#[tokio::test]
async fn an_event_on_standard_input_is_sent_as_it_is_or_signed() {
    let relay = relay_with("").await;
    let url = relay.url();
    let publish = |input: String| {
        let buzz = Buzz::new(&url, &["publish"]);
        async move { buzz.run(&input).await }
    };
    let signed = Author::new(7).note("another's").sign();
    let id = publish(signed.to_json()).await.ok();
    assert_eq!(id.trim(), signed.id.to_hex());

    let id = publish("{\"content\":\"hi\",\"tags\":[[\"t\",\"x\",\"y\"]]}".into())
        .await
        .ok();
    let mut client = Client::connect(&relay).await;
    let found = client.fetch(json!({"ids": [id.trim()]})).await;
    assert_eq!(found[0].tags[0].0, ["t", "x", "y"]);
    assert!(found[0].created_at.abs_diff(now()) < 60);

    let mut forged = signed.clone();
    forged.content.push('!');
    publish(forged.to_json())
        .await
        .fails(1, "invalid: event id");
    let foreign = format!("{{\"content\":\"\",\"pubkey\":\"{}\"}}", signed.pubkey);
    publish(foreign).await.fails(2, "another key");
    publish("nonsense".into()).await.fails(2, "standard input");
    publish("{\"contnet\":\"\"}".into())
        .await
        .fails(2, "contnet");
    publish(String::new()).await.fails(2, "standard input");
}

/// Mutants: a long answer cut at a reader's default size; events held until the last is there.
#[tokio::test]
async fn a_long_answer_is_printed_whole() {
    let relay = relay_with("").await;
    let author = Author::new(1);
    let mut client = Client::connect(&relay).await;
    let content = "x".repeat(60_000);
    let mut expected = Vec::new();
    for n in 0..220u64 {
        let note = author.note(&content).at(1_000 + n).sign();
        client.accept(&note).await;
        expected.insert(0, note.to_json());
    }
    let printed = Buzz::new(&relay.url(), &["query"]).run("").await.ok();
    assert!(printed.lines().eq(expected.iter()));
}

/// Mutants: one exit code for all; a secret in a message.
#[tokio::test]
async fn exit_codes_say_what_went_wrong() {
    let relay = relay_with("auth.members_only = true").await;
    let url = relay.url();
    let count = |url: &str| Buzz::new(url, &["count"]);
    count(&url)
        .run("")
        .await
        .fails(1, "restricted: not a member");
    let nowhere = format!("ws://{}:1", relay.addr.ip());
    count(&nowhere)
        .run("")
        .await
        .fails(3, &nowhere.replace("ws", "http"));
    count("relay.example")
        .run("")
        .await
        .fails(2, "relay.example");
    // Another address of the same relay: what is to be signed is said.
    let other = RELAY.start().await;
    count(&other.url())
        .run("")
        .await
        .fails(1, "the u tag must name http://relay.test/chat/count");
    let keys = [
        ("nonsense", "BUZZ_SECRET_KEY"),
        ("npub1x", "BUZZ_SECRET_KEY"),
        (&"0".repeat(64), "no secret key"),
    ];
    for (key, why) in keys {
        let done = count(&url).env("BUZZ_SECRET_KEY", key).run("").await;
        done.fails(2, why);
        assert!(!done.err().contains(key), "{}", done.err());
    }
    count(&url)
        .without_key()
        .run("")
        .await
        .fails(2, "buzz keygen");
    let usage: [&[&str]; 6] = [
        &[],
        &["nothing"],
        &["count", "--kind", "x"],
        &["count", "{\"kind\":1}"],
        &["query", "--tag", "title=x"],
        &["count", "--key-file", "/nowhere"],
    ];
    for arguments in usage {
        Buzz::new(&url, arguments).run("").await.fails(2, "");
    }
}

/// Mutants: a key file that others can read, or that is overwritten; a key that is no key.
#[tokio::test]
async fn a_key_is_made_once_and_used() {
    let relay = relay_with("").await;
    let url = relay.url();
    let dir = tempfile::TempDir::new().expect("a directory");
    let file: PathBuf = dir.path().join("key");
    let path = file.to_str().expect("a path");
    let npub = Buzz::new(&url, &["keygen", "--key-file", path])
        .run("")
        .await
        .ok();
    let public = nip19::parse_pubkey(npub.trim()).expect("a key");
    let mode = std::fs::metadata(&file)
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = std::fs::read(&file).expect("a file");
    let again = Buzz::new(&url, &["keygen", "--key-file", path])
        .run("")
        .await;
    again.fails(2, path);
    assert_eq!(std::fs::read(&file).expect("a file"), kept);

    let publish = ["publish", "--content", "x", "--key-file", path];
    Buzz::new(&url, &publish).run("").await.ok();
    let by_author = ["count", "--author", npub.trim(), "--key-file", path];
    let done = Buzz::new(&url, &by_author).without_key().run("").await;
    assert_eq!((done.ok(), done.err()), ("1\n".into(), String::new()));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("a file");
    let done = Buzz::new(&url, &by_author).run("").await;
    assert!(done.err().contains("chmod 600"), "{}", done.err());

    let made = Buzz::new(&url, &["keygen", "--json"])
        .without_key()
        .run("")
        .await
        .ok();
    let made: Value = serde_json::from_str(&made).expect(&made);
    let nsec = made["nsec"].as_str().expect("a key");
    let secret = nip19::parse_secret_key(nsec).expect("a key");
    assert_eq!(made["secret_key"], json!(buzz_protocol::Pubkey(secret)));
    assert_ne!(made["public_key"], json!(public));
    let by = ["query", "--author", made["npub"].as_str().expect("a key")];
    let done = Buzz::new(&url, &by)
        .env("BUZZ_SECRET_KEY", nsec)
        .run("")
        .await;
    assert_eq!(done.ok(), "");
}

/// Mutant: a quota taken for a failure of another kind.
#[tokio::test]
async fn a_quota_that_takes_too_long_is_an_exit_code_of_its_own() {
    let relay = relay_with("admission.human_api_calls_per_min = 1").await;
    let count = || Buzz::new(&relay.url(), &["count", "--max-wait", "0"]).run("");
    assert_eq!(count().await.ok(), "0\n");
    count()
        .await
        .fails(4, "rate limited; gave up, the next try would be in ");
}

/// Answers each connection with the next of `answers`, and gives the requests it saw.
async fn scripted(
    answers: &'static [&'static str],
) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = String::new();
            while !request.ends_with("[{}]") {
                let mut bytes = [0; 4096];
                let n = stream.read(&mut bytes).await.expect("a request");
                assert!(n > 0, "the request ends: {request}");
                request += &String::from_utf8_lossy(&bytes[..n]);
            }
            let end = "connection: close\r\n";
            let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
            let answer = format!("HTTP/1.1 {head}\r\n{end}\r\n{body}");
            stream
                .write_all(answer.as_bytes())
                .await
                .expect("an answer");
            requests.push(request);
        }
        requests
    });
    (url, served)
}

const LIMITED: &str = "429 Too Many Requests\r\nRetry-After: 1\r\n\r\n\
     {\"error\":\"rate_limited\",\"limit_type\":\"api_calls\",\"retry_after_secs\":1}";
const BUSY: &str = "503 Service Unavailable\r\nRetry-After: 1\r\n\r\n\
     {\"error\":\"unavailable\",\"message\":\"rate-limited: busy\"}";

/// Mutants: no wait; a wait of another length; the same authorization again.
#[tokio::test]
async fn a_busy_relay_is_waited_for_and_asked_anew() {
    let (url, served) = scripted(&[LIMITED, BUSY, "200 OK\r\n\r\n{\"count\":5}"]).await;
    let began = std::time::Instant::now();
    let done = Buzz::new(&url, &["count"]).run("").await;
    assert_eq!(done.ok(), "5\n");
    assert!(began.elapsed().as_secs() >= 2, "{:?}", began.elapsed());
    let err = done.err();
    let said: Vec<_> = err.lines().collect();
    assert_eq!(
        said,
        [
            "rate limited; trying again in 1s",
            "rate-limited: busy; trying again in 1s"
        ]
    );
    let requests = served.await.expect("requests");
    let tokens: std::collections::HashSet<_> = requests
        .iter()
        .map(|request| {
            let mut lines = request.lines();
            let line = lines.find(|line| line.to_lowercase().starts_with("authorization: nostr "));
            line.expect("an authorization").to_owned()
        })
        .collect();
    assert_eq!(tokens.len(), 3, "a relay takes each authorization once");
}

/// Mutants: a wait without a bound; an answer that breaks off taken for the whole.
#[tokio::test]
async fn what_takes_too_long_or_breaks_off_is_no_success() {
    let (url, _) = scripted(&["429 Too Many Requests\r\nRetry-After: 9\r\n\r\n{}"]).await;
    let done = Buzz::new(&url, &["count", "--max-wait", "8"]).run("").await;
    done.fails(4, "in 9s");
    let (url, _) = scripted(&["503 Service Unavailable\r\nRetry-After: 9\r\n\r\n{}"]).await;
    Buzz::new(&url, &["count", "--max-wait", "8"])
        .run("")
        .await
        .fails(3, "in 9s");
    let (url, _) = scripted(&["200 OK\r\n\r\n[{\"id\":"]).await;
    Buzz::new(&url, &["query"])
        .run("")
        .await
        .fails(3, "breaks off");
    let (url, _) = scripted(&["200 OK\r\n\r\n<html>"]).await;
    Buzz::new(&url, &["count"])
        .run("")
        .await
        .fails(3, "no relay's");
    let (url, _) = scripted(&["301 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n"]).await;
    Buzz::new(&url, &["count"])
        .run("")
        .await
        .fails(1, "status 301");
    let (url, _) = scripted(&["500 Oh\r\n\r\n"]).await;
    Buzz::new(&url, &["count"])
        .run("")
        .await
        .fails(3, "status 500");
}
