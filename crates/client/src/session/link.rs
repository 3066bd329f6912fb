//! The socket's life: dial, back off, ping, and give up on a socket that has gone quiet.

use std::time::Duration;

use super::{Config, SocketId, backoff::Backoff, rng::Rng};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not connected; the next dial is due then.
    Waiting {
        until: Duration,
    },
    Dialing {
        deadline: Duration,
    },
    Open {
        since: Duration,
        ping: Ping,
    },
    /// Ended on purpose.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ping {
    Due(Duration),
    /// Without a sign of life by then, the socket is dead.
    Unanswered(Duration),
}

/// What the link wants done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkStep {
    Dial,
    Ping,
    /// The dial took too long, or a ping got no answer.
    GiveUp,
}

/// One socket at a time, named so that news of an earlier one is recognised as such.
#[derive(Debug)]
pub(crate) struct Link {
    state: State,
    socket: SocketId,
    /// Sockets lost since one was stable.
    failures: u32,
}

impl Link {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            state: State::Waiting { until: now },
            socket: SocketId(0),
            failures: 0,
        }
    }

    pub(crate) fn socket(&self) -> SocketId {
        self.socket
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Ended on purpose.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Until when nothing is dialled, where the link waits.
    pub(crate) fn waiting_until(&self) -> Option<Duration> {
        match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// True where `socket` is the current one, being dialled or open.
    pub(crate) fn is_current(&self, socket: SocketId) -> bool {
        socket == self.socket && matches!(self.state, State::Dialing { .. } | State::Open { .. })
    }

    pub(crate) fn opened(&mut self, now: Duration, config: &Config) {
        self.state = State::Open {
            since: now,
            ping: Ping::Due(now + config.ping_every),
        };
    }

    /// The socket is gone, or never came to be. Full jitter: any wait up to a ceiling that doubles
    /// with each loss, so that clients lost together do not return together.
    pub(crate) fn lost(&mut self, now: Duration, config: &Config, rng: &mut Rng) {
        if let State::Open { since, .. } = self.state
            && now.saturating_sub(since) >= config.stable_after
        {
            self.failures = 0;
        }
        let wait = rng.up_to(self.ceiling(config));
        self.failures += 1;
        self.state = State::Waiting { until: now + wait };
    }

    fn ceiling(&self, config: &Config) -> Duration {
        Backoff::ceiling(self.failures, config)
    }

    /// Forgets losses and dials at once: another relay.
    pub(crate) fn restart(&mut self, now: Duration) {
        self.failures = 0;
        self.state = State::Waiting { until: now };
    }

    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
    }

    /// Something came from the relay.
    pub(crate) fn alive(&mut self, now: Duration, config: &Config) {
        if let State::Open { ping, .. } = &mut self.state
            && matches!(ping, Ping::Unanswered(_))
        {
            *ping = Ping::Due(now + config.ping_every);
        }
    }

    /// What is due at `now`; after [`LinkStep::GiveUp`] the caller reports the loss.
    pub(crate) fn step(&mut self, now: Duration, config: &Config) -> Option<LinkStep> {
        match &mut self.state {
            State::Waiting { until } if *until <= now => {
                self.socket.0 += 1;
                self.state = State::Dialing {
                    deadline: now + config.connect_timeout,
                };
                Some(LinkStep::Dial)
            }
            State::Dialing { deadline } if *deadline <= now => Some(LinkStep::GiveUp),
            State::Open { ping, .. } => match *ping {
                Ping::Due(at) if at <= now => {
                    *ping = Ping::Unanswered(now + config.ping_timeout);
                    Some(LinkStep::Ping)
                }
                Ping::Unanswered(deadline) if deadline <= now => Some(LinkStep::GiveUp),
                _ => None,
            },
            _ => None,
        }
    }

    /// When [`Link::step`] has something to do next.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match self.state {
            State::Waiting { until: at }
            | State::Dialing { deadline: at }
            | State::Open {
                ping: Ping::Due(at) | Ping::Unanswered(at),
                ..
            } => Some(at),
            State::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Ceilings of the waits after sockets that lived so many seconds each.
    fn ceilings(lives: &[u64]) -> Vec<u64> {
        let config = Config::default();
        let (mut link, mut rng, mut now) = (Link::new(secs(0)), Rng::new(7), secs(0));
        lives
            .iter()
            .map(|life| {
                link.opened(now, &config);
                now += secs(*life);
                link.lost(now, &config, &mut rng);
                let wait = link.waiting_until().expect("waits") - now;
                link.failures -= 1;
                let ceiling = link.ceiling(&config);
                link.failures += 1;
                assert!(wait <= ceiling);
                ceiling.as_secs()
            })
            .collect()
    }

    #[test]
    fn backoff_grows_while_a_relay_accepts_and_drops_after_a_second() {
        assert_eq!(ceilings(&[1; 9]), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn backoff_returns_to_its_base_after_sixty_stable_seconds() {
        assert_eq!(ceilings(&[1, 1, 1, 59, 60, 1]), [1, 2, 4, 8, 1, 2]);
    }

    #[test]
    fn jitter_is_full() {
        let config = Config::default();
        let mut rng = Rng::new(3);
        let waits: Vec<_> = (0..1000)
            .map(|_| {
                let mut link = Link::new(secs(0));
                link.lost(secs(0), &config, &mut rng);
                link.waiting_until().expect("waits").as_millis()
            })
            .collect();
        assert!(waits.iter().any(|w| *w < 50) && waits.iter().any(|w| *w > 950));
        let mean = waits.iter().sum::<u128>() / 1000;
        assert!((450..550).contains(&mean), "{mean}");
    }

    #[test]
    fn a_ping_without_an_answer_gives_the_socket_up_and_any_frame_is_an_answer() {
        let config = Config::default();
        let mut link = Link::new(secs(0));
        assert_eq!(link.step(secs(0), &config), Some(LinkStep::Dial));
        link.opened(secs(0), &config);
        assert_eq!(link.step(secs(29), &config), None);
        assert_eq!(link.step(secs(30), &config), Some(LinkStep::Ping));
        link.alive(secs(31), &config);
        assert_eq!(link.wake_at(), Some(secs(61)));
        assert_eq!(link.step(secs(61), &config), Some(LinkStep::Ping));
        assert_eq!(link.step(secs(70), &config), None);
        assert_eq!(link.step(secs(71), &config), Some(LinkStep::GiveUp));
    }

    #[test]
    fn a_dial_that_hangs_is_given_up() {
        let config = Config::default();
        let mut link = Link::new(secs(0));
        link.step(secs(0), &config);
        assert_eq!(link.step(secs(10), &config), Some(LinkStep::GiveUp));
    }
}
