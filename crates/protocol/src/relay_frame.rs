//! What a relay sends (NIP-01, NIP-42, NIP-45), written. Clients read the same frames with
//! [`RelayFrame::parse`].

use serde_json::Value;

use crate::{Event, EventId, event::push_quoted};

fn frame(verb: &str, parts: &[&str]) -> String {
    let mut out =
        String::with_capacity(16 + parts.iter().map(|part| part.len() + 8).sum::<usize>());
    out.push('[');
    push_quoted(&mut out, verb);
    for part in parts {
        out.push(',');
        out.push_str(part);
    }
    out.push(']');
    out
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_quoted(&mut out, text);
    out
}

/// `["OK", id, accepted, message]`: the answer to EVENT and AUTH.
pub fn ok(id: &EventId, accepted: bool, message: &str) -> String {
    let accepted = if accepted { "true" } else { "false" };
    frame("OK", &[&quoted(&id.to_hex()), accepted, &quoted(message)])
}

/// `["EOSE", sub]`: what is stored has been sent.
pub fn eose(sub: &str) -> String {
    frame("EOSE", &[&quoted(sub)])
}

/// `["CLOSED", sub, message]`: the relay ended or refused a subscription or count.
pub fn closed(sub: &str, message: &str) -> String {
    frame("CLOSED", &[&quoted(sub), &quoted(message)])
}

/// `["NOTICE", message]`: for people to read.
pub fn notice(message: &str) -> String {
    frame("NOTICE", &[&quoted(message)])
}

/// `["AUTH", challenge]`: what a login must sign.
pub fn auth_challenge(challenge: &str) -> String {
    frame("AUTH", &[&quoted(challenge)])
}

/// `["COUNT", query, {"count": n}]`.
pub fn count(query: &str, count: u64) -> String {
    frame(
        "COUNT",
        &[&quoted(query), &format!("{{\"count\":{count}}}")],
    )
}

/// What stands before the event's JSON in `["EVENT", sub, event]`; `]` follows it.
pub fn event_prefix(sub: &str) -> String {
    let mut out = String::with_capacity(sub.len() + 12);
    out.push_str("[\"EVENT\",");
    push_quoted(&mut out, sub);
    out.push(',');
    out
}

/// A frame from a relay, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum RelayFrame {
    /// `["EVENT", sub, event]`.
    Event {
        /// The subscription it was sent for.
        sub: String,
        /// The event, not yet verified.
        event: Box<Event>,
    },
    /// `["OK", id, accepted, message]`.
    Ok {
        /// The event that was answered.
        id: EventId,
        /// Whether the relay has it.
        accepted: bool,
        /// Why, or empty.
        message: String,
    },
    /// `["EOSE", sub]`.
    Eose {
        /// The subscription.
        sub: String,
    },
    /// `["CLOSED", sub, message]`.
    Closed {
        /// The subscription or count.
        sub: String,
        /// Why.
        message: String,
    },
    /// `["NOTICE", message]`.
    Notice {
        /// For people to read.
        message: String,
    },
    /// `["AUTH", challenge]`.
    Auth {
        /// What a login must sign.
        challenge: String,
    },
    /// `["COUNT", query, {"count": n}]`.
    Count {
        /// The query.
        query: String,
        /// How many events match.
        count: u64,
    },
}

/// A text that is no relay frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a relay frame: {0}")]
pub struct NotARelayFrame(String);

impl RelayFrame {
    /// Parses one text frame. Elements past those named in the NIPs are ignored.
    ///
    /// # Errors
    /// Says what is wrong where the text is none of the frames above.
    pub fn parse(text: &str) -> Result<Self, NotARelayFrame> {
        let wrong = |what: &str| NotARelayFrame(what.to_owned());
        let mut parts = serde_json::from_str::<Vec<Value>>(text)
            .map_err(|error| NotARelayFrame(error.to_string()))?
            .into_iter();
        let mut next = |what: &str| parts.next().ok_or_else(|| wrong(what));
        let string = |value: Value, what: &str| match value {
            Value::String(text) => Ok(text),
            _ => Err(wrong(what)),
        };
        let verb = string(next("no verb")?, "the verb is no string")?;
        let first = next("no second element")?;
        if verb == "NOTICE" {
            return Ok(Self::Notice {
                message: string(first, "the message is no string")?,
            });
        }
        let first = string(first, "the second element is no string")?;
        Ok(match verb.as_str() {
            "EVENT" => {
                let event = serde_json::from_value(next("no event")?);
                let event = event.map_err(|error| NotARelayFrame(error.to_string()))?;
                Self::Event { sub: first, event }
            }
            "OK" => Self::Ok {
                id: EventId::from_hex(&first).map_err(|_| wrong("the id is no event id"))?,
                accepted: next("no verdict")?
                    .as_bool()
                    .ok_or_else(|| wrong("no verdict"))?,
                message: next("")
                    .ok()
                    .and_then(|m| string(m, "").ok())
                    .unwrap_or_default(),
            },
            "EOSE" => Self::Eose { sub: first },
            "CLOSED" => Self::Closed {
                sub: first,
                message: next("")
                    .ok()
                    .and_then(|m| string(m, "").ok())
                    .unwrap_or_default(),
            },
            "AUTH" => Self::Auth { challenge: first },
            "COUNT" => {
                let count = next("no count")?;
                let count = count.get("count").and_then(Value::as_u64);
                Self::Count {
                    query: first,
                    count: count.ok_or_else(|| wrong("no count"))?,
                }
            }
            _ => return Err(wrong("unknown verb")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_frames_are_read_back() {
        let id = EventId([7; 32]);
        let sub = "a\"b\\\u{1}\u{1F355}".to_owned();
        let message = "invalid: no".to_owned();
        let cases = [
            (
                ok(&id, false, &message),
                RelayFrame::Ok {
                    id,
                    accepted: false,
                    message: message.clone(),
                },
            ),
            (eose(&sub), RelayFrame::Eose { sub: sub.clone() }),
            (
                closed(&sub, &message),
                RelayFrame::Closed {
                    sub: sub.clone(),
                    message: message.clone(),
                },
            ),
            (notice(&message), RelayFrame::Notice { message }),
            (
                auth_challenge("c"),
                RelayFrame::Auth {
                    challenge: "c".into(),
                },
            ),
            (
                count(&sub, 3),
                RelayFrame::Count {
                    query: sub,
                    count: 3,
                },
            ),
        ];
        for (text, frame) in cases {
            assert_eq!(RelayFrame::parse(&text), Ok(frame), "{text}");
        }
    }

    #[test]
    fn foreign_texts_are_refused() {
        for text in [
            "",
            "{}",
            "[]",
            "[1]",
            "[\"OK\",\"ab\",true,\"\"]",
            "[\"COUNT\",\"q\",{}]",
            "[\"HI\",\"x\"]",
        ] {
            assert!(RelayFrame::parse(text).is_err(), "{text}");
        }
    }
}
