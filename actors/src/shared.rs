//! What every socket and every REST call is told at the start, and the permits they share.

use std::time::Duration;

use buzz_protocol::{Limits, Refusal};

use crate::{
    admission::Quotas,
    metrics::Metrics,
    permits::{Permit, Permits},
};

/// Settings of sockets and calls, fixed for the life of the process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// NIP-11 limits.
    pub limits: Limits,
    /// The URL that logins must name.
    pub relay_url: String,
    /// Bytes of the largest message a client may send.
    pub max_frame_bytes: usize,
    /// Live frames that may wait for one slow client.
    pub send_queue: usize,
    /// Whether only clients that are logged in may publish and read.
    pub auth_required: bool,
    /// Whether only members may log in.
    pub members_only: bool,
    /// How long a socket may stay without a login where one is required.
    pub auth_timeout: Duration,
    /// How often a member that is logged in is looked up again, where only members may log in.
    pub auth_recheck: Duration,
    /// Whether the challenge for a login is sent when a client connects; else it is sent just
    /// before the first answer that asks for a login.
    pub challenge_on_connect: bool,
    /// A client that is silent for so long is pinged. Zero: no pings.
    pub ping: Duration,
}

/// Shared by all sockets and calls. Read only, but for the permits and the metrics.
pub struct Shared {
    /// See the type.
    pub settings: Settings,
    /// What is admitted, for deciding whether a frame is counted at all.
    pub quotas: Quotas,
    /// Metric handles.
    pub metrics: Metrics,
    /// Frames and calls in work over all connections.
    pub frames: Permits,
}

impl Shared {
    /// A permit for one more frame or call in work.
    ///
    /// # Errors
    /// `rate-limited: too many concurrent requests; …` where none is free.
    pub fn try_acquire(&self) -> Result<Permit, Refusal> {
        self.frames.try_acquire().ok_or(Refusal::TooManyRequests)
    }
}
