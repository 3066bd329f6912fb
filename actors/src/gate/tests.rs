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
/// A test fails that waits longer.
const PATIENCE: Duration = Duration::from_secs(30);

enum Told {
    Admitted(GatePermit<Client>),
    Shed,
}

struct Client {
    number: u32,
    here: Arc<AtomicBool>,
    tell: UnboundedSender<(u32, Told)>,
}

impl Work for Client {
    fn is_wanted(&self) -> bool {
        self.here.load(Ordering::SeqCst)
    }
    fn shed(self) {
        let _ = self.tell.send((self.number, Told::Shed));
    }
}

fn start(client: Client, permit: GatePermit<Client>) {
    let told = (client.number, Told::Admitted(permit));
    let _ = client.tell.send(told);
}

struct Fixture {
    gate: Addr<Gate<Client>>,
    tell: UnboundedSender<(u32, Told)>,
    told: UnboundedReceiver<(u32, Told)>,
}

impl Fixture {
    fn new(ceiling: Option<u64>, wait: Duration) -> Self {
        let metrics = GateMetrics::register("test");
        let ceiling = ceiling.and_then(NonZeroU64::new);
        let gate = Gate::new("test", ceiling, wait, metrics, start).start();
        let (tell, told) = unbounded_channel();
        Self { gate, tell, told }
    }

    /// A client asks; the flag says whether it is still there.
    fn ask(&self, number: u32) -> Arc<AtomicBool> {
        let here = Arc::new(AtomicBool::new(true));
        let work = Client {
            number,
            here: Arc::clone(&here),
            tell: self.tell.clone(),
        };
        let since = Instant::now();
        self.gate.do_send(Acquire { work, since });
        here
    }

    fn set_limit(&self, flag: Option<i64>) {
        let source = "test";
        self.gate.do_send(SetLimit { flag, source });
    }

    /// What the gate decides next.
    async fn told(&mut self) -> Option<(u32, Told)> {
        let told = tokio::time::timeout(PATIENCE, self.told.recv()).await;
        told.expect("nobody is told anything")
    }

    async fn admitted(&mut self) -> (u32, GatePermit<Client>) {
        match self.told().await {
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

impl Handler<HowManyWait> for Gate<Client> {
    type Result = usize;
    fn handle(&mut self, _: HowManyWait, _: &mut Context<Self>) -> usize {
        self.state.waiting()
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
    let _second = fixture.ask(2);
    // Not due with the one before it.
    tokio::time::sleep(wait / 2).await;
    let _third = fixture.ask(3);
    for number in [2, 3] {
        let told = fixture.told().await;
        assert!(matches!(told, Some((who, Told::Shed)) if who == number));
        assert!(begun.elapsed() >= wait);
    }
    // A later one has a timer too.
    let _later = fixture.ask(4);
    assert!(matches!(fixture.told().await, Some((4, Told::Shed))));
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
    assert!(matches!(fixture.told().await, Some((2, Told::Shed))));
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

/// Hands a permit over; who got it.
async fn hand_over(
    fixture: &mut Fixture,
    mut permit: GatePermit<Client>,
) -> Option<(u32, GatePermit<Client>)> {
    // The hand-off is filled after all that came before.
    assert!(fixture.decided().await.is_none(), "somebody got a permit");
    let client = permit.next()?;
    Some((client.number, permit))
}

/// Kills: another order in the hand-off; a second permit for who has one; a unit lost or won where a
/// permit is handed over, told of late, or comes back.
#[actix::test]
async fn a_permit_that_is_handed_over_goes_to_whoever_waits_longest_and_stays_one() {
    let mut fixture = Fixture::new(Some(1), LONG);
    let waiters = u32::try_from(HANDOFF_CAPACITY).expect("a number") + 3;
    let _here: Vec<_> = (0..=waiters).map(|number| fixture.ask(number)).collect();
    let (_, mut permit) = fixture.admitted().await;
    let mut handoffs = 0;
    for number in 1..=waiters {
        let (who, next) = match hand_over(&mut fixture, permit).await {
            Some(next) => {
                handoffs += 1;
                next
            }
            // Often enough: it went back, and comes from there.
            None => fixture.admitted().await,
        };
        assert_eq!(who, number);
        permit = next;
    }
    assert_eq!(
        handoffs,
        waiters - 1,
        "a permit comes back after {MAX_HANDOFFS} hand-offs"
    );
    drop(permit);
    let _here = [100, 101].map(|number| fixture.ask(number));
    let (who, permit) = fixture.admitted().await;
    assert_eq!(who, 100);
    assert!(fixture.decided().await.is_none(), "two at once");
    drop(permit);
    assert_eq!(fixture.admitted().await.0, 101);
}

/// Kills: a lowered limit that leaves waiters in the hand-off; one that is filled again in debt; a
/// raised one that forgets who was there.
#[actix::test]
async fn nobody_hands_a_permit_over_in_debt() {
    let mut fixture = Fixture::new(Some(2), LONG);
    let _here: Vec<_> = (1..=5).map(|number| fixture.ask(number)).collect();
    let (_, first) = fixture.admitted().await;
    let (_, second) = fixture.admitted().await;
    fixture.set_limit(Some(1));
    assert!(hand_over(&mut fixture, first).await.is_none());
    assert!(fixture.decided().await.is_none(), "admitted at 1 of 1");
    let (who, second) = hand_over(&mut fixture, second).await.expect("a waiter");
    assert_eq!(who, 3);
    fixture.set_limit(Some(2));
    let (who, fourth) = fixture.admitted().await;
    assert_eq!(who, 4);
    drop((second, fourth));
    assert_eq!(fixture.admitted().await.0, 5);
}

/// Kills: a permit handed to who is gone or too late; a late one that is never told; a place in the
/// hand-off that is not free again.
#[actix::test]
async fn who_is_gone_or_late_is_turned_down_in_the_hand_off() {
    let mut fixture = Fixture::new(Some(1), LONG);
    let _first = fixture.ask(1);
    let (_, permit) = fixture.admitted().await;
    let gone = fixture.ask(2);
    let _third = fixture.ask(3);
    assert!(fixture.decided().await.is_none());
    gone.store(false, Ordering::SeqCst);
    assert!(hand_over(&mut fixture, permit).await.is_none());
    assert_eq!(fixture.admitted().await.0, 3);

    // The hand-off has it, its time is over, and the timer's turn has not come: this thread is here.
    let wait = Duration::from_millis(5);
    let mut fixture = Fixture::new(Some(1), wait);
    let _first = fixture.ask(1);
    let (_, mut permit) = fixture.admitted().await;
    let _late = fixture.ask(2);
    assert!(fixture.decided().await.is_none());
    std::thread::sleep(2 * wait);
    assert!(permit.next().is_none());
    assert!(matches!(fixture.told().await, Some((2, Told::Shed))));
    assert_eq!(fixture.waiting().await, 0, "its place is occupied");
    drop(permit);
    let _next = fixture.ask(3);
    assert_eq!(fixture.admitted().await.0, 3);
}

/// Work of a second gate that holds a permit of a first one.
enum Read {
    Page,
    Count { _share: GatePermit<Count> },
}

struct Count;

impl Work for Count {
    fn is_wanted(&self) -> bool {
        true
    }
    fn shed(self) {}
}

impl Work for Read {
    fn is_wanted(&self) -> bool {
        true
    }
    fn shed(self) {}
}

/// Kills: a permit inside work that is not given back where that work is shed.
#[actix::test]
async fn a_permit_of_one_gate_waits_at_another_and_comes_back_with_the_work() {
    let one = NonZeroU64::new(1);
    let metrics = || GateMetrics::register("test");
    let wait = Duration::from_millis(20);
    let (tell_read, mut reads) = unbounded_channel();
    let read_gate = Gate::new("reads", one, wait, metrics(), move |read, permit| {
        let _ = tell_read.send((read, permit));
    });
    let read_gate = read_gate.start();
    let (tell_count, mut counts) = unbounded_channel();
    let count_gate = Gate::new("counts", one, LONG, metrics(), move |Count, share| {
        let _ = tell_count.send(share);
    });
    let count_gate = count_gate.start();

    let since = Instant::now();
    let work = Read::Page;
    read_gate.do_send(Acquire { work, since });
    let (read, _reading) = reads.recv().await.expect("a permit");
    assert!(matches!(read, Read::Page));
    for _ in 0..2 {
        let work = Count;
        count_gate.do_send(Acquire { work, since });
    }
    let share = counts.recv().await.expect("a share");
    assert!(counts.try_recv().is_err(), "two at once");
    let work = Read::Count { _share: share };
    read_gate.do_send(Acquire { work, since });
    let next = tokio::time::timeout(PATIENCE, counts.recv()).await;
    assert!(matches!(next, Ok(Some(_))), "the share is not back");
}

/// Kills: a hand-off that the gate takes back from the end where holders take.
#[test]
fn holders_that_take_during_a_recall_get_the_longest_waiters() {
    const WAITERS: u32 = 5_000;
    let mut handoff = HandOffQueue::new();
    let (since, done) = (Instant::now(), AtomicBool::new(false));
    let hold = |stealer: Stealer<Waiting<u32>>| {
        let mut taken = Vec::new();
        while !done.load(Ordering::SeqCst) {
            match take(&stealer) {
                Some((acquire, _)) => taken.push(acquire.work),
                None => std::thread::yield_now(),
            }
        }
        taken
    };
    std::thread::scope(|scope| {
        let holders = [handoff.stealer(), handoff.stealer()].map(|stealer| {
            let hold = &hold;
            scope.spawn(move || hold(stealer))
        });
        // Who was not taken yet, as far as this thread knows: from `first` on.
        let (mut first, mut gaps) = (0, 0);
        while first < WAITERS {
            let next = (first + 8).min(WAITERS);
            for work in first..next {
                handoff.put(Acquire { work, since }, since);
            }
            std::thread::yield_now();
            let back: Vec<u32> = std::iter::from_fn(|| handoff.take_back())
                .map(|(acquire, _)| acquire.work)
                .collect();
            first = next - u32::try_from(back.len()).expect("a number");
            gaps += u32::from(!back.into_iter().rev().eq(first..next));
        }
        done.store(true, Ordering::SeqCst);
        let taken = holders.map(|holder| holder.join().expect("a holder"));
        assert_eq!(gaps, 0, "somebody was passed by");
        assert!(taken.iter().all(|taken| taken.is_sorted()), "out of order");
        let mut all = taken.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..WAITERS), "lost or taken twice");
    });
}
