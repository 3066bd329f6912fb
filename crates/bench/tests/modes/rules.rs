//! What the small relay does wrong, so that the load tool can be seen to notice.

use buzz_testkit::small_relay::{Reaction, Rules};

/// Refuses every second event.
pub(crate) fn refuses_half() -> Rules {
    Rules {
        events: Box::new(|n| match n.is_multiple_of(2) {
            true => Reaction::Refuse("blocked: every second one"),
            false => Reaction::Take,
        }),
        ..Rules::default()
    }
}

/// Answers no event.
pub(crate) fn silent() -> Rules {
    Rules {
        events: Box::new(|_| Reaction::Ignore),
        ..Rules::default()
    }
}

/// Takes eight events, then ends each socket at its next one.
pub(crate) fn cuts() -> Rules {
    Rules {
        events: Box::new(|n| match n {
            ..=8 => Reaction::Take,
            _ => Reaction::Cut,
        }),
        ..Rules::default()
    }
}

/// Sends events of the same time in the wrong order.
pub(crate) fn ties_reversed() -> Rules {
    Rules {
        ties_reversed: true,
        ..Rules::default()
    }
}

/// Delivers each event live but every tenth.
pub(crate) fn loses_tenth() -> Rules {
    Rules {
        events: Box::new(|n| match n.is_multiple_of(10) {
            true => Reaction::TakeUndelivered,
            false => Reaction::Take,
        }),
        ..Rules::default()
    }
}

/// Closes every subscription.
pub(crate) fn refuses_reqs() -> Rules {
    Rules {
        reqs: Box::new(|_| Reaction::Refuse("rate-limited: no; retry in 1s")),
        ..Rules::default()
    }
}

/// Sheds two of three logins by ending the socket.
pub(crate) fn sheds_logins() -> Rules {
    Rules {
        logins: Box::new(|n| match n.is_multiple_of(3) {
            true => Reaction::Take,
            false => Reaction::Cut,
        }),
        ..Rules::default()
    }
}

/// Refuses every login for good.
pub(crate) fn refuses_logins() -> Rules {
    Rules {
        logins: Box::new(|_| Reaction::Refuse("restricted: not a member")),
        ..Rules::default()
    }
}

/// Takes 50 frames in any five seconds.
pub(crate) fn quota() -> Rules {
    Rules {
        quota: Some(50),
        ..Rules::default()
    }
}
