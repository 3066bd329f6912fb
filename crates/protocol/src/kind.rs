//! Which kinds are kept, replaced, addressed or passed on only (NIP-01, "Kinds").

/// What a relay does with events of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Every event is stored.
    Regular,
    /// Only the newest of an author and kind is stored.
    Replaceable,
    /// Never stored: delivered to the subscriptions that are open now.
    Ephemeral,
    /// Only the newest of an author, kind and `d` tag is stored.
    Addressable,
}

/// A request to delete (NIP-09).
pub const DELETION: u16 = 5;
/// A repost, whose content may embed the event (NIP-18).
pub const REPOST: u16 = 6;
/// A repost of any other kind (NIP-18).
pub const GENERIC_REPOST: u16 = 16;
/// A login to a relay (NIP-42).
pub const CLIENT_AUTH: u16 = 22242;
/// The authorization of one HTTP request (NIP-98).
pub const HTTP_AUTH: u16 = 27235;

/// The class that NIP-01 gives to `kind`.
pub fn class(kind: u16) -> Class {
    match kind {
        0 | 3 | 10_000..=19_999 => Class::Replaceable,
        20_000..=29_999 => Class::Ephemeral,
        30_000..=39_999 => Class::Addressable,
        _ => Class::Regular,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_of_nip_01_hold_at_their_ends() {
        use Class::*;
        for (kind, expected) in [
            (0, Replaceable),
            (1, Regular),
            (3, Replaceable),
            (5, Regular),
            (9_999, Regular),
            (10_000, Replaceable),
            (19_999, Replaceable),
            (20_000, Ephemeral),
            (29_999, Ephemeral),
            (30_000, Addressable),
            (39_999, Addressable),
            (40_000, Regular),
            (65_535, Regular),
        ] {
            assert_eq!(class(kind), expected, "kind {kind}");
        }
    }
}
