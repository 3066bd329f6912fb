//! Whether an answer is what its filter asks for: each event whole and matching, newest first,
//! ties by lowest id (NIP-01), none twice, no more than `limit`.

use buzz_protocol::{Event, Filter};

/// Checks one answer.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn check(filter: &Filter, events: &[Event]) -> Result<(), String> {
    if let Some(limit) = filter.limit
        && events.len() as u64 > limit
    {
        return Err(format!("{} events for limit {limit}", events.len()));
    }
    for event in events {
        if event.verify_id().is_err() {
            return Err(format!("event {} is not what was stored", event.id));
        }
        if !filter.matches(event) {
            return Err(format!("event {} does not match the filter", event.id));
        }
    }
    for pair in events.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        if next.id == one.id {
            return Err(format!("event {} came twice", one.id));
        }
        if next.created_at > one.created_at {
            return Err(format!("event {} is newer than the one before", next.id));
        }
        if next.created_at == one.created_at && next.id < one.id {
            return Err(format!("event {} ties and has the lower id", next.id));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::DataSet;

    /// Enough events that some tie, in the right order.
    fn answer() -> Vec<Event> {
        let data = DataSet::new(1, 3).unwrap();
        let mut events: Vec<Event> = (0..400)
            .map(|i| serde_json::from_str(&data.event(i).json).unwrap())
            .collect();
        events.sort_by(|a, b| (b.created_at, a.id).cmp(&(a.created_at, b.id)));
        events
    }

    fn wrong(filter: &Filter, events: &[Event]) -> String {
        check(filter, events).unwrap_err()
    }

    #[test]
    fn the_right_answer_passes() {
        assert_eq!(check(&Filter::default(), &answer()), Ok(()));
    }

    #[test]
    fn every_break_is_found() {
        let filter = Filter::default();
        let tie = |events: &[Event]| {
            let tied = |pair: &[Event]| pair[0].created_at == pair[1].created_at;
            events.windows(2).position(tied).unwrap()
        };
        let mut events = answer();
        let at = tie(&events);
        events.swap(at, at + 1);
        assert!(wrong(&filter, &events).contains("ties"));

        let mut events = answer();
        let untied = |pair: &[Event]| pair[0].created_at != pair[1].created_at;
        let at = events.windows(2).position(untied).unwrap();
        events.swap(at, at + 1);
        assert!(wrong(&filter, &events).contains("newer"));

        let mut events = answer();
        events.insert(5, events[5].clone());
        assert!(wrong(&filter, &events).contains("twice"));

        let mut events = answer();
        events[9].content.push('x');
        assert!(wrong(&filter, &events).contains("stored"));

        let limit = Filter {
            limit: Some(399),
            ..Filter::default()
        };
        assert!(wrong(&limit, &answer()).contains("limit 399"));
        let kind = Filter {
            kinds: Some(vec![1]),
            ..Filter::default()
        };
        assert!(wrong(&kind, &answer()).contains("does not match"));
    }
}
