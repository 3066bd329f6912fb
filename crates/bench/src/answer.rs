//! What a relay sent, told apart by its first bytes: no JSON is parsed while a load runs.

/// One relay message. Texts are raw JSON until [`text`] reads them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// `["OK", id, accepted, message]`.
    Ok {
        /// The id's hex digits.
        id: &'a [u8],
        accepted: bool,
        /// The message, with its quotes.
        message: &'a [u8],
    },
    /// `["EVENT", sub, event]`.
    Event {
        sub: &'a [u8],
        /// The event's JSON object.
        event: &'a [u8],
    },
    /// `["EOSE", sub]`.
    Eose { sub: &'a [u8] },
    /// `["CLOSED", sub, message]`.
    Closed {
        sub: &'a [u8],
        /// The message, with its quotes.
        message: &'a [u8],
    },
    /// `["NOTICE", message]`.
    Notice {
        /// The message, with its quotes.
        message: &'a [u8],
    },
    /// Anything else, such as AUTH.
    Other,
}

/// Reads the start of a message. The strings it takes apart (verbs, ids and this tool's own
/// subscription ids) hold no escapes.
pub(crate) fn parse(message: &[u8]) -> Answer<'_> {
    split(message).unwrap_or(Answer::Other)
}

fn split(message: &[u8]) -> Option<Answer<'_>> {
    let rest = message.trim_ascii_start().strip_prefix(b"[")?;
    let (verb, rest) = string(rest)?;
    let rest = after_comma(rest)?;
    if verb == b"NOTICE" {
        return Some(Answer::Notice {
            message: unclosed(rest)?,
        });
    }
    let (first, rest) = string(rest)?;
    Some(match verb {
        b"EOSE" => Answer::Eose { sub: first },
        b"EVENT" => Answer::Event {
            sub: first,
            event: unclosed(after_comma(rest)?)?,
        },
        b"CLOSED" => Answer::Closed {
            sub: first,
            message: after_comma(rest).and_then(unclosed).unwrap_or(b"\"\""),
        },
        b"OK" => {
            let rest = after_comma(rest)?;
            let accepted = rest.starts_with(b"true");
            let rest = rest.strip_prefix(if accepted {
                b"true".as_slice()
            } else {
                b"false"
            })?;
            Answer::Ok {
                id: first,
                accepted,
                message: after_comma(rest).and_then(unclosed).unwrap_or(b"\"\""),
            }
        }
        _ => Answer::Other,
    })
}

fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', text)?;
    Some((&text[..end], &text[end + 1..]))
}

fn after_comma(text: &[u8]) -> Option<&[u8]> {
    let rest = text.trim_ascii_start().strip_prefix(b",")?;
    Some(rest.trim_ascii_start())
}

/// Without the `]` that ends the message.
fn unclosed(text: &[u8]) -> Option<&[u8]> {
    let text = text.trim_ascii_end().strip_suffix(b"]")?;
    Some(text.trim_ascii_end())
}

/// Reads a raw JSON string, for people; what is no string is shown as it is.
pub(crate) fn text(raw: &[u8]) -> String {
    serde_json::from_slice(raw).unwrap_or_else(|_| String::from_utf8_lossy(raw).into_owned())
}

/// The hex digits of an event's id, found without parsing the event: inside a JSON string the
/// quotes would be escaped.
pub(crate) fn event_id(event: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"\"id\":";
    let at = memchr::memmem::find(event, NAME)? + NAME.len();
    string(&event[at..]).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_told_apart_with_and_without_spaces() {
        for (message, expected) in [
            (
                r#"["OK","ab",true,""]"#,
                Answer::Ok {
                    id: b"ab",
                    accepted: true,
                    message: b"\"\"",
                },
            ),
            (
                r#" [ "OK" , "ab" , false , "invalid: \"x]" ] "#,
                Answer::Ok {
                    id: b"ab",
                    accepted: false,
                    message: br#""invalid: \"x]""#,
                },
            ),
            (
                r#"["EVENT","1",{"id":"x","tags":[]}]"#,
                Answer::Event {
                    sub: b"1",
                    event: br#"{"id":"x","tags":[]}"#,
                },
            ),
            (r#"["EOSE", "1"]"#, Answer::Eose { sub: b"1" }),
            (
                r#"["CLOSED","1","error: no"]"#,
                Answer::Closed {
                    sub: b"1",
                    message: b"\"error: no\"",
                },
            ),
            (
                r#"["CLOSED","1"]"#,
                Answer::Closed {
                    sub: b"1",
                    message: b"\"\"",
                },
            ),
            (
                r#"["NOTICE","a\nb"]"#,
                Answer::Notice {
                    message: br#""a\nb""#,
                },
            ),
            (r#"["AUTH","challenge"]"#, Answer::Other),
            (r#"["OK","ab","maybe"]"#, Answer::Other),
            ("{}", Answer::Other),
            ("", Answer::Other),
        ] {
            assert_eq!(parse(message.as_bytes()), expected, "{message}");
        }
        assert_eq!(text(br#""a\nb""#), "a\nb");
    }

    #[test]
    fn an_id_is_found_wherever_it_stands() {
        let event = br#"{"content":"\"id\":\"no\"","kind":1,"id": "yes","sig":""}"#;
        assert_eq!(event_id(event), Some(b"yes".as_slice()));
        assert_eq!(event_id(b"{}"), None);
    }
}
