//! What a process writes to standard error, line by line, kept for reading and waiting.

use std::{
    io::{BufRead, BufReader, Read},
    thread,
};

use tokio::sync::watch;

use crate::soon;

/// The lines so far; clones see the same lines.
#[derive(Clone)]
pub struct Log(watch::Receiver<Vec<String>>);

impl Log {
    /// Reads `from` to its end on a thread of its own.
    pub fn of(from: impl Read + Send + 'static) -> Self {
        let (lines, log) = watch::channel(Vec::new());
        thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let Ok(line) = line else { break };
                lines.send_modify(|lines| lines.push(without_colours(&line)));
            }
        });
        Self(log)
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// The lines so far as one text.
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// The first line that `wanted` takes, once it is there. Panics with the log where the
    /// process ends or the deadline passes without one.
    pub async fn line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut lines = self.0.clone();
        let found = async {
            let lines = lines
                .wait_for(|lines| lines.iter().any(|line| wanted(line)))
                .await;
            lines.ok()?.iter().find(|line| wanted(line)).cloned()
        };
        match soon(what, found).await {
            Some(line) => line,
            None => panic!("{what}: not in the log when it ended:\n{}", self.text()),
        }
    }

    /// The first line with all of `parts`, once it is there.
    pub async fn line_with(&self, parts: &[&str]) -> String {
        let all = |line: &str| parts.iter().all(|part| line.contains(part));
        self.line(&format!("a log line with {parts:?}"), all).await
    }
}

/// Takes out what colours a terminal.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    clean
}
