//! The session in thousands of random worlds: actors that answer late, refuse, lose a question or
//! die; clients that flood, stop reading, vanish or reset. Invariants are checked at every step,
//! and against a naive model in the end.
//!
//! A failing seed is printed; `BUZZ_SIM_SEED=n cargo test -p buzz-actors session_simulation --
//! --nocapture` replays it with all inputs, outputs and frames. `BUZZ_SIM_SEEDS=n` runs another
//! number of seeds.

mod actors;
mod client;
mod fanout;
mod kit;
mod naive;
mod world;

use self::world::World;
use super::{Input, MAX_UNSENT_BYTES, Session};

const STEPS: usize = 150;

fn run(seed: u64, trace: bool) -> u64 {
    let mut world = World::new(seed, trace);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    world.digest
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn session_simulation_of_thousands_of_seeds() {
    if let Some(seed) = number("BUZZ_SIM_SEED") {
        run(seed, true);
        return;
    }
    let seeds = number("BUZZ_SIM_SEEDS").unwrap_or(10_000);
    let threads = 2;
    let run_some = |first: u64| {
        for seed in (first..seeds).step_by(threads) {
            let result = std::panic::catch_unwind(|| run(seed, false));
            assert!(
                result.is_ok(),
                "seed {seed} fails: replay it with BUZZ_SIM_SEED={seed}"
            );
        }
    };
    std::thread::scope(|scope| {
        (0..threads as u64).for_each(|first| {
            scope.spawn(move || run_some(first));
        });
    });
}

#[test]
fn session_simulation_replays_exactly() {
    for seed in [1, 2, 3] {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}

/// Kills: a socket that is read whatever waits to be sent.
#[test]
fn a_socket_is_not_read_while_much_waits_to_be_sent() {
    let mut world = World::new(4, false);
    let session = world.session(0);
    assert!(session.may_read());
    session.outgoing.push_text(&"x".repeat(MAX_UNSENT_BYTES));
    assert!(!session.may_read());
    session.take_outgoing();
    assert!(session.may_read());
}

/// Kills: no pings; a silent client that is never cut, or after one ping; pings that a message does
/// not put off.
#[test]
fn a_silent_client_is_pinged_and_cut_after_two_unanswered_pings() {
    let mut world = World::new(4, false);
    let now = world.now();
    let session = world.session(0);
    session.take_outgoing();
    let tick = |session: &mut Session| {
        session.handle(Input::PingTick, now);
        session.take_outgoing().map(|bytes| bytes.to_vec())
    };
    let ping = Some(vec![0x89, 0]);
    assert_eq!([tick(session), tick(session)], [None, ping.clone()]);
    session.handle(Input::Pong, now);
    for _ in 0..2 {
        assert_eq!([tick(session), tick(session)], [None, ping.clone()]);
    }
    assert_eq!(tick(session), None);
    assert!(!session.is_closed());
    assert_eq!(tick(session), None);
    assert_eq!(session.ending(), ("ok", "ping_timeout"));
}
