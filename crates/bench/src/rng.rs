//! A small random number generator whose numbers never change: the data set is derived from it,
//! so a relay loaded today must be found by queries made with a later build.

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Rng(u64);

impl Rng {
    /// The numbers of one item: the same seed, stream and index always give the same ones.
    pub(crate) fn new(seed: u64, stream: u64, index: u64) -> Self {
        let mut rng = Self(seed);
        let stream = Self(rng.next() ^ stream).next();
        Self(Self(stream ^ index).next())
    }

    /// Any 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; `end` is above zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// One of `items`, which are not empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut rng = Rng(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below_and_reaches_every_number() {
        let mut rng = Rng::new(1, 2, 3);
        let mut seen = [0; 7];
        (0..700).for_each(|_| seen[rng.below(7) as usize] += 1);
        assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
    }
}
