//! The provider `static`: every flag has its declared default, for good.

use buzz_actors::flags::{FlagError, FlagSource, IntegerFlag};

/// See the module.
pub(super) struct FixedFlags;

impl FlagSource for FixedFlags {
    fn provider(&self) -> &'static str {
        "static"
    }

    fn integer(&mut self, flag: &IntegerFlag) -> Result<Option<i64>, FlagError> {
        Ok(Some(flag.default))
    }

    fn ready(&self) -> bool {
        true
    }
}
