//! Each test names the changes of the code that it catches.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc,
};

use actix::{Addr, Arbiter};
use metrics::{Counter, Gauge};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::flags::{AUTH, FlagError, HISTORY_READS};

/// What the source does when it is asked for a flag.
#[derive(Clone, Copy)]
enum Act {
    Value(Option<i64>),
    Fail,
    Panic,
}

/// Answers each round of evaluations as the test says; the last line goes on for ever.
struct Scripted {
    rounds: Vec<[Act; 2]>,
    /// How often `refresh` was called.
    asked: Arc<AtomicU64>,
    /// A round begins only when this gives something, where it is set.
    wait: Option<mpsc::Receiver<()>>,
    flushed: Option<Duration>,
}

impl FlagSource for Scripted {
    fn provider(&self) -> &'static str {
        "scripted"
    }
    fn refresh(&mut self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(wait) = &self.wait {
            let _ = wait.recv();
        }
    }
    fn integer(&mut self, flag: &IntegerFlag) -> Result<Option<i64>, FlagError> {
        let round = self.asked.load(Ordering::SeqCst) as usize - 1;
        let [history, auth] = self.rounds[round.min(self.rounds.len() - 1)];
        let act = if *flag == HISTORY_READS {
            history
        } else {
            auth
        };
        match act {
            Act::Value(value) => Ok(value),
            Act::Fail => Err(FlagError("no".into())),
            Act::Panic => panic!("as the test wants"),
        }
    }
    fn ready(&self) -> bool {
        true
    }
    fn flush(&mut self, within: Duration) {
        self.flushed = Some(within);
        panic!("as the test wants");
    }
}

/// A gate that tells the test what it is told.
struct Told(IntegerFlag, UnboundedSender<(IntegerFlag, Option<i64>)>);

impl Actor for Told {
    type Context = Context<Self>;
}

impl Handler<SetLimit> for Told {
    type Result = ();
    fn handle(&mut self, set: SetLimit, _: &mut Self::Context) {
        assert_eq!(set.source, "scripted");
        let _ = self.1.send((self.0, set.flag));
    }
}

struct Fixture {
    refresher: Addr<FlagRefresher>,
    told: UnboundedReceiver<(IntegerFlag, Option<i64>)>,
    panics: Arc<AtomicU64>,
    ready: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    go_on: mpsc::Sender<()>,
}

impl Fixture {
    fn new(every: Duration, rounds: &[[Act; 2]], waits: bool) -> Self {
        let (tell, told) = unbounded_channel();
        let (go_on, wait) = mpsc::channel();
        let (panics, ready, asked) = Default::default();
        let source = Scripted {
            rounds: rounds.to_vec(),
            asked: Arc::clone(&asked),
            wait: waits.then_some(wait),
            flushed: None,
        };
        let cap = |flag| Cap {
            flag,
            gate: Told(flag, tell.clone()).start().recipient(),
        };
        let caps = vec![cap(HISTORY_READS), cap(AUTH)];
        let metrics = FlagMetrics {
            ready: Gauge::from_arc(Arc::clone(&ready)),
            panics: Counter::from_arc(Arc::clone(&panics)),
        };
        // As the relay starts it: on a thread of its own.
        let refresher = FlagRefresher::start_in_arbiter(&Arbiter::new().handle(), move |_| {
            FlagRefresher::new(Box::new(source), caps, every, metrics)
        });
        Self {
            refresher,
            told,
            panics,
            ready,
            asked,
            go_on,
        }
    }

    async fn next(&mut self) -> (IntegerFlag, Option<i64>) {
        let told = tokio::time::timeout(Duration::from_secs(30), self.told.recv());
        told.await.expect("in time").expect("a gate")
    }
}

const NEVER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(20);

/// Kills: gates mixed up; only the first told; `Refresh` answered before the gates have it; ready
/// never set.
#[actix::test]
async fn each_gate_has_its_flag_when_the_refresh_is_answered() {
    let both = [[Act::Value(Some(3)), Act::Value(None)]];
    let mut fixture = Fixture::new(NEVER, &both, false);
    fixture.refresher.send(Refresh).await.expect("an answer");
    let mut told = [fixture.told.try_recv(), fixture.told.try_recv()];
    told.sort_by_key(|told| told.map(|(flag, _)| flag.key).ok());
    assert_eq!(told, [Ok((AUTH, None)), Ok((HISTORY_READS, Some(3)))]);
    assert_eq!(f64::from_bits(fixture.ready.load(Ordering::SeqCst)), 1.0);
}

/// Kills: no ticks; a tick that is not set again; ticks that tell only what has changed.
#[actix::test]
async fn it_goes_on_by_itself() {
    let rounds = [
        [Act::Value(Some(1)), Act::Fail],
        [Act::Value(Some(2)), Act::Fail],
    ];
    let mut fixture = Fixture::new(SOON, &rounds, false);
    for value in [1, 2, 2, 2] {
        assert_eq!(fixture.next().await, (HISTORY_READS, Some(value)));
    }
}

/// Kills: a panic that ends the refresher, goes uncounted, keeps the other flag from its gate, or
/// moves the cap of its own.
#[actix::test]
async fn a_panic_is_counted_and_moves_nothing_and_the_next_tick_tries_again() {
    let rounds = [
        [Act::Panic, Act::Value(Some(7))],
        [Act::Panic, Act::Value(Some(8))],
        [Act::Value(Some(9)), Act::Fail],
    ];
    let mut fixture = Fixture::new(SOON, &rounds, false);
    assert_eq!(fixture.next().await, (AUTH, Some(7)));
    assert_eq!(fixture.next().await, (AUTH, Some(8)));
    assert_eq!(fixture.next().await, (HISTORY_READS, Some(9)));
    assert_eq!(fixture.panics.load(Ordering::SeqCst), 2);
}

/// Kills: an error taken for "no value", which would lift the cap.
#[actix::test]
async fn an_error_moves_nothing() {
    let rounds = [[Act::Fail, Act::Value(Some(1))]];
    let mut fixture = Fixture::new(NEVER, &rounds, false);
    for _ in 0..2 {
        fixture.refresher.send(Refresh).await.expect("an answer");
        assert_eq!(fixture.told.try_recv(), Ok((AUTH, Some(1))));
        assert!(fixture.told.try_recv().is_err());
    }
    assert_eq!(fixture.panics.load(Ordering::SeqCst), 0);
}

/// Kills: ticks that are made up for. The source blocks for five periods; made up for, the calls
/// after it would come at once, not a period apart.
#[actix::test]
async fn missed_ticks_are_skipped() {
    const EVERY: Duration = Duration::from_millis(100);
    let fixture = Fixture::new(EVERY, &[[Act::Fail, Act::Fail]], true);
    let asked = async |times| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while fixture.asked.load(Ordering::SeqCst) < times {
            assert!(Instant::now() < deadline, "not asked {times} times");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    asked(1).await;
    tokio::time::sleep(EVERY * 5).await;
    let freed = Instant::now();
    drop(fixture.go_on);
    asked(3).await;
    assert!(freed.elapsed() >= EVERY, "{:?}", freed.elapsed());
}

/// Kills: a rhythm that drifts; a burst after a pause; a tick in the past.
#[test]
fn the_next_tick_is_in_the_rhythm_and_in_the_future() {
    let began = Instant::now();
    let every = Duration::from_secs(5);
    for (late_ms, next_ms) in [
        (0, 5_000),
        (1, 5_000),
        (4_999, 5_000),
        (5_000, 10_000),
        (51_234, 55_000),
    ] {
        let now = began + Duration::from_millis(late_ms);
        let expected = began + Duration::from_millis(next_ms);
        assert_eq!(next_tick(began, every, now), expected, "{late_ms}");
    }
}

/// Kills: a flush that panics and is never answered, so that the shutdown waits in vain.
#[actix::test]
async fn a_flush_that_panics_is_answered() {
    let fixture = Fixture::new(NEVER, &[[Act::Fail, Act::Fail]], false);
    let within = Duration::from_secs(2);
    fixture
        .refresher
        .send(Flush { within })
        .await
        .expect("an answer");
    assert_eq!(fixture.panics.load(Ordering::SeqCst), 1);
}
