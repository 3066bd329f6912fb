//! An event's canonical forms: what its id hashes, and the JSON that is stored and sent (NIP-01).

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::{Event, Tag};
use crate::hex::{EventId, Pubkey, push_hex};

impl Event {
    /// The event as compact JSON, in the field order of NIP-01.
    ///
    /// The layout is fixed (see [`json_layout`]), so that stored text can be read without parsing.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(400 + self.content.len() + 80 * self.tags.len());
        out.push_str("{\"id\":\"");
        push_hex(&mut out, &self.id.0);
        out.push_str("\",\"pubkey\":\"");
        push_hex(&mut out, &self.pubkey.0);
        out.push_str("\",\"created_at\":");
        push_number(&mut out, self.created_at);
        out.push_str(",\"kind\":");
        push_number(&mut out, self.kind.into());
        out.push_str(",\"tags\":");
        push_tags(&mut out, &self.tags, Escapes::AllControls);
        out.push_str(",\"content\":");
        push_json_string(&mut out, &self.content, Escapes::AllControls);
        out.push_str(",\"sig\":\"");
        push_hex(&mut out, &self.sig.0);
        out.push_str("\"}");
        out
    }
}

/// Which control characters a canonical form writes as `\u00XX`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// All below U+0020 that have no short form: what JSON demands and libraries do.
    AllControls,
    /// None of them: the letter of NIP-01.
    Nip01,
}

pub(super) fn event_id(
    pubkey: &Pubkey,
    created_at: u64,
    kind: u16,
    tags: &[Tag],
    content: &str,
    escapes: Escapes,
) -> EventId {
    let mut text = String::with_capacity(120 + content.len() + 80 * tags.len());
    text.push_str("[0,\"");
    push_hex(&mut text, &pubkey.0);
    text.push_str("\",");
    push_number(&mut text, created_at);
    text.push(',');
    push_number(&mut text, kind.into());
    text.push(',');
    push_tags(&mut text, tags, escapes);
    text.push(',');
    push_json_string(&mut text, content, escapes);
    text.push(']');
    EventId(Sha256::digest(text.as_bytes()).into())
}

fn push_number(out: &mut String, number: u64) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{number}");
}

fn push_tags(out: &mut String, tags: &[Tag], escapes: Escapes) {
    out.push('[');
    for (i, tag) in tags.iter().enumerate() {
        out.push_str(if i == 0 { "[" } else { ",[" });
        for (j, part) in tag.0.iter().enumerate() {
            if j > 0 {
                out.push(',');
            }
            push_json_string(out, part, escapes);
        }
        out.push(']');
    }
    out.push(']');
}

fn push_json_string(out: &mut String, text: &str, escapes: Escapes) {
    out.push('"');
    let mut clean_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..0x20 if escapes == Escapes::AllControls => "",
            _ => continue,
        };
        out.push_str(&text[clean_from..at]);
        clean_from = at + 1;
        if short.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(short);
        }
    }
    out.push_str(&text[clean_from..]);
    out.push('"');
}

/// Appends `text` as a JSON string, quotes included.
pub fn push_quoted(out: &mut String, text: &str) {
    push_json_string(out, text, Escapes::AllControls);
}

/// Where the fields of [`Event::to_json`] stand, for readers of stored text.
pub mod json_layout {
    use std::ops::Range;

    use crate::hex::{EventId, Pubkey};

    const ID: Range<usize> = 7..71;
    const PUBKEY: Range<usize> = 83..147;
    const CREATED_AT: usize = 162;

    /// The id's 64 hex digits.
    pub fn id_hex(json: &[u8]) -> Option<&[u8]> {
        json.get(ID)
    }

    /// The author's 64 hex digits.
    pub fn pubkey_hex(json: &[u8]) -> Option<&[u8]> {
        json.get(PUBKEY)
    }

    /// The id.
    pub fn id(json: &[u8]) -> Option<EventId> {
        EventId::from_hex(id_hex(json)?).ok()
    }

    /// The author.
    pub fn pubkey(json: &[u8]) -> Option<Pubkey> {
        Pubkey::from_hex(pubkey_hex(json)?).ok()
    }

    /// The time and the kind.
    pub fn created_at_and_kind(json: &[u8]) -> Option<(u64, u16)> {
        let (created_at, rest) = leading_number(json.get(CREATED_AT..)?)?;
        let (kind, _) = leading_number(rest.strip_prefix(b",\"kind\":")?)?;
        Some((created_at, kind.try_into().ok()?))
    }

    fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
        let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
        let number = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
        Some((number, &text[digits..]))
    }
}
