//! What a gate's actor costs from another thread: `cargo bench -p buzz-actors`.

use std::{
    num::NonZeroU64,
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use actix::{Actor, Addr, Arbiter, System};
use buzz_actors::{
    gate::{Acquire, Gate, Permit, Waiter},
    metrics::Metrics,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Work that takes no time: its permit goes back from the thread that measures.
struct Work(Sender<Permit>);

impl Waiter for Work {
    fn wanted(&self) -> bool {
        true
    }
    fn admitted(self: Box<Self>, permit: Permit) {
        let _ = self.0.send(permit);
    }
    fn shed(self: Box<Self>) {}
}

/// Work that takes no time, and whose last tells so.
struct Passing(Sender<()>, bool);

impl Waiter for Passing {
    fn wanted(&self) -> bool {
        true
    }
    fn admitted(self: Box<Self>, _: Permit) {
        if self.1 {
            let _ = self.0.send(());
        }
    }
    fn shed(self: Box<Self>) {}
}

fn acquire(gate: &Addr<Gate>, sender: &Sender<Permit>) {
    gate.do_send(Acquire {
        waiter: Box::new(Work(sender.clone())),
        since: Instant::now(),
    });
}

fn start(ceiling: u64) -> Addr<Gate> {
    let metrics = Metrics::register().history_gate;
    let arbiter = Arbiter::new();
    Gate::start_in_arbiter(&arbiter.handle(), move |_| {
        Gate::new(
            "bench",
            NonZeroU64::new(ceiling),
            Duration::from_secs(60),
            metrics,
        )
    })
}

fn gate(c: &mut Criterion) {
    let runner = System::new();
    let (sender, receiver): (Sender<Permit>, Receiver<Permit>) = channel();

    // Each pair waits for the one before it: two threads wake each other.
    let gate = start(1);
    c.bench_function("acquire and release, one after the other", |b| {
        b.iter(|| {
            acquire(&gate, &sender);
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
                acquire(&gate, &sender);
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
            acquire(&gate, &sender);
            let held = receiver.recv().expect("a permit");
            for number in 1..=WAITERS {
                gate.do_send(Acquire {
                    waiter: Box::new(Passing(done.clone(), number == WAITERS)),
                    since: Instant::now(),
                });
            }
            drop(held);
            all_done.recv().expect("the last waiter");
        });
    });
    group.finish();
    drop(runner);
}

criterion_group!(benches, gate);
criterion_main!(benches);
