//! Budgets that several relays share, in Redis: one atomic script for each principal that wants to
//! spend (`spend.lua`), pipelined. A thread of its own holds the connection; what comes in while a
//! pipeline is on its way is the next one.
//!
//! Bound: one ask a connection and REST call. Whatever Redis does, an answer comes within
//! `admission.timeout`: no connection, an error or silence is [`Verdict::Unavailable`], never an
//! admission. The connection is opened anew by itself.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use buzz_actors::admission::{Cost, Quotas, SharedAsk, SharedBudget, SharedVerdicts, Verdict};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, Script,
    ServerErrorKind, aio::MultiplexedConnection,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::config::Admission;

/// A connection must be there, and its script, within this time.
const CONNECT: Duration = Duration::from_secs(1);
/// Between two attempts to connect: asks are refused at once meanwhile.
const PAUSE: Duration = Duration::from_millis(200);
/// Asks of one pipeline.
const AT_ONCE: usize = 256;

/// The shared budget, where one is configured. Redis need not be there yet.
pub(crate) fn open(config: &Admission) -> Result<Option<Arc<dyn SharedBudget>>> {
    let Some(url) = config.shared_url() else {
        return Ok(None);
    };
    let client = Client::open(url).context("admission.backend")?;
    let (work, asks) = mpsc::unbounded_channel();
    let redis = Redis {
        client,
        shown: crate::values::mask_password(url),
        script: Script::new(include_str!("spend.lua")),
        quotas: config.quotas(),
        timeout: config.timeout,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("shared-budget".into())
        .spawn(move || runtime.block_on(redis.run(asks)))?;
    Ok(Some(Arc::new(RedisBudget {
        work,
        timeout: config.timeout,
    })))
}

/// The way to the thread.
struct RedisBudget {
    work: mpsc::UnboundedSender<Work>,
    timeout: Duration,
}

/// What is asked, and who waits; dropped, it says that nobody could be asked.
struct Work {
    asks: Vec<SharedAsk>,
    reply: oneshot::Sender<Vec<Vec<Verdict>>>,
}

impl SharedBudget for RedisBudget {
    fn spend(&self, asks: Vec<SharedAsk>) -> SharedVerdicts {
        let counts: Vec<usize> = asks.iter().map(|ask| ask.costs.len()).collect();
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + self.timeout;
        // Where the thread is gone, so is `reply`.
        let _ = self.work.send(Work { asks, reply });
        Box::pin(async move {
            match timeout_at(deadline, answer).await {
                Ok(Ok(verdicts)) => verdicts,
                _ => counts.into_iter().map(unavailable).collect(),
            }
        })
    }
}

fn unavailable(count: usize) -> Vec<Verdict> {
    vec![Verdict::Unavailable; count]
}

/// The thread's side.
struct Redis {
    client: Client,
    /// The URL without its password.
    shown: String,
    script: Script,
    quotas: Quotas,
    timeout: Duration,
}

impl Redis {
    /// Connects again and again; returns when nobody can ask any more.
    async fn run(self, mut work: mpsc::UnboundedReceiver<Work>) {
        let mut is_known_to_be_gone = false;
        loop {
            // What is asked meanwhile waits for it, as long as it may.
            let error = match self.connect().await {
                Ok(mut connection) => {
                    tracing::info!(redis = self.shown, "shared admission is there");
                    is_known_to_be_gone = false;
                    match self.serve(&mut connection, &mut work).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if !std::mem::replace(&mut is_known_to_be_gone, true) {
                let redis = &self.shown;
                tracing::error!(redis, %error, "shared admission is unavailable: frames are refused until it is back");
            }
            let pause = async { while work.recv().await.is_some() {} };
            if timeout(PAUSE, pause).await.is_ok() {
                return;
            }
        }
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(self.timeout));
        let connect = async {
            let client = &self.client;
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            // A Redis that is stopped takes connections, but answers nothing.
            self.script.load_async(&mut connection).await?;
            Ok(connection)
        };
        let slow = |_| RedisError::from((ErrorKind::Io, "no connection in time"));
        timeout(CONNECT, connect).await.map_err(slow)?
    }

    /// Asks until the connection fails.
    async fn serve(
        &self,
        connection: &mut MultiplexedConnection,
        work: &mut mpsc::UnboundedReceiver<Work>,
    ) -> RedisResult<()> {
        let mut batch = Vec::new();
        while work.recv_many(&mut batch, AT_ONCE).await > 0 {
            // Who waited too long was told so, and must not be counted.
            batch.retain(|work: &Work| !work.reply.is_closed());
            let asks: Vec<&SharedAsk> = batch.iter().flat_map(|work| &work.asks).collect();
            let mut verdicts = self.ask(connection, &asks).await?.into_iter();
            for Work { asks, reply } in batch.drain(..) {
                let _ = reply.send(verdicts.by_ref().take(asks.len()).collect());
            }
        }
        Ok(())
    }

    /// Asks for all at once; again for those whose script Redis has forgotten, which spent nothing.
    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        asks: &[&SharedAsk],
    ) -> RedisResult<Vec<Vec<Verdict>>> {
        let mut verdicts: Vec<_> = asks
            .iter()
            .map(|ask| unavailable(ask.costs.len()))
            .collect();
        let mut left: Vec<usize> = (0..asks.len()).collect();
        for is_first in [true, false] {
            if left.is_empty() {
                break;
            }
            let mut pipeline = redis::pipe();
            pipeline.ignore_errors();
            for &at in &left {
                pipeline.add_command(self.command(asks[at], None));
            }
            let answers: Vec<RedisResult<Vec<u32>>> = pipeline.query_async(connection).await?;
            let mut forgotten = Vec::new();
            for (at, answer) in left.into_iter().zip(answers) {
                match answer {
                    Ok(secs) if secs.len() == asks[at].costs.len() => {
                        verdicts[at] = secs.into_iter().map(verdict).collect();
                    }
                    Ok(_) => tracing::error!("shared admission: an answer of another length"),
                    Err(error) if is_first && is_no_script(&error) => forgotten.push(at),
                    Err(error) if error.is_unrecoverable_error() => return Err(error),
                    Err(error) => tracing::debug!(%error, "shared admission: one ask failed"),
                }
            }
            if !forgotten.is_empty() {
                self.script.load_async(connection).await?;
            }
            left = forgotten;
        }
        Ok(verdicts)
    }

    /// One principal's ask; at a time in milliseconds, for tests, or now.
    fn command(&self, ask: &SharedAsk, now: Option<u64>) -> Cmd {
        let rates = self.quotas.of(ask.class);
        let all = [rates.frames, rates.messages, rates.api_calls];
        let is_counted = |class: usize| ask.costs.iter().any(|s| s.counted().contains(&class));
        let classes: Vec<usize> = (0..all.len())
            .filter(|&class| !all[class].is_off() && is_counted(class))
            .collect();
        let digit = |spend: &Cost| {
            let bit = |(at, class)| u32::from(spend.counted().contains(class)) << at;
            let bits: u32 = classes.iter().enumerate().map(bit).sum();
            char::from_digit(bits, 10).unwrap_or('0')
        };
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.script.get_hash()).arg(2 * classes.len());
        for &class in &classes {
            // Braces: all keys of a principal lie in one slot of a cluster.
            let key = format!("buzz:admission:{{{}}}:{class}", ask.principal);
            command.arg(&key).arg(key.clone() + ":closed_until");
        }
        command.arg(now.map_or_else(String::new, |now| now.to_string()));
        command.arg(ask.costs.iter().map(digit).collect::<String>());
        for class in classes {
            command.arg(all[class].limit).arg(all[class].window_ms);
        }
        command
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn verdict(secs: u32) -> Verdict {
    NonZeroU32::new(secs).map_or(Verdict::Admitted, |retry_in_secs| Verdict::Exceeded {
        retry_in_secs,
    })
}

#[cfg(test)]
mod tests;
