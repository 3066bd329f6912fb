//! Keys as people pass them around (NIP-19): bech32 with a prefix that says what they are.

use bech32::{Bech32, Hrp};

use crate::Pubkey;

/// A text that is no key of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither of the two forms.
    #[error("neither 64 hexadecimal digits nor an {0}1… key")]
    Form(&'static str),
    /// Bech32 that was mistyped or cut.
    #[error("not an {0}1… key: {1}")]
    Bech32(&'static str, String),
    /// A key of another kind.
    #[error("this is an {found}1… key where an {expected}1… key belongs")]
    Kind {
        /// Its prefix.
        found: &'static str,
        /// The one that belongs there.
        expected: &'static str,
    },
}

/// Reads a public key: `npub1…`, or 64 hexadecimal digits of either case.
///
/// # Errors
/// When it is neither; also for a secret key (`nsec1…`), which is never repeated in the text.
pub fn parse_pubkey(text: &str) -> Result<Pubkey, KeyError> {
    parse(text, "npub", "nsec").map(Pubkey)
}

/// Reads the 32 bytes of a secret key: `nsec1…`, or 64 hexadecimal digits of either case.
///
/// # Errors
/// When it is neither; the text is not repeated.
pub fn parse_secret_key(text: &str) -> Result<[u8; 32], KeyError> {
    parse(text, "nsec", "npub")
}

fn parse(text: &str, expected: &'static str, other: &'static str) -> Result<[u8; 32], KeyError> {
    let text = text.trim();
    if let Ok(Pubkey(bytes)) = Pubkey::from_hex(text.to_ascii_lowercase()) {
        return Ok(bytes);
    }
    let has_prefix = |prefix: &str| {
        let start = text.get(..prefix.len() + 1);
        start.is_some_and(|start| start.eq_ignore_ascii_case(&format!("{prefix}1")))
    };
    if has_prefix(other) {
        let found = other;
        return Err(KeyError::Kind { found, expected });
    }
    if !has_prefix(expected) {
        return Err(KeyError::Form(expected));
    }
    let (_, bytes) =
        bech32::decode(text).map_err(|error| KeyError::Bech32(expected, error.to_string()))?;
    let length = bytes.len();
    let wrong = |_| KeyError::Bech32(expected, format!("{length} bytes instead of 32"));
    bytes.try_into().map_err(wrong)
}

/// A public key as `npub1…`.
pub fn npub(key: &Pubkey) -> String {
    encode("npub", &key.0)
}

/// A secret key's 32 bytes as `nsec1…`.
pub fn nsec(key: &[u8; 32]) -> String {
    encode("nsec", key)
}

fn encode(prefix: &str, bytes: &[u8; 32]) -> String {
    // Neither can fail: a valid prefix, and 32 bytes are far from the longest text.
    let hrp = Hrp::parse_unchecked(prefix);
    bech32::encode::<Bech32>(hrp, bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of NIP-19.
    const HEX: &str = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";
    const NPUB: &str = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";
    const SECRET_HEX: &str = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
    const NSEC: &str = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";

    /// Kills: a prefix that is not checked; digits of upper case refused; npub and nsec swapped.
    #[test]
    fn keys_come_in_both_forms_and_go_out_as_bech32() {
        let key = parse_pubkey(HEX).expect("hex");
        assert_eq!(parse_pubkey(&HEX.to_uppercase()), Ok(key));
        assert_eq!(parse_pubkey(NPUB), Ok(key));
        assert_eq!(
            parse_pubkey(&format!(" {}\n", NPUB.to_uppercase())),
            Ok(key)
        );
        assert_eq!(npub(&key), NPUB);
        let secret = parse_secret_key(NSEC).expect("an nsec");
        assert_eq!(Pubkey(secret).to_hex(), SECRET_HEX);
        assert_eq!(nsec(&secret), NSEC);
    }

    /// Kills: a checksum that is not checked; a secret key taken for a public one, or shown.
    #[test]
    fn what_is_no_key_says_why() {
        let mistyped = NPUB.replace("elf", "ely");
        for (text, why) in [
            ("alice", "neither 64 hexadecimal digits nor an npub1… key"),
            (&HEX[1..], "neither 64 hexadecimal digits nor an npub1… key"),
            (&mistyped, "not an npub1… key: "),
            (NSEC, "this is an nsec1… key where an npub1… key belongs"),
        ] {
            let error = parse_pubkey(text).expect_err(text).to_string();
            assert!(error.starts_with(why), "{error}");
            assert!(!error.contains(NSEC));
        }
        let short = bech32::encode::<Bech32>(Hrp::parse_unchecked("npub"), &[1; 31]).expect("text");
        let error = parse_pubkey(&short).expect_err("31 bytes").to_string();
        assert_eq!(error, "not an npub1… key: 31 bytes instead of 32");
    }
}
