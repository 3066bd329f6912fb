//! Messages in channels, as the client's tests send and ask for them.

use buzz_protocol::{Event, Filter};
use buzz_testkit::Author;

/// A message in a channel.
pub(crate) fn message(channel: &str, text: &str, created_at: u64) -> Event {
    let draft = Author::new(1).event(9, text).at(created_at);
    draft.tag(&["h", channel]).sign()
}

/// The filter for a channel's messages.
pub(crate) fn channel(name: &str) -> Filter {
    Filter {
        kinds: Some(vec![9]),
        tags: [(b'h', vec![name.to_owned()])].into(),
        ..Filter::default()
    }
}
