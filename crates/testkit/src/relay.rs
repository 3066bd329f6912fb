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

use crate::{http, log::Log, soon};

/// The URL that AUTH events must name.
pub const URL: &str = "ws://relay.test/chat";

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

/// The quotas as they are without a configuration, for [`Program::start_with`].
pub const DEFAULT_QUOTAS: &str = "\
    admission.human_ws_events_per_sec = 10\n\
    admission.agent_ws_events_per_sec = 10\n\
    admission.human_messages_per_min = 60\n\
    admission.agent_messages_per_min = 120\n\
    admission.human_api_calls_per_min = 300\n\
    admission.agent_api_calls_per_min = 600\n\
    admission.handshakes_per_ip_per_min = 12000\n\
    admission.invalid_signatures_per_ip_per_min = 60\n";

/// The program that is tested. Only the tests of its own package know where cargo put it.
#[derive(Debug, Clone, Copy)]
pub struct Program(&'static str);

impl Program {
    /// The program at `path`: `env!("CARGO_BIN_EXE_buzz-relay")`.
    pub const fn at(path: &'static str) -> Self {
        Self(path)
    }

    /// Its file.
    pub fn path(self) -> &'static Path {
        Path::new(self.0)
    }

    /// Another program of the workspace, built into the same directory.
    pub fn sibling(self, name: &str) -> PathBuf {
        self.path().with_file_name(name)
    }

    /// A call in `dir` with its `relay.toml`, and none of the caller's settings.
    pub fn command(self, dir: &Path) -> Command {
        let mut command = Command::new(self.0);
        command.current_dir(dir);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BUZZ_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command.args(["--config", "relay.toml"]);
        command
    }

    /// Starts a relay with the tests' defaults, and waits until it is up.
    pub async fn start(self) -> Relay {
        self.start_with("").await
    }

    /// Starts a relay with `settings` (lines of TOML with dotted keys) before the tests' defaults.
    pub async fn start_with(self, settings: &str) -> Relay {
        self.start_in(Relay::prepare(settings), |_| {}).await
    }

    /// Starts a relay in `dir`; `change` may alter how it is called.
    pub async fn start_in(self, dir: Arc<TempDir>, change: impl FnOnce(&mut Command)) -> Relay {
        let mut command = self.command(dir.path());
        change(&mut command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let log = Log::of(child.stderr.take().expect("standard error is piped"));
        let up = log.line_with(&["relay is up"]).await;
        Relay {
            program: self,
            addr: address(&up, "listen"),
            admin: address(&up, "admin"),
            dir,
            child,
            log,
        }
    }
}

/// A running relay; killed when dropped.
pub struct Relay {
    program: Program,
    dir: Arc<TempDir>,
    child: Child,
    /// What it writes to standard error.
    pub log: Log,
    /// WebSocket, REST and NIP-11.
    pub addr: SocketAddr,
    /// `/metrics`, `/livez`, `/readyz`.
    pub admin: SocketAddr,
}

impl Relay {
    /// A directory with a configuration, for [`Program::start_in`] and [`Program::command`].
    pub fn prepare(settings: &str) -> Arc<TempDir> {
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

    /// Starts it again on the same directory, after it ended.
    pub async fn again(self) -> Self {
        let (program, dir) = (self.program, Arc::clone(&self.dir));
        drop(self);
        program.start_in(dir, |_| {}).await
    }

    /// Where it runs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The database file, where the settings name no other.
    pub fn database(&self) -> PathBuf {
        self.dir().join("relay.db")
    }

    /// Where clients connect to.
    pub fn url(&self) -> String {
        format!("ws://{}", self.addr)
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Asks it to end, as an operator does.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("the relay runs");
    }

    /// Ends it without a chance to do anything, and waits for the end.
    pub async fn kill(&mut self) {
        let _ = self.child.kill();
        self.ended().await;
    }

    /// How it ended.
    pub async fn ended(&mut self) -> ExitStatus {
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

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Resident memory of its own, in bytes: the mapped database is the page cache's.
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the relay runs");
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.expect("a resident size") * 1024
    }

    /// One reading of all metrics.
    pub async fn metrics(&self) -> http::Metrics {
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

/// A loopback address that no other test and no other run has, for relays whose URL must be known
/// before they start.
pub fn own_address() -> String {
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
