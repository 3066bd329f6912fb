//! What is counted and how much of it is admitted. Plain data; NIP-11 and the enforcement read the
//! same values.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
};

use buzz_protocol::{
    Pubkey, Refusal,
    kind::{Class, class},
};

use crate::ports::Role;

/// So many in any window of time, wherever the window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// How many; 0: no limit.
    pub limit: u32,
    /// The window, in milliseconds.
    pub window_ms: u32,
}

impl Quota {
    /// No limit.
    pub const OFF: Self = Self {
        limit: 0,
        window_ms: 60_000,
    };

    /// So many a minute.
    pub fn per_minute(limit: u32) -> Self {
        Self { limit, ..Self::OFF }
    }

    /// Whether everything is admitted.
    pub fn is_off(self) -> bool {
        self.limit == 0
    }
}

/// The quotas of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// EVENT, REQ and COUNT frames.
    pub frames: Quota,
    /// EVENTs that are stored.
    pub messages: Quota,
    /// REST calls.
    pub api_calls: Quota,
}

impl Rates {
    /// No limits.
    pub const OFF: Self = Self {
        frames: Quota::OFF,
        messages: Quota::OFF,
        api_calls: Quota::OFF,
    };

    /// The quotas that `spend` is counted against.
    pub(super) fn of(&self, cost: Cost) -> impl Iterator<Item = (usize, Quota)> {
        let all = [self.frames, self.messages, self.api_calls];
        let counted = cost.counted();
        counted.iter().map(move |&counter| (counter, all[counter]))
    }
}

/// The quotas of both classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Of people, and of every sender that is not known to be an agent.
    pub human: Rates,
    /// Of members with the role of an agent.
    pub agent: Rates,
}

impl Quotas {
    /// No limits.
    pub const OFF: Self = Self {
        human: Rates::OFF,
        agent: Rates::OFF,
    };

    /// Whether frames of this class are counted at all.
    pub fn count_frames(&self, class: QuotaClass) -> bool {
        let rates = self.of(class);
        !rates.frames.is_off() || !rates.messages.is_off()
    }

    /// Those of one class.
    pub fn of(&self, class: QuotaClass) -> &Rates {
        match class {
            QuotaClass::Human => &self.human,
            QuotaClass::Agent => &self.agent,
        }
    }

    /// The longest window of all: who was silent for so long has a full budget.
    pub(super) fn longest_window_ms(&self) -> u32 {
        let rates = [&self.human, &self.agent];
        let windows = rates.map(|rates| {
            let quotas = [rates.frames, rates.messages, rates.api_calls];
            quotas.map(|quota| quota.window_ms).into_iter().max()
        });
        windows.into_iter().flatten().max().unwrap_or_default()
    }
}

/// Which quotas apply to a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaClass {
    /// A person, or an unknown sender.
    Human,
    /// A member with the role of an agent.
    Agent,
}

impl From<Option<Role>> for QuotaClass {
    fn from(role: Option<Role>) -> Self {
        match role {
            Some(Role::Agent) => Self::Agent,
            _ => Self::Human,
        }
    }
}

/// A sender that has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A key that has logged in, over all its sockets and calls.
    Key(Pubkey),
    /// An address without a login. Made by [`Principal::address`].
    Address(IpAddr),
}

impl Principal {
    /// An IPv4 address, or the /64 of an IPv6 address: a household gets that many at once.
    pub fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            v4 => v4,
        })
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key:{key}"),
            Self::Address(address) => write!(f, "ip:{address}"),
        }
    }
}

/// What one frame or call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// A REQ, a COUNT, an ephemeral EVENT, or a frame that can't be read.
    Frame,
    /// An EVENT that is stored: a frame and a message.
    StoredEvent,
    /// A REST call.
    ApiCall,
    /// An event that is stored and came over REST, where the call is spent already.
    Message,
}

impl Cost {
    /// An EVENT of this kind.
    pub fn event(kind: u16) -> Self {
        match class(kind) {
            Class::Ephemeral => Self::Frame,
            _ => Self::StoredEvent,
        }
    }

    /// The counters it adds to: 0 frames, 1 messages, 2 API calls.
    pub fn counted(self) -> &'static [usize] {
        match self {
            Self::Frame => &[0],
            Self::StoredEvent => &[0, 1],
            Self::ApiCall => &[2],
            Self::Message => &[1],
        }
    }
}

/// The answer to one [`Cost`]. What is refused costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is counted, and may go on.
    Admitted,
    /// The quota is used up.
    Exceeded {
        /// Whole seconds until it admits again.
        retry_in_secs: NonZeroU32,
    },
    /// The counter shared by several relays can't be asked.
    Unavailable,
}

impl Verdict {
    /// As what the client is told.
    ///
    /// # Errors
    /// The refusal, where it is one.
    pub fn check(self) -> Result<(), Refusal> {
        match self {
            Self::Admitted => Ok(()),
            Self::Exceeded { retry_in_secs } => Err(Refusal::Quota { retry_in_secs }),
            Self::Unavailable => Err(Refusal::SharedAdmissionUnavailable),
        }
    }
}
