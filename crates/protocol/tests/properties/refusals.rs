//! The refusal grammar: what the relay writes is what clients read.

use std::{num::NonZeroU32, time::Duration};

use buzz_protocol::{
    Refusal,
    refusal::{is_rate_limited, prefix, retry_in},
};
use proptest::prelude::*;

use crate::inputs::text;

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<NonZeroU32>().prop_map(|retry_in_secs| Refusal::Quota { retry_in_secs }),
        Just(Refusal::SharedAdmissionUnavailable),
        Just(Refusal::TooManyRequests),
        Just(Refusal::HistoryBusy),
        Just(Refusal::FellBehind),
        Just(Refusal::DatabaseUnavailable),
        Just(Refusal::Superseded),
        text().prop_map(Refusal::Invalid),
        text().prop_map(Refusal::Blocked),
        text().prop_map(Refusal::Restricted),
        text().prop_map(Refusal::AuthRequired),
        text().prop_map(Refusal::Error),
    ]
}

proptest! {
    #[test]
    fn every_refusal_is_read_back_by_its_prefix(refusal in refusal()) {
        let text = refusal.to_string();
        prop_assert_eq!(prefix(&text), Some(refusal.prefix()));
        prop_assert_eq!(is_rate_limited(&text), refusal.prefix() == "rate-limited");
    }

    #[test]
    fn whoever_is_rate_limited_is_told_when_to_come_back(refusal in refusal()) {
        let wait = match &refusal {
            Refusal::Quota { retry_in_secs } => Some(retry_in_secs.get().into()),
            other if other.prefix() == "rate-limited" => Some(1),
            _ => None,
        };
        prop_assert_eq!(retry_in(&refusal.to_string()), wait.map(Duration::from_secs));
    }

    #[test]
    fn any_message_is_read_without_a_panic_and_no_wait_is_under_a_second(
        message in text(),
        wait in "(rate-limited: )?(retry in )?[0-9]{0,24}s?",
    ) {
        for text in [&message, &wait, &format!("{wait}{message}"), &format!("{message}{wait}")] {
            let _ = prefix(text);
            prop_assert!(retry_in(text).is_none_or(|wait| wait >= Duration::from_secs(1)));
        }
    }
}
