//! A private Redis on a socket in a directory of its own.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::eventually;

/// Killed when dropped.
pub(crate) struct Redis {
    dir: TempDir,
    child: Child,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let child = spawn(&dir);
        let redis = Self { dir, child };
        redis.answers().await;
        redis
    }

    /// The setting that makes a relay use it.
    pub(crate) fn backend(&self) -> String {
        let socket = self.dir.path().join("redis.sock");
        format!(
            "admission.backend = \"redis+unix://{}\"\n",
            socket.display()
        )
    }

    /// Ends it at once; what it held is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, empty.
    pub(crate) async fn again(&mut self) {
        self.kill();
        self.child = spawn(&self.dir);
        self.answers().await;
    }

    /// Takes connections from now on, but answers nothing.
    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("it runs");
    }

    /// Goes on.
    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("it runs");
    }

    async fn answers(&self) {
        let socket = self.dir.path().join("redis.sock");
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
