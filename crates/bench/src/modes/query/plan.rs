//! The queries of a shape, made from what the data set is known to hold.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use buzz_protocol::Filter;

use crate::{
    cli::Shape,
    dataset::{DataSet, Head, KINDS},
    rng::Rng,
};

/// So many different queries of a shape take turns; more would only cost memory.
const MAX_QUERIES: usize = 2000;
/// And so many of the shape that names 500 authors (33 KB each).
const MAX_WIDE_QUERIES: usize = 200;

/// One query, ready to be sent.
pub(super) struct Query {
    /// The filter, for checks.
    pub(super) filter: Filter,
    /// The filter as JSON.
    pub(super) json: String,
    /// How many events a relay that holds the data set, and nothing else, answers with.
    pub(super) expected: u64,
}

/// The data set as far as queries need it.
pub(super) struct Known<'a> {
    pub(super) data: &'a DataSet,
    pub(super) heads: Vec<Head>,
}

impl Shape {
    /// Its name on the command line and in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Author => "author",
            Self::Kind => "kind",
            Self::E => "e",
            Self::Ids => "ids",
            Self::Authors500 => "authors500",
        }
    }

    /// The shapes that are run for it.
    pub(super) fn each(self) -> Vec<Self> {
        match self {
            Self::All => vec![
                Self::Author,
                Self::Kind,
                Self::E,
                Self::Ids,
                Self::Authors500,
            ],
            one => vec![one],
        }
    }

    /// Its queries, each a random choice.
    ///
    /// # Errors
    /// When the data set is empty.
    pub(super) fn queries(self, known: &Known<'_>, rng: &mut Rng) -> Result<Vec<Query>> {
        ensure!(!known.heads.is_empty(), "--events must be above zero");
        Ok(match self {
            Self::All => Vec::new(),
            Self::Author => known.author_queries(rng),
            Self::Kind => known.kind_queries(),
            Self::E => known.e_queries(rng),
            Self::Ids => known.id_queries(rng),
            Self::Authors500 => known.wide_queries(rng),
        })
    }
}

impl Known<'_> {
    fn author_queries(&self, rng: &mut Rng) -> Vec<Query> {
        let hits = self.hits(|head| head.author);
        let query = |author: u32| {
            let authors = vec![self.data.pubkeys[author as usize]];
            Query::new(
                Filter {
                    authors: Some(authors),
                    limit: Some(50),
                    ..Filter::default()
                },
                hits.get(&author).copied().unwrap_or_default(),
            )
        };
        sample(
            rng,
            (0..self.data.pubkeys.len() as u32).collect(),
            MAX_QUERIES,
        )
        .into_iter()
        .map(query)
        .collect()
    }

    fn kind_queries(&self) -> Vec<Query> {
        let hits = self.hits(|head| head.kind);
        let query = |kind: u16| {
            Query::new(
                Filter {
                    kinds: Some(vec![kind]),
                    limit: Some(500),
                    ..Filter::default()
                },
                hits.get(&kind).copied().unwrap_or_default(),
            )
        };
        KINDS.map(query).into()
    }

    fn e_queries(&self, rng: &mut Rng) -> Vec<Query> {
        let hits = self.hits(|head| head.e);
        let query = |e: u32| {
            Query::new(
                Filter {
                    tags: BTreeMap::from([(b'e', vec![self.data.e_value(e)])]),
                    limit: Some(100),
                    ..Filter::default()
                },
                hits[&e],
            )
        };
        sample(rng, hits.keys().copied().collect(), MAX_QUERIES)
            .into_iter()
            .map(query)
            .collect()
    }

    fn id_queries(&self, rng: &mut Rng) -> Vec<Query> {
        let query = |_| {
            let mut ids: Vec<_> = (0..20).map(|_| rng.pick(&self.heads).id).collect();
            ids.sort_unstable();
            ids.dedup();
            let hits = ids.len() as u64;
            Query::new(
                Filter {
                    ids: Some(ids),
                    ..Filter::default()
                },
                hits,
            )
        };
        (0..MAX_QUERIES).map(query).collect()
    }

    fn wide_queries(&self, rng: &mut Rng) -> Vec<Query> {
        let hits = self.hits(|head| head.author);
        let query = |_| {
            let authors = sample(rng, (0..self.data.pubkeys.len() as u32).collect(), 500);
            let total = authors.iter().filter_map(|author| hits.get(author)).sum();
            let keys = authors.iter().map(|a| self.data.pubkeys[*a as usize]);
            Query::new(
                Filter {
                    authors: Some(keys.collect()),
                    limit: Some(50),
                    ..Filter::default()
                },
                total,
            )
        };
        (0..MAX_WIDE_QUERIES).map(query).collect()
    }

    fn hits<K: Ord>(&self, key: impl Fn(&Head) -> K) -> BTreeMap<K, u64> {
        let mut hits = BTreeMap::new();
        for head in &self.heads {
            *hits.entry(key(head)).or_default() += 1;
        }
        hits
    }
}

impl Query {
    fn new(filter: Filter, hits: u64) -> Self {
        // A filter is lists of numbers and hex digits: writing it can't fail.
        let json = serde_json::to_string(&filter).unwrap_or_default();
        let expected = hits.min(filter.limit.unwrap_or(u64::MAX));
        Self {
            filter,
            json,
            expected,
        }
    }
}

/// At most `count` of `items`, each at most once.
fn sample(rng: &mut Rng, mut items: Vec<u32>, count: usize) -> Vec<u32> {
    let count = count.min(items.len());
    for i in 0..count {
        let other = i + rng.below((items.len() - i) as u64) as usize;
        items.swap(i, other);
    }
    items.truncate(count);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use buzz_protocol::Event;

    #[test]
    fn every_shape_finds_what_it_expects_and_nothing_is_asked_in_vain() {
        let data = DataSet::new(3, 600).unwrap();
        let known = Known {
            data: &data,
            heads: (0..1200).map(|i| data.head(i)).collect(),
        };
        let events: Vec<Event> = (0..1200)
            .map(|i| serde_json::from_str(&data.event(i).json).unwrap())
            .collect();
        for shape in Shape::All.each() {
            let mut rng = Rng::new(3, 9, 9);
            let queries = shape.queries(&known, &mut rng).unwrap();
            for query in queries.iter().take(20) {
                let hits = events.iter().filter(|e| query.filter.matches(e)).count() as u64;
                let limit = query.filter.limit.unwrap_or(u64::MAX);
                assert_eq!(query.expected, hits.min(limit), "{}", query.json);
                assert_eq!(
                    serde_json::from_str::<Filter>(&query.json).unwrap(),
                    query.filter
                );
            }
            assert!(queries.iter().any(|query| query.expected > 0), "{shape:?}");
        }
    }

    #[test]
    fn a_sample_repeats_nothing() {
        let mut some = sample(&mut Rng::new(1, 1, 1), (0..100).collect(), 60);
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), 60);
    }
}
