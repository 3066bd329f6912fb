//! Parsing what peers send: it never panics, and its refusals are themselves good frames.

use buzz_protocol::{
    ClientFrame, EventId,
    client_frame::About,
    event::push_quoted,
    relay_frame::{self, RelayFrame},
};
use proptest::prelude::*;

use crate::inputs::{damaged_frame, event, filter, text};

/// Parses as relay and as client would, and checks the answer to a bad frame.
fn parse_as_both(text: &str) -> Result<(), TestCaseError> {
    let _ = RelayFrame::parse(text);
    let Err(bad) = ClientFrame::parse(text) else {
        return Ok(());
    };
    prop_assert!(
        bad.reason.starts_with("invalid: ") || bad.reason.starts_with("unsupported: "),
        "{}",
        bad.reason
    );
    let answer = RelayFrame::parse(&bad.answer());
    match (&bad.about, answer) {
        (
            About::Event(about),
            Ok(RelayFrame::Ok {
                id,
                accepted: false,
                message,
            }),
        ) => prop_assert!(*about == id && message == bad.reason),
        (About::Sub(about), Ok(RelayFrame::Closed { sub, message })) => {
            prop_assert!(*about == sub && message == bad.reason);
        }
        (About::Unknown, Ok(RelayFrame::Notice { message })) => {
            prop_assert_eq!(message, bad.reason);
        }
        (about, answer) => prop_assert!(false, "{about:?} was answered {answer:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        parse_as_both(&text)?;
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_as_both(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn text_behind_a_verb_is_parsed_or_refused(
        verb in "(EVENT|REQ|COUNT|CLOSE|AUTH)",
        rest in "[\\[\\]{}\",:#a-z0-9\\\\ ]{0,60}",
    ) {
        parse_as_both(&format!("[\"{verb}\",{rest}"))?;
        parse_as_both(&format!("[\"{verb}\",\"{rest}"))?;
    }

    #[test]
    fn damaged_real_frames_are_parsed_or_refused(bytes in damaged_frame()) {
        parse_as_both(&String::from_utf8_lossy(&bytes))?;
    }

}

proptest! {
    #[test]
    fn a_bad_request_names_its_subscription(sub in text(), rest in text()) {
        let mut frame = "[\"REQ\",".to_owned();
        push_quoted(&mut frame, &sub);
        // No filter starts with a bracket, so this is bad whatever follows.
        let bad = ClientFrame::parse(&(frame + ",]" + &rest)).expect_err("a bad frame");
        prop_assert_eq!(bad.about, About::Sub(sub));
    }

    #[test]
    fn a_bad_event_names_its_id(event in event(), verb in "(EVENT|AUTH)") {
        let json = event.to_json().replace("\"kind\":", "\"kind\":-");
        let bad = ClientFrame::parse(&format!("[\"{verb}\",{json}]")).expect_err("a bad frame");
        prop_assert_eq!(bad.about, About::Event(event.id));
    }

    #[test]
    fn requests_are_read_back_as_written(
        sub in text(),
        filters in prop::collection::vec(filter(), 1..4),
    ) {
        let mut rest = String::new();
        push_quoted(&mut rest, &sub);
        for filter in &filters {
            rest.push(',');
            rest.push_str(&serde_json::to_string(filter).expect("a filter is JSON"));
        }
        let parsed = ClientFrame::parse(&format!("[\"REQ\",{rest}]"));
        prop_assert_eq!(
            parsed,
            Ok(ClientFrame::Req { sub: sub.clone(), filters: filters.clone() })
        );
        let parsed = ClientFrame::parse(&format!("[\"COUNT\",{rest}]"));
        prop_assert_eq!(parsed, Ok(ClientFrame::Count { query: sub, filters }));
    }

    #[test]
    fn relay_frames_are_read_back_as_written(
        (id, sub, message) in (any::<[u8; 32]>().prop_map(EventId), text(), text()),
        (accepted, count) in (any::<bool>(), any::<u64>()),
    ) {
        let (sub, message) = (&sub, &message);
        let cases = [
            (
                relay_frame::ok(&id, accepted, message),
                RelayFrame::Ok { id, accepted, message: message.clone() },
            ),
            (relay_frame::eose(sub), RelayFrame::Eose { sub: sub.clone() }),
            (
                relay_frame::closed(sub, message),
                RelayFrame::Closed { sub: sub.clone(), message: message.clone() },
            ),
            (relay_frame::notice(message), RelayFrame::Notice { message: message.clone() }),
            (relay_frame::auth_challenge(sub), RelayFrame::Auth { challenge: sub.clone() }),
            (relay_frame::count(sub, count), RelayFrame::Count { query: sub.clone(), count }),
        ];
        for (text, frame) in cases {
            prop_assert_eq!(RelayFrame::parse(&text), Ok(frame), "{}", text);
        }
    }

    #[test]
    fn events_are_delivered_as_they_were_published(event in event(), sub in text()) {
        let published = ClientFrame::parse(&format!("[\"EVENT\",{}]", event.to_json()));
        prop_assert_eq!(published, Ok(ClientFrame::Event(Box::new(event.clone()))));
        let frame = relay_frame::event_prefix(&sub) + &event.to_json() + "]";
        let delivered = RelayFrame::parse(&frame);
        prop_assert_eq!(delivered, Ok(RelayFrame::Event { sub, event: Box::new(event) }));
    }
}
