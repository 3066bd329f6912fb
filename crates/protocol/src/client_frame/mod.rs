//! What a client sends (NIP-01, NIP-42, NIP-45), parsed. A frame that can't be used says which
//! event or subscription it is about, wherever that can be read, so that the answer can name it.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

use crate::{Event, EventId, Filter, filter::UNKNOWN_ELEMENT, relay_frame};

/// A frame from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFrame {
    /// `["EVENT", event]`: publish.
    Event(Box<Event>),
    /// `["REQ", sub, filter…]`: stored events, then live ones.
    Req {
        /// The subscription id.
        sub: String,
        /// At least one filter; an event that matches any of them is sent.
        filters: Vec<Filter>,
    },
    /// `["COUNT", query, filter…]`: how many stored events match (NIP-45).
    Count {
        /// The query id.
        query: String,
        /// At least one filter; events are counted once.
        filters: Vec<Filter>,
    },
    /// `["CLOSE", sub]`: end a subscription.
    Close {
        /// The subscription id.
        sub: String,
    },
    /// `["AUTH", event]`: log in (NIP-42).
    Auth(Box<Event>),
}

/// What a bad frame was about, as far as it could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// An EVENT or AUTH frame with a readable event id.
    Event(EventId),
    /// A REQ or COUNT frame with a readable id.
    Sub(String),
    /// Neither.
    Unknown,
}

/// A frame that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadFrame {
    /// What it was about.
    pub about: About,
    /// EVENT, REQ, COUNT, CLOSE or AUTH, where that could be read.
    pub verb: Option<&'static str>,
    /// Why, with its machine-readable prefix (`invalid: …` or `unsupported: …`).
    pub reason: String,
}

impl BadFrame {
    /// The relay's answer: OK, CLOSED or NOTICE, whichever names the frame.
    pub fn answer(&self) -> String {
        match &self.about {
            About::Event(id) => relay_frame::ok(id, false, &self.reason),
            About::Sub(sub) => relay_frame::closed(sub, &self.reason),
            About::Unknown => relay_frame::notice(&self.reason),
        }
    }
}

impl ClientFrame {
    /// Parses one text frame.
    ///
    /// # Errors
    /// Says what is wrong and where, and what the frame was about if that can be read.
    pub fn parse(text: &str) -> Result<Self, BadFrame> {
        serde_json::from_str(text).map_err(|error| bad_frame(text, &error.to_string()))
    }
}

/// Characters of a reason: errors repeat what they found, and that may be a whole frame.
const MAX_REASON: usize = 200;

/// The reason to give for JSON that could not be read as what it should be: the parser's error,
/// shortened, behind its machine-readable prefix.
pub fn reason(error: &str) -> String {
    // The filter's own errors carry their prefix somewhere behind the field they stand in.
    let mut reason = match error.find(UNKNOWN_ELEMENT) {
        Some(at) => error[at..].to_owned(),
        None => format!("invalid: {error}"),
    };
    if let Some((end, _)) = reason.char_indices().nth(MAX_REASON) {
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

fn bad_frame(text: &str, error: &str) -> BadFrame {
    let (verb, about) = readable_subject(text);
    BadFrame {
        about,
        verb,
        reason: reason(error),
    }
}

/// Finds the id in a frame that does not parse: the second string of REQ and COUNT, or the first
/// `"id":"…"` behind EVENT and AUTH (inside a JSON string the quotes would be escaped).
fn readable_subject(text: &str) -> (Option<&'static str>, About) {
    let after_verb = text.trim_start().strip_prefix('[').and_then(leading_string);
    let Some((verb, rest)) = after_verb else {
        return (None, About::Unknown);
    };
    let known = ["EVENT", "REQ", "COUNT", "CLOSE", "AUTH"];
    let verb = known.into_iter().find(|known| *known == verb);
    let about = rest
        .trim_start()
        .strip_prefix(',')
        .and_then(|rest| match verb? {
            "EVENT" | "AUTH" => event_id(rest).map(About::Event),
            "REQ" | "COUNT" => leading_string(rest).map(|(sub, _)| About::Sub(sub)),
            _ => None,
        });
    (verb, about.unwrap_or(About::Unknown))
}

fn event_id(text: &str) -> Option<EventId> {
    let rest = &text[text.find("\"id\"")? + 4..];
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    EventId::from_hex(rest.strip_prefix('"')?.as_bytes().get(..64)?).ok()
}

fn leading_string(text: &str) -> Option<(String, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = values.next()?.ok()?;
    Some((value, &text[values.byte_offset()..]))
}

impl<'de> Deserialize<'de> for ClientFrame {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FrameVisitor)
    }
}

struct FrameVisitor;

impl<'de> de::Visitor<'de> for FrameVisitor {
    type Value = ClientFrame;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array that starts with EVENT, REQ, COUNT, CLOSE or AUTH")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<ClientFrame, A::Error> {
        let verb: Verb = required(&mut seq, "a verb")?;
        let frame = match verb {
            Verb::Event => ClientFrame::Event(required(&mut seq, "an event")?),
            Verb::Auth => ClientFrame::Auth(required(&mut seq, "an event")?),
            Verb::Close => ClientFrame::Close {
                sub: required(&mut seq, "a subscription id")?,
            },
            Verb::Req => {
                let sub = required(&mut seq, "a subscription id")?;
                return Ok(ClientFrame::Req {
                    sub,
                    filters: filters(seq)?,
                });
            }
            Verb::Count => {
                let query = required(&mut seq, "a query id")?;
                return Ok(ClientFrame::Count {
                    query,
                    filters: filters(seq)?,
                });
            }
        };
        match seq.next_element::<de::IgnoredAny>()? {
            None => Ok(frame),
            Some(_) => Err(de::Error::custom("the frame has too many elements")),
        }
    }
}

fn required<'de, A: de::SeqAccess<'de>, T: Deserialize<'de>>(
    seq: &mut A,
    what: &str,
) -> Result<T, A::Error> {
    seq.next_element()?
        .ok_or_else(|| de::Error::custom(format_args!("the frame ends where {what} should stand")))
}

fn filters<'de, A: de::SeqAccess<'de>>(mut seq: A) -> Result<Vec<Filter>, A::Error> {
    let mut filters = vec![required(&mut seq, "a filter")?];
    while let Some(filter) = seq.next_element()? {
        filters.push(filter);
    }
    Ok(filters)
}

enum Verb {
    Event,
    Req,
    Count,
    Close,
    Auth,
}

impl<'de> Deserialize<'de> for Verb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VerbVisitor;
        impl de::Visitor<'_> for VerbVisitor {
            type Value = Verb;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("EVENT, REQ, COUNT, CLOSE or AUTH")
            }
            fn visit_str<E: de::Error>(self, verb: &str) -> Result<Verb, E> {
                Ok(match verb {
                    "EVENT" => Verb::Event,
                    "REQ" => Verb::Req,
                    "COUNT" => Verb::Count,
                    "CLOSE" => Verb::Close,
                    "AUTH" => Verb::Auth,
                    _ => return Err(E::invalid_value(de::Unexpected::Str(short(verb)), &self)),
                })
            }
        }
        deserializer.deserialize_str(VerbVisitor)
    }
}

/// The start of a text that came from a client, short enough for an answer.
fn short(text: &str) -> &str {
    let end = text.char_indices().nth(32).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests;
