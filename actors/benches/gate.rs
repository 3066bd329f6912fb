//! What a gate's actor costs from another thread: `cargo bench -p buzz-actors`.

use std::{
    num::NonZeroU64,
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use actix::{Actor, Addr, Arbiter, System};
use buzz_actors::{
    gate::{Acquire, Gate, GatePermit, Work},
    metrics::Metrics,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Work that takes no time.
enum Job {
    /// Its permit goes back from the thread that measures.
    Held(Sender<GatePermit<Job>>),
    /// Its permit goes back at once.
    Passing,
    /// The same, and whoever waits for all of them is told.
    Last(Sender<()>),
}

impl Work for Job {
    fn is_wanted(&self) -> bool {
        true
    }
    fn shed(self) {}
}

fn run(job: Job, permit: GatePermit<Job>) {
    match job {
        Job::Held(sender) => drop(sender.send(permit)),
        Job::Passing => {}
        Job::Last(sender) => drop(sender.send(())),
    }
}

fn acquire(gate: &Addr<Gate<Job>>, work: Job) {
    let since = Instant::now();
    gate.do_send(Acquire { work, since });
}

fn start(ceiling: u64) -> Addr<Gate<Job>> {
    let metrics = Metrics::register().history_gate;
    let arbiter = Arbiter::new();
    Gate::start_in_arbiter(&arbiter.handle(), move |_| {
        let (ceiling, wait) = (NonZeroU64::new(ceiling), Duration::from_secs(60));
        Gate::new("bench", ceiling, wait, metrics, run)
    })
}

fn gate(c: &mut Criterion) {
    let runner = System::new();
    let (sender, receiver): (Sender<GatePermit<Job>>, Receiver<GatePermit<Job>>) = channel();

    // Each pair waits for the one before it: two threads wake each other.
    let gate = start(1);
    c.bench_function("acquire and release, one after the other", |b| {
        b.iter(|| {
            acquire(&gate, Job::Held(sender.clone()));
            receiver.recv().expect("a permit")
        });
    });

    // As connections do it: nobody waits for an answer before the next is sent.
    const PAIRS: u64 = 1_000;
    let gate = start(PAIRS);
    let mut group = c.benchmark_group("acquire and release");
    group.throughput(Throughput::Elements(PAIRS));
    group.bench_function("1,000 at once", |b| {
        b.iter(|| {
            for _ in 0..PAIRS {
                acquire(&gate, Job::Held(sender.clone()));
            }
            for _ in 0..PAIRS {
                drop(receiver.recv().expect("a permit"));
            }
        });
    });
    group.finish();

    // One permit, which the measuring thread holds while 10,000 come to wait; then it goes through
    // all of them, each handing it back at once.
    const WAITERS: u64 = 10_000;
    let gate = start(1);
    let (done, all_done) = channel();
    let mut group = c.benchmark_group("wait and be granted");
    group.throughput(Throughput::Elements(WAITERS));
    group.bench_function("10,000 waiting", |b| {
        b.iter(|| {
            acquire(&gate, Job::Held(sender.clone()));
            let held = receiver.recv().expect("a permit");
            for _ in 1..WAITERS {
                acquire(&gate, Job::Passing);
            }
            acquire(&gate, Job::Last(done.clone()));
            drop(held);
            all_done.recv().expect("the last waiter");
        });
    });
    group.finish();
    drop(runner);
}

criterion_group!(benches, gate);
criterion_main!(benches);
