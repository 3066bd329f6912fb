//! Whatever bytes a peer sends: parsing never panics, the answer to a bad frame is a good one,
//! and what parses is written and read back as the same.
#![no_main]

use buzz_protocol::{ClientFrame, Event, Filter, relay_frame::RelayFrame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match ClientFrame::parse(text) {
        Ok(ClientFrame::Event(event) | ClientFrame::Auth(event)) => same_event(&event),
        Ok(ClientFrame::Req { filters, .. } | ClientFrame::Count { filters, .. }) => {
            for filter in filters {
                let json = serde_json::to_string(&filter).expect("a filter is JSON");
                let read: Filter = serde_json::from_str(&json).expect("a filter");
                assert_eq!(read, filter);
            }
        }
        Ok(ClientFrame::Close { .. }) => {}
        Err(bad) => assert!(RelayFrame::parse(&bad.answer()).is_ok(), "{}", bad.answer()),
    }
    if let Ok(RelayFrame::Event { event, .. }) = RelayFrame::parse(text) {
        same_event(&event);
    }
});

fn same_event(event: &Event) {
    let read: Event = serde_json::from_str(&event.to_json()).expect("an event");
    assert_eq!(read, *event);
    let _ = event.verify();
}
