//! Events: written, read back, hashed and laid out as a naive reading of NIP-01 would.

use buzz_protocol::{Event, VerifiedEvent, event::VerifyError, event::json_layout};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::inputs::{REAL_EVENTS, event};

/// The id as a straightforward client computes it.
fn naive_id(event: &Value) -> Vec<u8> {
    let form = json!([
        0,
        event["pubkey"],
        event["created_at"],
        event["kind"],
        event["tags"],
        event["content"]
    ]);
    Sha256::digest(form.to_string()).to_vec()
}

proptest! {
    #[test]
    fn the_id_is_the_hash_of_the_naive_canonical_form(event in event()) {
        let value: Value = serde_json::from_str(&event.to_json()).expect("JSON");
        prop_assert_eq!(naive_id(&value), event.id.0.to_vec());
    }

    #[test]
    fn to_json_is_what_serde_writes_and_parses_back(event in event()) {
        let json = event.to_json();
        prop_assert_eq!(&json, &serde_json::to_string(&event).expect("JSON"));
        let parsed: Event = serde_json::from_str(&json).expect("an event");
        prop_assert_eq!(parsed, event);
    }

    #[test]
    fn fields_in_any_order_with_foreign_ones_and_escapes_are_the_same_event(event in event()) {
        let mut value = serde_json::to_value(&event).expect("JSON");
        value["extra"] = json!({"nested": [1, "\u{1}"]});
        // serde_json sorts the fields; every character is escaped as its UTF-16 units.
        let escaped: String = event
            .content
            .encode_utf16()
            .map(|unit| format!("\\u{unit:04x}"))
            .collect();
        value["content"] = json!("CONTENT");
        let text = value.to_string().replacen("\"CONTENT\"", &format!("\"{escaped}\""), 1);
        let parsed: Event = serde_json::from_str(&text).expect("an event");
        prop_assert_eq!(parsed, event);
    }

    #[test]
    fn a_signed_event_verifies_until_anything_changes(
        event in event(),
        bit in 0usize..256,
        which in 0u8..7,
    ) {
        prop_assert_eq!(event.verify(), Ok(()));
        let mut forged = event.clone();
        match which {
            0 => forged.id.0[bit / 8] ^= 1 << (bit % 8),
            1 => forged.pubkey.0[bit / 8] ^= 1 << (bit % 8),
            2 => forged.created_at ^= 1 << (bit % 64),
            3 => forged.kind ^= 1 << (bit % 16),
            4 => forged.tags.push(buzz_protocol::Tag::new(["t"])),
            5 => forged.content.push('\u{1}'),
            _ => forged.sig.0[bit / 4] ^= 1 << (bit % 8),
        }
        let expected = if which == 6 { VerifyError::Signature } else { VerifyError::Id };
        prop_assert_eq!(VerifiedEvent::verify(forged), Err(expected));
    }

    #[test]
    fn the_layout_finds_the_fields_that_to_json_wrote(event in event(), cut in any::<usize>()) {
        let json = event.to_json();
        prop_assert_eq!(json_layout::id(json.as_bytes()), Some(event.id));
        prop_assert_eq!(json_layout::pubkey(json.as_bytes()), Some(event.pubkey));
        prop_assert_eq!(
            json_layout::created_at_and_kind(json.as_bytes()),
            Some((event.created_at, event.kind))
        );
        // A text that was cut off gives a wrong answer or none, but never a panic.
        let cut = &json.as_bytes()[..cut % (json.len() + 1)];
        let _ = (json_layout::id(cut), json_layout::pubkey(cut));
        let _ = json_layout::created_at_and_kind(cut);
    }
}

#[test]
fn real_events_verify_and_keep_every_byte() {
    let mut lines = 0;
    for line in REAL_EVENTS.lines() {
        let event: Event = serde_json::from_str(line).expect(line);
        assert_eq!(event.verify(), Ok(()), "{line}");
        let naive: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(naive_id(&naive), event.id.0, "{line}");
        let written: Value = serde_json::from_str(&event.to_json()).expect("JSON");
        assert_eq!(written, naive);
        lines += 1;
    }
    assert_eq!(lines, 215);
}
