//! The number a gate enforces, apart from its enforcement.

use std::num::NonZeroU64;

/// The most a gate in front of `readers` connections may admit: a fifth of them, rounded down and
/// at least one, stays free for work that passes no gate. At least 1, even for `readers` = 0.
#[must_use]
pub fn reader_ceiling(readers: u64) -> NonZeroU64 {
    let free = (readers / 5).max(1);
    NonZeroU64::new(readers.saturating_sub(free)).unwrap_or(NonZeroU64::MIN)
}

/// The limit that a flag's value stands for; `None` is no limit.
///
/// A flag can only tighten, so every value that names no limit (zero, negative, missing) gives
/// the ceiling, and so does every value above it.
pub(crate) fn limit_for(flag: Option<i64>, ceiling: Option<NonZeroU64>) -> Option<NonZeroU64> {
    let wanted = flag
        .and_then(|value| u64::try_from(value).ok())
        .and_then(NonZeroU64::new);
    match (wanted, ceiling) {
        (Some(wanted), Some(ceiling)) => Some(wanted.min(ceiling)),
        (wanted, ceiling) => wanted.or(ceiling),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(flag: Option<i64>, ceiling: u64) -> u64 {
        limit_for(flag, NonZeroU64::new(ceiling)).map_or(0, NonZeroU64::get)
    }

    /// Kills: a quarter instead of a fifth; a fifth rounded up (9 readers would lose 2).
    #[test]
    fn a_fifth_of_the_readers_stays_free() {
        let ceilings = [5, 9, 10, 14, 15, 100].map(|readers| reader_ceiling(readers).get());
        assert_eq!(ceilings, [4, 8, 8, 12, 12, 80]);
    }

    /// Kills: no reader kept free below five; none that can be taken.
    #[test]
    fn one_reader_stays_free_and_one_can_always_be_taken() {
        let ceilings = [0, 1, 2, 4].map(|readers| reader_ceiling(readers).get());
        assert_eq!(ceilings, [1, 1, 1, 3]);
    }

    /// Kills: the ceiling whatever the flag says.
    #[test]
    fn a_positive_flag_under_the_ceiling_is_the_limit() {
        assert_eq!([1, 7, 8].map(|flag| limit(Some(flag), 8)), [1, 7, 8]);
    }

    /// Kills: `wanted` without `min(ceiling)`.
    #[test]
    fn a_flag_never_passes_the_ceiling() {
        assert_eq!([9, i64::MAX].map(|flag| limit(Some(flag), 8)), [8, 8]);
    }

    /// Kills: zero or a negative number taken as 1, or by its size; a missing flag as no limit.
    #[test]
    fn a_flag_that_names_no_limit_gives_the_ceiling() {
        let flags = [None, Some(0), Some(-1), Some(i64::MIN)];
        assert_eq!(flags.map(|flag| limit(flag, 8)), [8; 4]);
    }

    /// Kills: a missing ceiling taken as 1, or as a reason to ignore the flag.
    #[test]
    fn without_a_ceiling_only_a_positive_flag_limits() {
        let flags = [None, Some(0), Some(-1)];
        assert_eq!(flags.map(|flag| limit_for(flag, None)), [None; 3]);
        assert_eq!(limit(Some(i64::MAX), 0), i64::MAX as u64);
    }
}
