//! The real binary in a directory of its own, on free ports.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{http, log::Log, soon};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_buzz-relay");

/// The URL that AUTH events must name.
pub(crate) const URL: &str = "ws://relay.test/chat";

/// Tests send what they like, but for those that are about quotas.
const NO_LIMITS: [&str; 8] = [
    "admission.human_ws_events_per_sec",
    "admission.agent_ws_events_per_sec",
    "admission.human_messages_per_min",
    "admission.agent_messages_per_min",
    "admission.human_api_calls_per_min",
    "admission.agent_api_calls_per_min",
    "admission.handshakes_per_ip_per_min",
    "admission.invalid_signatures_per_ip_per_min",
];

/// The quotas as they are without a configuration, for [`Relay::with`].
pub(crate) const DEFAULT_QUOTAS: &str = "\
    admission.human_ws_events_per_sec = 10\n\
    admission.agent_ws_events_per_sec = 10\n\
    admission.human_messages_per_min = 60\n\
    admission.agent_messages_per_min = 120\n\
    admission.human_api_calls_per_min = 300\n\
    admission.agent_api_calls_per_min = 600\n\
    admission.handshakes_per_ip_per_min = 12000\n\
    admission.invalid_signatures_per_ip_per_min = 60\n";

/// A running relay; killed when dropped.
pub(crate) struct Relay {
    dir: Arc<TempDir>,
    child: Child,
    pub(crate) log: Log,
    /// WebSocket, REST and NIP-11.
    pub(crate) addr: SocketAddr,
    /// `/metrics`, `/livez`, `/readyz`.
    pub(crate) admin: SocketAddr,
}

impl Relay {
    /// Starts one with defaults, and waits until it is up.
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// Starts one with `settings` (lines of TOML with dotted keys) before the defaults of tests.
    pub(crate) async fn with(settings: &str) -> Self {
        Self::in_dir(Self::prepare(settings), |_| {}).await
    }

    /// A directory with a configuration, for [`Relay::in_dir`] and [`command`].
    pub(crate) fn prepare(settings: &str) -> Arc<TempDir> {
        let dir = TempDir::new().expect("a temporary directory");
        let mut config = settings.to_owned() + "\n";
        let text = |value: &str| format!("\"{value}\"");
        let defaults = [
            ("server.listen", text("127.0.0.1:0")),
            ("server.admin_listen", text("127.0.0.1:0")),
            ("server.url", text(URL)),
            ("database.url", text("sqlite://relay.db")),
        ];
        let no_limit = NO_LIMITS.map(|key| (key, "0".to_owned()));
        for (key, value) in defaults.into_iter().chain(no_limit) {
            if !settings.contains(key) {
                config += &format!("{key} = {value}\n");
            }
        }
        std::fs::write(dir.path().join("relay.toml"), config).expect("a configuration");
        Arc::new(dir)
    }

    /// Starts one in `dir`; `change` may alter how it is called.
    pub(crate) async fn in_dir(dir: Arc<TempDir>, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = command(dir.path());
        change(&mut command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let log = Log::of(child.stderr.take().expect("standard error is piped"));
        let up = log.line_with(&["relay is up"]).await;
        Self {
            addr: address(&up, "listen"),
            admin: address(&up, "admin"),
            dir,
            child,
            log,
        }
    }

    /// Starts it again on the same directory, after it ended.
    pub(crate) async fn again(self) -> Self {
        let dir = Arc::clone(&self.dir);
        drop(self);
        Self::in_dir(dir, |_| {}).await
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir().join("relay.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.addr)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Asks it to end, as an operator does.
    pub(crate) fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("the relay runs");
    }

    /// Ends it without a chance to do anything, and waits for the end.
    pub(crate) async fn kill(&mut self) {
        let _ = self.child.kill();
        self.ended().await;
    }

    /// How it ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        soon("the relay's end", async {
            loop {
                if let Some(status) = child.try_wait().expect("a child") {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Resident memory of its own, in bytes: the mapped database is the page cache's.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the relay runs");
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.expect("a resident size") * 1024
    }

    /// One reading of all metrics.
    pub(crate) async fn metrics(&self) -> http::Metrics {
        http::Metrics(http::get(self.admin, "/metrics").await.body)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Shown by the test harness beside the failure only.
        println!("--- the relay's log\n{}", self.log.text());
    }
}

/// The binary in `dir` with its `relay.toml`, and none of the caller's settings.
pub(crate) fn command(dir: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BUZZ_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.args(["--config", "relay.toml"]);
    command
}

/// A loopback address that no other test and no other run has, for relays whose URL must be known
/// before they start.
pub(crate) fn own_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., middle, low] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("127.{}.{middle}.{low}:3000", 1 + next)
}

/// Reads the address behind `field=` (text) or `"field":"` (JSON).
fn address(line: &str, field: &str) -> SocketAddr {
    let value = [format!("{field}="), format!("\"{field}\":\"")]
        .iter()
        .find_map(|mark| line.split_once(mark.as_str()))
        .map(|(_, rest)| rest.trim_start_matches('"'))
        .and_then(|rest| rest.split([' ', '"', ',']).next());
    let address = value.and_then(|value| value.parse().ok());
    address.unwrap_or_else(|| panic!("no {field} address in {line}"))
}
