//! The actor around the gate: whose rules are tested in `buzz_gate`. Here: that permits come back
//! wherever they are dropped, that nobody waits too long, that who is gone is passed over.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use actix::Actor;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const LONG: Duration = Duration::from_secs(60);

enum Told {
    Admitted(Permit),
    Shed,
}

struct Client {
    number: u32,
    here: Arc<AtomicBool>,
    tell: UnboundedSender<(u32, Told)>,
}

impl Waiter for Client {
    fn wanted(&self) -> bool {
        self.here.load(Ordering::SeqCst)
    }
    fn admitted(self: Box<Self>, permit: Permit) {
        let _ = self.tell.send((self.number, Told::Admitted(permit)));
    }
    fn shed(self: Box<Self>) {
        let _ = self.tell.send((self.number, Told::Shed));
    }
}

struct Fixture {
    gate: Addr<Gate>,
    tell: UnboundedSender<(u32, Told)>,
    told: UnboundedReceiver<(u32, Told)>,
}

impl Fixture {
    fn new(ceiling: Option<u64>, wait: Duration) -> Self {
        let metrics = GateMetrics::register("test");
        let gate = Gate::new("test", ceiling.and_then(NonZeroU64::new), wait, metrics).start();
        let (tell, told) = unbounded_channel();
        Self { gate, tell, told }
    }

    /// A client asks; the flag says whether it is still there.
    fn ask(&self, number: u32) -> Arc<AtomicBool> {
        let here = Arc::new(AtomicBool::new(true));
        let waiter = Box::new(Client {
            number,
            here: Arc::clone(&here),
            tell: self.tell.clone(),
        });
        let since = Instant::now();
        self.gate.do_send(Acquire { waiter, since });
        here
    }

    fn set_limit(&self, flag: Option<i64>) {
        let source = "test";
        self.gate.do_send(SetLimit { flag, source });
    }

    async fn admitted(&mut self) -> (u32, Permit) {
        match self.told.recv().await {
            Some((number, Told::Admitted(permit))) => (number, permit),
            Some((number, Told::Shed)) => panic!("{number} was shed"),
            None => panic!("the gate is gone"),
        }
    }

    /// What the gate has decided by now: it answers this message after all that came before.
    async fn decided(&mut self) -> Option<(u32, Told)> {
        self.waiting().await;
        self.told.try_recv().ok()
    }

    /// How many wait, as the gate sees it after all that came before.
    async fn waiting(&self) -> usize {
        self.gate.send(HowManyWait).await.expect("an answer")
    }
}

#[derive(Message)]
#[rtype(result = "usize")]
struct HowManyWait;

impl Handler<HowManyWait> for Gate {
    type Result = usize;
    fn handle(&mut self, _: HowManyWait, _: &mut Context<Self>) -> usize {
        self.gate.waiting()
    }
}

/// Kills: a permit whose drop sends nothing; the last waiter served first.
#[actix::test]
async fn a_dropped_permit_goes_to_whoever_waits_longest() {
    let mut fixture = Fixture::new(Some(1), LONG);
    let here = [1, 2, 3].map(|number| fixture.ask(number));
    for number in 1..=3 {
        let (who, permit) = fixture.admitted().await;
        assert_eq!(who, number);
        assert!(fixture.decided().await.is_none(), "two at once");
        drop(permit);
    }
    drop(here);
}

/// Kills: a permit given to whoever is gone; one that is then kept.
#[actix::test]
async fn who_is_gone_is_passed_over_and_leaks_nothing() {
    let mut fixture = Fixture::new(Some(1), LONG);
    let _first = fixture.ask(1);
    let (_, permit) = fixture.admitted().await;
    let gone = [2, 3, 4].map(|number| fixture.ask(number));
    let _last = fixture.ask(5);
    for here in gone {
        here.store(false, Ordering::SeqCst);
    }
    drop(permit);
    let (who, permit) = fixture.admitted().await;
    assert_eq!(who, 5);
    drop(permit);
    let _again = fixture.ask(6);
    assert_eq!(fixture.admitted().await.0, 6);
}

/// Kills: no timer; a timer that is not set again; a wait counted from the arrival at the gate
/// instead of `since`.
#[actix::test]
async fn whoever_waits_too_long_is_shed_in_order_and_not_before() {
    let wait = Duration::from_millis(60);
    let mut fixture = Fixture::new(Some(1), wait);
    let begun = Instant::now();
    let _holder = fixture.ask(1);
    let (_, permit) = fixture.admitted().await;
    let _waiters = [2, 3].map(|number| fixture.ask(number));
    for number in [2, 3] {
        let told = fixture.told.recv().await;
        assert!(matches!(told, Some((who, Told::Shed)) if who == number));
        assert!(begun.elapsed() >= wait);
    }
    // A later one has a timer too.
    let _later = fixture.ask(4);
    assert!(matches!(fixture.told.recv().await, Some((4, Told::Shed))));
    drop(permit);
    let _next = fixture.ask(5);
    assert_eq!(fixture.admitted().await.0, 5);
}

/// Kills: a permit given to a waiter whose time is over, where it comes back before the timer.
#[actix::test]
async fn whose_time_is_over_gets_no_permit() {
    let mut fixture = Fixture::new(Some(1), Duration::ZERO);
    let _holder = fixture.ask(1);
    let (_, permit) = fixture.admitted().await;
    let _waiter = fixture.ask(2);
    drop(permit);
    assert!(matches!(fixture.told.recv().await, Some((2, Told::Shed))));
}

/// Kills: a limit that is not passed on; a lowered one that admits before the debt is repaid; work
/// in flight cancelled; a missing flag that keeps the old limit.
#[actix::test]
async fn a_lowered_limit_admits_nothing_until_the_debt_is_repaid() {
    let mut fixture = Fixture::new(Some(3), LONG);
    let _here: Vec<_> = (1..=4).map(|number| fixture.ask(number)).collect();
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(fixture.admitted().await.1);
    }
    fixture.set_limit(Some(1));
    permits.pop();
    assert!(fixture.decided().await.is_none(), "admitted at 2 of 1");
    permits.pop();
    assert!(fixture.decided().await.is_none(), "admitted at 1 of 1");
    permits.pop();
    let (who, permit) = fixture.admitted().await;
    assert_eq!(who, 4);
    let _here: Vec<_> = (5..=8).map(|number| fixture.ask(number)).collect();
    assert!(fixture.decided().await.is_none(), "admitted at 1 of 1");
    fixture.set_limit(None);
    let (five, six) = (fixture.admitted().await, fixture.admitted().await);
    assert_eq!((five.0, six.0), (5, 6));
    assert!(fixture.decided().await.is_none(), "admitted at 3 of 3");
    drop((permit, five, six));
}

/// Kills: a gate without a ceiling that limits.
#[actix::test]
async fn without_a_ceiling_and_a_limit_everybody_passes() {
    let mut fixture = Fixture::new(None, LONG);
    let _here: Vec<_> = (0..100).map(|number| fixture.ask(number)).collect();
    let mut permits = Vec::new();
    for number in 0..100 {
        let (who, permit) = fixture.admitted().await;
        assert_eq!(who, number);
        permits.push(permit);
    }
}

/// Passes a permit on; who got it.
async fn pass_on(fixture: &mut Fixture, mut permit: Permit) -> Option<(u32, Permit)> {
    // The tray is filled after all that came before.
    assert!(fixture.decided().await.is_none(), "somebody got a permit");
    match permit.next() {
        Some(waiter) => waiter.admitted(permit),
        None => return None,
    }
    Some(fixture.admitted().await)
}

/// Kills: another order on the tray; a second permit for who has one; a unit lost or won where a
/// permit is passed on, told of late, or comes back.
#[actix::test]
async fn a_permit_that_is_passed_on_goes_to_whoever_waits_longest_and_stays_one() {
    let mut fixture = Fixture::new(Some(1), LONG);
    let waiters = u32::try_from(TRAY).expect("a number") + 3;
    let _here: Vec<_> = (0..=waiters).map(|number| fixture.ask(number)).collect();
    let (_, mut permit) = fixture.admitted().await;
    let mut passes = 0;
    for number in 1..=waiters {
        let (who, next) = match pass_on(&mut fixture, permit).await {
            Some(passed) => {
                passes += 1;
                passed
            }
            // Often enough: it went back, and comes from there.
            None => fixture.admitted().await,
        };
        assert_eq!(who, number);
        permit = next;
    }
    assert_eq!(
        passes,
        waiters - 1,
        "a permit comes back after {PASSES} passes"
    );
    drop(permit);
    let _here = [100, 101].map(|number| fixture.ask(number));
    let (who, permit) = fixture.admitted().await;
    assert_eq!(who, 100);
    assert!(fixture.decided().await.is_none(), "two at once");
    drop(permit);
    assert_eq!(fixture.admitted().await.0, 101);
}

/// Kills: a lowered limit that leaves waiters on the tray; one that is filled again in debt; a
/// raised one that forgets who lay there.
#[actix::test]
async fn nobody_passes_a_permit_on_in_debt() {
    let mut fixture = Fixture::new(Some(2), LONG);
    let _here: Vec<_> = (1..=5).map(|number| fixture.ask(number)).collect();
    let (_, first) = fixture.admitted().await;
    let (_, second) = fixture.admitted().await;
    fixture.set_limit(Some(1));
    assert!(pass_on(&mut fixture, first).await.is_none());
    assert!(fixture.decided().await.is_none(), "admitted at 1 of 1");
    let (who, second) = pass_on(&mut fixture, second).await.expect("a waiter");
    assert_eq!(who, 3);
    fixture.set_limit(Some(2));
    let (who, fourth) = fixture.admitted().await;
    assert_eq!(who, 4);
    drop((second, fourth));
    assert_eq!(fixture.admitted().await.0, 5);
}

/// Kills: a permit passed to who is gone or too late; a late one that is never told.
#[actix::test]
async fn who_is_gone_or_late_is_turned_down_from_the_tray() {
    let mut fixture = Fixture::new(Some(1), LONG);
    let _first = fixture.ask(1);
    let (_, permit) = fixture.admitted().await;
    let gone = fixture.ask(2);
    let _third = fixture.ask(3);
    assert!(fixture.decided().await.is_none());
    gone.store(false, Ordering::SeqCst);
    assert!(pass_on(&mut fixture, permit).await.is_none());
    assert_eq!(fixture.admitted().await.0, 3);

    // The tray has it, its time is over, and the timer's turn has not come: this thread is here.
    let wait = Duration::from_millis(5);
    let mut fixture = Fixture::new(Some(1), wait);
    let _first = fixture.ask(1);
    let (_, mut permit) = fixture.admitted().await;
    let _late = fixture.ask(2);
    assert!(fixture.decided().await.is_none());
    std::thread::sleep(2 * wait);
    assert!(permit.next().is_none());
    assert!(matches!(fixture.told.recv().await, Some((2, Told::Shed))));
    drop(permit);
    let _next = fixture.ask(3);
    assert_eq!(fixture.admitted().await.0, 3);
}
