//! Thousands of random histories: delay, lost sockets, refusals, a database that is away, half-open
//! sockets, slow consumers, failing and stalled writes. The world checks its invariants all along; in the end, when the
//! faults are over, every consumer must have every event.
//!
//! A failing seed is printed; `BUZZ_SIM_SEED=n cargo test -p buzz-client simulation -- --nocapture`
//! replays it with all inputs and outputs. `BUZZ_SIM_SEEDS=n` runs another number of seeds.

use std::collections::BTreeMap;

use buzz_protocol::Event;

use super::{
    super::*,
    kit::{UNIX, channel, event, ms, secs},
    world::World,
};

const CHANNELS: u64 = 12;

fn config() -> Config {
    Config {
        queue: 8,
        page: 20,
        observer_queue: 5,
        ..Config::default()
    }
}

struct Story {
    world: World,
    /// Calls so far.
    n: u64,
    /// Events so far of a channel and second: few differ between stories, so that few are signed.
    events: BTreeMap<(u64, u64), u64>,
    /// It went to another relay, which need not send what the old one had.
    switched: bool,
}

impl Story {
    fn begin(seed: u64, trace: bool) -> Self {
        let mut world = World::new(seed, config(), true);
        world.trace = trace;
        world.relay.page = 20;
        world.delay = ms(1 + world.rng.next_u64() % 400);
        world.relay.quota = Some(50);
        world.relay.auth_required = world.rng.next_u64().is_multiple_of(4);
        for c in 0..CHANNELS {
            let fast = world.rng.next_u64().is_multiple_of(2);
            world.subscribe(c, vec![channel(c)], fast);
        }
        Self {
            world,
            n: 0,
            events: BTreeMap::new(),
            switched: false,
        }
    }

    fn fresh_event(&mut self) -> Event {
        let r = self.world.rng.next_u64();
        // Authors' clocks: up to 3 s behind, and now and then ten minutes ahead.
        let second = self.world.at.as_secs();
        let at = UNIX + second + if r.is_multiple_of(23) { 600 } else { 0 } - (r >> 8) % 4;
        let busy = if r.is_multiple_of(3) { 1 } else { CHANNELS };
        let channel = (r >> 16) % busy;
        let nth = self.events.entry((channel, at)).or_default();
        *nth += 1;
        event(9, channel, *nth, at)
    }

    fn something_happens(&mut self) {
        let r = self.world.rng.next_u64();
        let (pick, x) = (r % 100, (r >> 16) as usize);
        let world = &mut self.world;
        match pick {
            0..45 => {
                let burst = if x.is_multiple_of(8) { 12 } else { 1 };
                for _ in 0..burst {
                    let event = self.fresh_event();
                    self.world.relay_takes(event);
                }
            }
            45..60 => {
                let event = self.fresh_event();
                self.n += 1;
                self.world.publish(self.n, event);
            }
            60..75 => world.read(SubId(x as u64 % CHANNELS), 1 + x % 20),
            75..78 => world.drop_socket(),
            78 => world.half_open = true,
            79..82 => {
                let text = [
                    "rate-limited: slow down",
                    "rate-limited: quota; retry in 3s",
                    "error: database unavailable",
                ];
                world.relay.refuse.push_back(text[x % 3].into());
            }
            82 => world.relay_closes(x % 3, "rate-limited: fell behind; retry in 1s"),
            83 => world.relay_closes(x % 3, "error: database unavailable"),
            84 => world.relay_notices("rate-limited: too many; retry in 2s"),
            85 => world.refuse_dials = x.is_multiple_of(3),
            86..88 => world.failing_writes = [0, 0, 5, 30][x % 4],
            88 => world.input(Input::Command(Command::Observe(Box::new(event(
                24200,
                0,
                x as u64 % 50,
                UNIX,
            ))))),
            89..91 => {
                self.n += 1;
                let n = self.n;
                world.call(n, |id| Command::Count(id, vec![channel(1)]));
            }
            91 => {
                self.n += 1;
                let n = self.n;
                world.call(n, Command::Authenticate);
            }
            92..94 => {
                let sub = SubId(x as u64 % CHANNELS);
                world.unsubscribe(sub);
                world.subscribe(sub.0, vec![channel(sub.0)], x.is_multiple_of(2));
            }
            94 if x.is_multiple_of(8) => {
                self.switched = true;
                world.switch();
            }
            95..97 => world.relay.database_away = x.is_multiple_of(3),
            97 => world.stalled = true,
            _ => {}
        }
    }

    fn end(&mut self) {
        let world = &mut self.world;
        world.refuse_dials = false;
        world.failing_writes = 0;
        world.relay.database_away = false;
        world.relay.refuse.clear();
        for _ in 0..120 {
            world.until(world.at + secs(4));
            for c in 0..CHANNELS {
                world.read(SubId(c), usize::MAX);
            }
        }
        assert!(world.calls.is_empty());
        for (sub, consumer) in &world.consumers {
            assert_eq!(consumer.closed, None, "{sub:?}");
            assert!(consumer.caught_up, "{sub:?} is not live");
            // More than a page at the start is the relay's to cut.
            if self.switched || consumer.had > world.relay.page {
                continue;
            }
            let matching = world.relay.events.iter();
            let matching = matching.filter(|e| consumer.filters.iter().any(|f| f.matches(e)));
            for event in matching.filter(|e| !world.relay.late.contains(&e.id)) {
                assert!(consumer.got.contains(&event.id), "{sub:?} lacks {event:?}");
            }
        }
    }

    fn run(seed: u64, trace: bool) -> u64 {
        let mut story = Self::begin(seed, trace);
        for _ in 0..100 {
            let pause = story.world.rng.up_to(ms(1200));
            story.world.until(story.world.at + pause);
            story.something_happens();
        }
        story.end();
        story.world.digest
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn simulation_of_thousands_of_seeds() {
    if let Some(seed) = number("BUZZ_SIM_SEED") {
        Story::run(seed, true);
        return;
    }
    let seeds = number("BUZZ_SIM_SEEDS").unwrap_or(2000);
    let threads = 2;
    let run = |first: u64| {
        for seed in (first..seeds).step_by(threads) {
            let story = std::panic::catch_unwind(|| Story::run(seed, false));
            assert!(
                story.is_ok(),
                "seed {seed} fails: replay it with BUZZ_SIM_SEED={seed}"
            );
        }
    };
    std::thread::scope(|scope| {
        (0..threads as u64).for_each(|first| {
            scope.spawn(move || run(first));
        });
    });
}

#[test]
fn simulation_replays_exactly() {
    for seed in [1, 2, 3] {
        assert_eq!(
            Story::run(seed, false),
            Story::run(seed, false),
            "seed {seed}"
        );
    }
}
