//! What a storm of logins costs the relay, read from its `/metrics` every few milliseconds on a
//! thread of its own, so that the storm does not delay the readings.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    str::FromStr,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;

use crate::latency::round3;

/// Between two readings.
const EVERY: Duration = Duration::from_millis(20);
/// How long a reading may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Logins by what became of them.
const OUTCOMES: &str = "buzz_auth_outcomes_total";

/// The relay's admin address, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admin {
    host: String,
    address: SocketAddr,
}

impl FromStr for Admin {
    type Err = anyhow::Error;

    fn from_str(url: &str) -> Result<Self> {
        let rest = url
            .strip_prefix("http://")
            .context("the admin address must start with http://")?;
        let host = rest.trim_end_matches('/').to_owned();
        let address = host
            .to_socket_addrs()
            .with_context(|| format!("can't resolve {host}; it needs a port"))?
            .next()
            .with_context(|| format!("{host} has no address"))?;
        Ok(Self { host, address })
    }
}

impl Admin {
    /// One reading.
    fn read(&self) -> Result<Reading> {
        let mut stream = TcpStream::connect_timeout(&self.address, TIMEOUT)
            .with_context(|| format!("can't connect to {}", self.host))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        // HTTP 1.0 has neither chunks nor a next request: the text ends with the stream.
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.host);
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.lines().next().unwrap_or_default();
        ensure!(
            status.split(' ').nth(1) == Some("200"),
            "{}/metrics answered: {status}",
            self.host
        );
        Ok(Reading::parse(body))
    }
}

/// One text of metrics, as far as logins go.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    limit: f64,
    in_flight: f64,
    waiting: f64,
    reads: f64,
    read_seconds: f64,
    outcomes: BTreeMap<String, f64>,
}

impl Reading {
    fn parse(text: &str) -> Self {
        let mut reading = Self::default();
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let Ok(value) = value.parse() else { continue };
            match series {
                r#"buzz_concurrency_limit{gate="auth"}"# => reading.limit = value,
                r#"buzz_concurrency_in_flight{gate="auth"}"# => reading.in_flight = value,
                r#"buzz_concurrency_waiting{gate="auth"}"# => reading.waiting = value,
                r#"buzz_db_seconds_count{op="role"}"# => reading.reads = value,
                r#"buzz_db_seconds_sum{op="role"}"# => reading.read_seconds = value,
                _ => {
                    let label = series.strip_prefix(OUTCOMES);
                    let outcome = label
                        .and_then(|label| label.strip_prefix("{outcome=\""))
                        .and_then(|label| label.strip_suffix("\"}"));
                    if let Some(outcome) = outcome {
                        reading.outcomes.insert(outcome.to_owned(), value);
                    }
                }
            }
        }
        reading
    }
}

/// What the logins of a run cost.
#[derive(Debug, Serialize)]
pub(crate) struct Work {
    /// Readings that the peaks were found in; between two of them a higher one may have passed.
    readings: u64,
    /// The cap at the end; 0: none.
    auth_limit: u64,
    auth_in_flight_peak: u64,
    auth_waiting_peak: u64,
    /// Looks at a key's role in the database.
    role_reads: u64,
    role_read_seconds: f64,
    auth_outcomes: BTreeMap<String, u64>,
}

/// Reads all the while.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Result<Work>>,
}

impl Sampler {
    /// The counts of the first reading, taken here, are where the run begins.
    ///
    /// # Errors
    /// When there is nothing to read.
    pub(crate) fn start(admin: &Admin) -> Result<Self> {
        let admin = admin.clone();
        let first = admin.read()?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut readings, mut in_flight, mut waiting) = (1, first.in_flight, first.waiting);
            loop {
                let done = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                let reading = admin.read()?;
                readings += 1;
                in_flight = in_flight.max(reading.in_flight);
                waiting = waiting.max(reading.waiting);
                if done {
                    return Ok(work(readings, in_flight, waiting, &first, &reading));
                }
            }
        });
        Ok(Self { stop, thread })
    }

    /// Takes the last reading.
    ///
    /// # Errors
    /// When one failed.
    pub(crate) fn stop(self) -> Result<Work> {
        let _ = self.stop.send(());
        let work = self.thread.join();
        work.map_err(|_| anyhow!("the thread that reads the metrics panicked"))?
    }
}

fn work(readings: u64, in_flight: f64, waiting: f64, first: &Reading, last: &Reading) -> Work {
    let new = |(outcome, count): (&String, &f64)| {
        let before = first.outcomes.get(outcome).copied().unwrap_or_default();
        let new = (count - before) as u64;
        (new > 0).then(|| (outcome.clone(), new))
    };
    Work {
        readings,
        auth_limit: last.limit as u64,
        auth_in_flight_peak: in_flight as u64,
        auth_waiting_peak: waiting as u64,
        role_reads: (last.reads - first.reads) as u64,
        role_read_seconds: round3(last.read_seconds - first.read_seconds),
        auth_outcomes: last.outcomes.iter().filter_map(new).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: another gate's or another operation's figures taken for the logins'.
    #[test]
    fn the_logins_figures_are_told_from_the_rest() {
        let text = "# HELP buzz_auth_outcomes_total Logins (NIP-42) by outcome.\n\
            buzz_auth_outcomes_total{outcome=\"ok\"} 7\n\
            buzz_auth_outcomes_total{outcome=\"concurrency_limit\"} 3\n\
            buzz_concurrency_in_flight{gate=\"history_reads\"} 99\n\
            buzz_concurrency_in_flight{gate=\"auth\"} 4\n\
            buzz_concurrency_waiting{gate=\"auth\"} 5\n\
            buzz_concurrency_limit{gate=\"auth\"} 16\n\
            buzz_db_seconds_count{op=\"read\"} 99\n\
            buzz_db_seconds_count{op=\"role\"} 8\n\
            buzz_db_seconds_sum{op=\"role\"} 0.25\n\
            buzz_events_total{outcome=\"ok\"} 99\n";
        let expected = Reading {
            limit: 16.0,
            in_flight: 4.0,
            waiting: 5.0,
            reads: 8.0,
            read_seconds: 0.25,
            outcomes: [("ok".into(), 7.0), ("concurrency_limit".into(), 3.0)].into(),
        };
        assert_eq!(Reading::parse(text), expected);
    }

    /// Kills: totals since the relay's start reported as the run's.
    #[test]
    fn counts_are_those_of_the_run() {
        let reading = |reads, ok, shed| Reading {
            reads,
            read_seconds: reads / 100.0,
            outcomes: [("ok".into(), ok), ("concurrency_limit".into(), shed)].into(),
            ..Reading::default()
        };
        let (first, last) = (reading(10.0, 10.0, 2.0), reading(30.0, 25.0, 2.0));
        let work = work(3, 6.0, 9.0, &first, &last);
        assert_eq!((work.role_reads, work.role_read_seconds), (20, 0.2));
        assert_eq!(work.auth_outcomes, [("ok".into(), 15)].into());
        assert_eq!((work.auth_in_flight_peak, work.auth_waiting_peak), (6, 9));
    }

    #[test]
    fn an_admin_address_has_a_scheme_and_a_port() {
        let admin: Admin = "http://127.0.0.1:9090/".parse().unwrap();
        assert_eq!(admin.host, "127.0.0.1:9090");
        for wrong in ["127.0.0.1:9090", "https://127.0.0.1:9090", "http://x"] {
            assert!(Admin::from_str(wrong).is_err(), "{wrong}");
        }
    }
}
