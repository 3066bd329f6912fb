//! What a gate's actor costs from another thread: `cargo bench -p buzz-actors`.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use actix::{Actor, Addr, Handler, Message, SyncArbiter, SyncContext, System};
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
    /// A reader works for it, and goes on with the next under the same permit.
    Read,
}

/// One of the threads that work under permits.
struct Reader {
    /// How many jobs are left, over all readers.
    left: Arc<AtomicU64>,
    done: Sender<()>,
}

const READERS: usize = 2;
/// How long a reader works for one job.
const READ: Duration = Duration::from_micros(10);

#[derive(Message)]
#[rtype(result = "()")]
struct Do(GatePermit<Job>);

impl Actor for Reader {
    type Context = SyncContext<Self>;
}

impl Handler<Do> for Reader {
    type Result = ();
    fn handle(&mut self, Do(mut permit): Do, _: &mut Self::Context) {
        loop {
            let begun = Instant::now();
            while begun.elapsed() < READ {
                std::hint::spin_loop();
            }
            if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                let _ = self.done.send(());
            }
            if permit.next().is_none() {
                return;
            }
        }
    }
}

impl Work for Job {
    fn is_wanted(&self) -> bool {
        true
    }
    fn shed(self) {}
}

fn acquire(gate: &Addr<Gate<Job>>, work: Job) {
    let since = Instant::now();
    gate.do_send(Acquire { work, since });
}

/// A gate on the system's thread, and the readers that it gives their jobs.
fn start(ceiling: u64, reader: impl Fn() -> Reader + Send + Sync + 'static) -> Addr<Gate<Job>> {
    let metrics = Metrics::register().history_gate;
    Gate::start_in_arbiter(System::current().arbiter(), move |_| {
        let (limit, wait) = (NonZeroU64::new(ceiling), Duration::from_secs(60));
        let readers = SyncArbiter::start(READERS, reader);
        Gate::new(
            "bench",
            limit,
            wait,
            metrics,
            move |job, permit| match job {
                Job::Held(sender) => drop(sender.send(permit)),
                Job::Passing => {}
                Job::Last(sender) => drop(sender.send(())),
                Job::Read => readers.do_send(Do(permit)),
            },
        )
    })
}

fn gate(c: &mut Criterion) {
    let (running, system) = channel();
    std::thread::spawn(move || {
        let system = System::new();
        let _ = running.send(System::current());
        system.run()
    });
    System::set_current(system.recv().expect("a system"));
    let (sender, receiver): (Sender<GatePermit<Job>>, Receiver<GatePermit<Job>>) = channel();
    let (done, all_done) = channel();
    let left = Arc::new(AtomicU64::new(0));
    let reader = {
        let (left, done) = (Arc::clone(&left), done.clone());
        move || Reader {
            left: Arc::clone(&left),
            done: done.clone(),
        }
    };

    // Each pair waits for the one before it: two threads wake each other.
    let gate = start(1, reader.clone());
    c.bench_function("acquire and release, one after the other", |b| {
        b.iter(|| {
            acquire(&gate, Job::Held(sender.clone()));
            receiver.recv().expect("a permit")
        });
    });

    // As connections do it: nobody waits for an answer before the next is sent.
    const PAIRS: u64 = 1_000;
    let gate = start(PAIRS, reader.clone());
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
    let gate = start(1, reader.clone());
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

    // As in a relay whose readers are all busy.
    let gate = start(READERS as u64, reader);
    let mut group = c.benchmark_group("two readers, 10 µs a job");
    group.sample_size(20);
    group.throughput(Throughput::Elements(WAITERS));
    group.bench_function("10,000 waiting", |b| {
        b.iter(|| {
            left.store(WAITERS, Ordering::Relaxed);
            for _ in 0..WAITERS {
                acquire(&gate, Job::Read);
            }
            all_done.recv().expect("the last job");
        });
    });
    group.finish();
    System::current().stop();
}

criterion_group!(benches, gate);
criterion_main!(benches);
