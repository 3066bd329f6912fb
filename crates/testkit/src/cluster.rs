//! A PostgreSQL server of the tests' own: a new cluster in a temporary directory on a free port,
//! run by an unprivileged user, gone when the test process is, however that ends.
//!
//! The programs come from `POSTGRES_BIN` or Debian's directory; without them the tests fail and
//! name the package.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The server that the tests of one program share; each test has a database of its own there.
static SHARED: LazyLock<Cluster> = LazyLock::new(Cluster::start);

/// The URL of a new, empty database on the shared server.
pub fn database() -> String {
    SHARED.database()
}

/// Runs SQL in the database of `url` and gives what it yields, columns parted by `|`.
pub fn sql(url: &str, text: &str) -> String {
    let output = Command::new(programs().join("psql"))
        .args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            url,
            "-c",
            text,
        ])
        .output()
        .expect("psql runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {error}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A server.
pub struct Cluster {
    directory: PathBuf,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    /// Cleans up when its standard input ends: by `drop`, or with this process.
    janitor: Child,
}

impl Cluster {
    /// A new, empty cluster, running.
    pub fn start() -> Self {
        let cluster = Self::prepare();
        let data = cluster.data();
        let data = data.to_str().expect("a name");
        as_server(programs().join("initdb"))
            .args(["-D", data, "-U", "buzz", "-A", "trust", "-E", "UTF8"])
            .args(["--no-locale", "--no-sync"])
            .run();
        let settings = format!(
            "port = {}\nunix_socket_directories = '{}'\nlisten_addresses = '127.0.0.1'\n\
             fsync = off\nmax_connections = 200\nshared_buffers = 32MB\n\
             max_wal_senders = 4\nautovacuum_naptime = 5s\n",
            cluster.port,
            cluster.directory.display()
        );
        cluster.configure(&settings);
        cluster.up();
        cluster
    }

    /// A streaming replica of this one, running.
    pub fn replica(&self) -> Self {
        let replica = Self::prepare();
        let data = replica.data();
        as_server(programs().join("pg_basebackup"))
            .args([
                "-R",
                "-c",
                "fast",
                "-X",
                "stream",
                "-U",
                "buzz",
                "-h",
                "127.0.0.1",
            ])
            .args([
                "-p",
                &self.port.to_string(),
                "-D",
                data.to_str().expect("a name"),
            ])
            .run();
        replica.configure(&format!(
            "port = {}\nunix_socket_directories = '{}'\n",
            replica.port,
            replica.directory.display()
        ));
        replica.up();
        replica
    }

    /// A directory, a port, and the process that cleans both up.
    fn prepare() -> Self {
        let directory = tempfile::Builder::new().prefix("buzz-pg-").tempdir();
        let directory = directory.expect("a directory").keep();
        if let Some((user, group)) = server_user() {
            std::os::unix::fs::chown(&directory, Some(user), Some(group)).expect("an owner");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let data = directory.join("data");
        let mut janitor = Command::new("sh");
        janitor
            .args(["-c", "cat >/dev/null; pid=$(head -n 1 \"$1/postmaster.pid\" 2>/dev/null); \
                [ -z \"$pid\" ] || kill -QUIT \"$pid\" 2>/dev/null; \
                for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf \"$0\" 2>/dev/null && break; sleep 0.2; done"])
            .args([&directory, &data])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not ended by the terminal's Ctrl-C, which ends the tests.
            .process_group(0);
        Self {
            directory,
            port,
            janitor: janitor.spawn().expect("a shell"),
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Adds to the settings; they count from the next start on.
    pub fn configure(&self, settings: &str) {
        let path = self.data().join("postgresql.conf");
        let file = std::fs::OpenOptions::new().append(true).open(path);
        file.and_then(|mut file| file.write_all(settings.as_bytes()))
            .expect("a setting");
    }

    /// Has the server offer TLS, with a certificate for 127.0.0.1 that it signed itself; gives the
    /// certificate's file.
    pub fn offer_tls(&self) -> PathBuf {
        let [key, certificate] = ["key.pem", "cert.pem"].map(|name| self.directory.join(name));
        let file = |path: &Path| path.to_str().expect("a name").to_owned();
        as_server("openssl".into())
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
            ])
            .args(["-days", "2", "-subj", "/CN=127.0.0.1"])
            .args(["-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &file(&key), "-out", &file(&certificate)])
            .run();
        self.configure(&format!(
            "ssl = on\nssl_key_file = '{}'\nssl_cert_file = '{}'\n",
            file(&key),
            file(&certificate)
        ));
        self.down();
        self.up();
        certificate
    }

    /// Starts the server and waits for it.
    pub fn up(&self) {
        let log = self.directory.join("log");
        let arguments = [Path::new("-D"), &self.data(), Path::new("-l"), &log];
        // A server that was killed takes a moment to let go of its memory.
        for _ in 0..50 {
            let started = as_server(programs().join("pg_ctl"))
                .args(arguments)
                .args(["-w", "start"])
                .0
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if started.expect("pg_ctl runs").success() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let log = std::fs::read_to_string(log).unwrap_or_default();
        panic!("the server does not start: {log}");
    }

    /// Stops it in good order.
    pub fn down(&self) {
        let data = self.data();
        as_server(programs().join("pg_ctl"))
            .args([
                "-D",
                data.to_str().expect("a name"),
                "-m",
                "fast",
                "-w",
                "stop",
            ])
            .run();
    }

    /// Ends it as a crash does: no process of it says goodbye.
    pub fn kill(&self) {
        let pid = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("a server");
        let pid = pid.lines().next().expect("a process");
        let children = format!("kill -9 {pid} $(ps -o pid= --ppid {pid})");
        Command::new("sh")
            .args(["-c", &children])
            .status()
            .expect("a shell");
    }

    /// Stops or continues all its processes, as a machine that hangs.
    pub fn freeze(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("a server");
        let pid = pid.lines().next().expect("a process");
        let all = format!("kill -{signal} {pid} $(ps -o pid= --ppid {pid})");
        Command::new("sh")
            .args(["-c", &all])
            .status()
            .expect("a shell");
    }

    /// The URL of a new, empty database.
    pub fn database(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        sql(&self.url("postgres"), &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// The URL of a database here.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://buzz:secret@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// A lock that makes all who read or write the table wait, until it is dropped.
pub struct Lock {
    psql: Child,
    _out: BufReader<ChildStdout>,
}

impl Lock {
    /// Takes it, in a session of its own.
    pub fn on(url: &str, table: &str) -> Self {
        let mut psql = Command::new(programs().join("psql"))
            .args(["-X", "-A", "-t", "-q", "-d", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql runs");
        let input = psql.stdin.as_mut().expect("an input");
        write!(
            input,
            "BEGIN;\nLOCK TABLE {table} IN ACCESS EXCLUSIVE MODE;\n\\echo locked\n"
        )
        .expect("psql reads");
        let mut out = BufReader::new(psql.stdout.take().expect("an output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("psql answers");
        assert_eq!(line.trim(), "locked");
        Self { psql, _out: out }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The end of its input is the end of its session, and of the lock.
        drop(self.psql.stdin.take());
        let _ = self.psql.wait();
    }
}

/// Where the server's programs are.
pub fn programs() -> PathBuf {
    if let Some(path) = std::env::var_os("POSTGRES_BIN") {
        return path.into();
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut versions: Vec<_> = versions
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.retain(|bin| bin.join("initdb").is_file());
    versions.sort();
    versions.pop().expect(
        "PostgreSQL's server programs are missing: apt-get install postgresql, \
         or name their directory in POSTGRES_BIN",
    )
}

/// The user that the server runs as when the tests run as root: it refuses to run as root.
fn server_user() -> Option<(u32, u32)> {
    if std::fs::metadata("/proc/self").expect("a process").uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("users");
    let user = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse);
        Some((ids.next()?.ok()?, ids.next()?.ok()?))
    };
    Some(
        user("postgres")
            .or_else(|| user("nobody"))
            .expect("an unprivileged user"),
    )
}

struct AsServer(Command);

/// A program, run as the server's user.
fn as_server(program: PathBuf) -> AsServer {
    let mut command = Command::new(program);
    if let Some((user, group)) = server_user() {
        command.uid(user).gid(group);
    }
    command.current_dir("/");
    AsServer(command)
}

impl AsServer {
    fn args(mut self, args: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Self {
        self.0.args(args);
        self
    }

    fn run(mut self) {
        let output = self.0.output().expect("the program runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {error}", self.0);
    }
}
