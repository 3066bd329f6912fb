//! A private Redis on a socket in a directory of its own.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::eventually;

/// Killed when dropped.
pub struct Redis {
    dir: TempDir,
    child: Child,
}

impl Redis {
    /// Starts an empty server, and waits until it answers.
    pub async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let child = spawn(&dir);
        let redis = Self { dir, child };
        redis.answers().await;
        redis
    }

    /// Where clients connect to.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The setting that makes a relay use it.
    pub fn backend(&self) -> String {
        format!("admission.backend = \"{}\"\n", self.url())
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Ends it at once; what it held is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, empty.
    pub async fn again(&mut self) {
        self.kill();
        self.child = spawn(&self.dir);
        self.answers().await;
    }

    /// Takes connections from now on, but answers nothing.
    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("it runs");
    }

    /// Goes on.
    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("it runs");
    }

    async fn answers(&self) {
        let socket = self.socket();
        eventually("Redis answers", async || {
            let mut stream = UnixStream::connect(&socket).await.ok()?;
            stream.write_all(b"PING\r\n").await.ok()?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).await.ok()?;
            (&answer == b"+PONG").then_some(())
        })
        .await;
    }
}

fn spawn(dir: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .args(["--unixsocket", "redis.sock"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server (Debian: apt-get install redis-server)")
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
