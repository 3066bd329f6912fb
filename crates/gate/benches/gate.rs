//! What a gate costs: `cargo bench -p buzz-gate`. A grant must not depend on how many wait.

use std::collections::VecDeque;
use std::hint::black_box;
use std::num::NonZeroU64;

use buzz_gate::{GateState, Grant};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

type Gate = GateState<u64, u64, VecDeque<(u64, u64)>>;

fn gate(ceiling: Option<NonZeroU64>) -> Gate {
    GateState::new(ceiling, VecDeque::new(), 8)
}

/// A gate lowered to 1 with its grant out and `waiting` in the queue, from 1.
fn crowded(waiting: u64) -> (Gate, Grant) {
    let mut gate = gate(None);
    assert!(gate.set_limit(Some(1)).is_empty());
    let Some((_, grant)) = gate.acquire(0, 0) else {
        unreachable!("an empty gate has room");
    };
    for waiter in 1..=waiting {
        assert!(gate.acquire(waiter, waiter).is_none());
    }
    (gate, grant)
}

fn uncontended(c: &mut Criterion) {
    let mut gate = gate(Some(NonZeroU64::MIN));
    c.bench_function("acquire and release, uncontended", |b| {
        b.iter(|| match gate.acquire(black_box(1), black_box(1)) {
            Some((_, grant)) => gate.release(grant),
            None => unreachable!("nothing is in flight"),
        });
    });
}

/// One comes, one is granted, so that the queue keeps its length.
fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("wait and be granted, waiting");
    for waiting in [10, 10_000, 100_000] {
        let (mut gate, grant) = crowded(waiting);
        let (mut grant, mut waiter) = (Some(grant), waiting);
        group.bench_function(BenchmarkId::from_parameter(waiting), |b| {
            b.iter(|| {
                waiter += 1;
                assert!(gate.acquire(waiter, waiter).is_none());
                let (granted, next) = grant.take().and_then(|g| gate.release(g)).unzip();
                grant = next;
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

fn expired(c: &mut Criterion) {
    c.bench_function("10,000 waiting are shed one by one", |b| {
        let setup = || crowded(10_000).0;
        let shed = |gate: &mut Gate| {
            (1..=10_000)
                .map(|now| gate.expire(now).len())
                .sum::<usize>()
        };
        b.iter_batched_ref(setup, shed, BatchSize::LargeInput);
    });
}

criterion_group!(benches, uncontended, contended, opened, expired);
criterion_main!(benches);
