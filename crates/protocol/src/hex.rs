//! Fixed-size values that travel as lower-case hex (NIP-01: "32-bytes lowercase hex-encoded").

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text that is not exactly the expected number of lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} lower-case hex digits")]
pub struct HexError {
    /// How many digits the value has.
    pub expected: usize,
}

fn decode<const N: usize>(text: &[u8]) -> Result<[u8; N], HexError> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || text.iter().any(u8::is_ascii_uppercase) {
        return Err(HexError { expected: 2 * N });
    }
    faster_hex::hex_decode(text, &mut bytes).map_err(|_| HexError { expected: 2 * N })?;
    Ok(bytes)
}

/// Appends `bytes` to `out` as lower-case hex.
pub fn push_hex(out: &mut String, bytes: &[u8]) {
    let mut digits = [0; 128];
    for chunk in bytes.chunks(64) {
        // Cannot fail: `digits` holds two for each of 64 bytes.
        if let Ok(hex) = faster_hex::hex_encode(chunk, &mut digits) {
            out.push_str(hex);
        }
    }
}

macro_rules! hex_value {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// Reads the lower-case hex form.
            ///
            /// # Errors
            /// When `text` is not exactly twice as many lower-case hex digits as there are bytes.
            pub fn from_hex(text: impl AsRef<[u8]>) -> Result<Self, HexError> {
                decode(text.as_ref()).map(Self)
            }

            /// The lower-case hex form.
            pub fn to_hex(&self) -> String {
                let mut out = String::with_capacity(2 * $len);
                push_hex(&mut out, &self.0);
                out
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl std::str::FromStr for $name {
            type Err = HexError;
            fn from_str(text: &str) -> Result<Self, HexError> {
                Self::from_hex(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct HexVisitor;
                impl de::Visitor<'_> for HexVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a string of {} lower-case hex digits", 2 * $len)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::from_hex(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(HexVisitor)
            }
        }
    };
}

hex_value! {
    /// An event id: the SHA-256 of the event's canonical form.
    EventId, 32
}
hex_value! {
    /// A public key: the x coordinate alone (BIP-340).
    Pubkey, 32
}
hex_value! {
    /// A Schnorr signature (BIP-340).
    Sig, 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_hex_is_read_back_as_written() {
        let text = "00ff10".repeat(10) + "abcd";
        assert_eq!(EventId::from_hex(&text).map(|id| id.to_hex()), Ok(text));
    }

    #[test]
    fn upper_case_short_long_and_foreign_digits_are_refused() {
        let good = "ab".repeat(32);
        for bad in [
            good.to_uppercase(),
            good[1..].into(),
            format!("{good}a"),
            good.replace('a', "g"),
        ] {
            assert_eq!(EventId::from_hex(bad), Err(HexError { expected: 64 }));
        }
    }
}
