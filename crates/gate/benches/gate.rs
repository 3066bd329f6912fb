//! What a gate costs: `cargo bench -p buzz-gate`. A grant must not depend on how many wait.

use std::hint::black_box;
use std::num::NonZeroU64;

use buzz_gate::{Acquired, Gate, Permit};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

/// A gate lowered to 1 with its permit out and `waiting` tickets in the queue, from 1.
fn crowded(waiting: u64) -> (Gate<u64, u64>, Permit) {
    let mut gate = Gate::new(None);
    assert!(gate.set_limit(Some(1)).is_empty());
    let Acquired::Granted(permit) = gate.acquire(0, 0) else {
        unreachable!("an empty gate has room");
    };
    for ticket in 1..=waiting {
        assert!(matches!(gate.acquire(ticket, ticket), Acquired::Waiting));
    }
    (gate, permit)
}

fn uncontended(c: &mut Criterion) {
    let mut gate = Gate::new(Some(NonZeroU64::MIN));
    c.bench_function("acquire and release, uncontended", |b| {
        b.iter(|| match gate.acquire(black_box(1_u64), black_box(1_u64)) {
            Acquired::Granted(permit) => gate.release(permit),
            Acquired::Waiting => unreachable!("nothing is in flight"),
        });
    });
}

/// One comes, one is granted, so that the queue keeps its length.
fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("wait and be granted, waiting");
    for waiting in [10, 10_000, 100_000] {
        let (mut gate, permit) = crowded(waiting);
        let (mut permit, mut ticket) = (Some(permit), waiting);
        group.bench_function(BenchmarkId::from_parameter(waiting), |b| {
            b.iter(|| {
                ticket += 1;
                assert!(matches!(gate.acquire(ticket, ticket), Acquired::Waiting));
                let (granted, next) = permit.take().and_then(|p| gate.release(p)).unzip();
                permit = next;
                granted
            });
        });
    }
    group.finish();
}

fn opened(c: &mut Criterion) {
    c.bench_function("open a gate to 10,000 waiting", |b| {
        let setup = || crowded(10_000).0;
        b.iter_batched_ref(setup, |gate| gate.set_limit(None), BatchSize::LargeInput);
    });
}

fn given_up(c: &mut Criterion) {
    c.bench_function("10,000 waiting give up, the middle first", |b| {
        let setup = || crowded(10_000).0;
        let leave = |gate: &mut Gate<u64, u64>| {
            (1..=10_000)
                .filter(|n| gate.give_up((n + 5_000) % 10_000 + 1))
                .count()
        };
        b.iter_batched_ref(setup, leave, BatchSize::LargeInput);
    });
}

criterion_group!(benches, uncontended, contended, opened, given_up);
criterion_main!(benches);
