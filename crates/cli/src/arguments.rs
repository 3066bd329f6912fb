//! The arguments of `buzz`.

use std::{path::PathBuf, time::Duration};

use buzz_protocol::{EventId, Filter, Tag, nip19};
use clap::{Args, Parser, Subcommand};

use crate::failure::Failure;

/// Publish, query and count Nostr events on a relay.
///
/// The secret key (hex or nsec1…) is read from --key-file or from BUZZ_SECRET_KEY. It signs every
/// request, and the events that `publish` makes.
///
/// Exit codes: 0 done; 1 refused by the relay; 2 wrong arguments, key or input; 3 the relay does
/// not answer or is unavailable; 4 rate limited for longer than --max-wait.
#[derive(Debug, Parser)]
#[command(name = "buzz", version)]
pub(crate) struct Arguments {
    /// The relay, as ws://, wss://, http:// or https:// [default: BUZZ_RELAY, else
    /// ws://localhost:3000].
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) relay: Option<String>,
    /// A file that holds the secret key [default: the key in BUZZ_SECRET_KEY].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Print JSON instead of text for people.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The most seconds to wait in all when the relay asks to retry later.
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 120)]
    max_wait: u32,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    pub(crate) fn max_wait(&self) -> Duration {
        Duration::from_secs(self.max_wait.into())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish an event: made from the flags and signed, or read from standard input.
    ///
    /// Without flags, standard input holds one event as JSON. A signed event is sent as it is.
    /// Otherwise `kind`, `content`, `tags` and `created_at` are taken from it, if present, and the
    /// result is signed.
    Publish(PublishArgs),
    /// Print stored events as JSON Lines, newest first.
    Query(FilterArgs),
    /// Print the number of stored events that match.
    Count(FilterArgs),
    /// Make a secret key and print it. With --key-file, write it to that new file instead.
    Keygen,
}

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// The event's kind [default: 1].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) kind: Option<u16>,
    /// The event's content.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) content: Option<String>,
    /// A tag. May be repeated. A name alone is a tag without a value.
    #[arg(long = "tag", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    tags: Vec<String>,
    /// Seconds since the Unix epoch [default: now].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) created_at: Option<u64>,
}

impl PublishArgs {
    /// Whether no flag describes an event.
    pub(crate) fn is_empty(&self) -> bool {
        self.kind.is_none()
            && self.content.is_none()
            && self.tags.is_empty()
            && self.created_at.is_none()
    }

    pub(crate) fn tags(&self) -> Vec<Tag> {
        let tags = self.tags.iter().map(|tag| match tag.split_once('=') {
            Some((name, value)) => Tag::new([name, value]),
            None => Tag::new([tag.as_str()]),
        });
        tags.collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Filters as JSON (NIP-01). An event must match any of them. The flags make one more filter.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Events of this kind. May be repeated.
    #[arg(long, value_name = "NUMBER")]
    kind: Vec<u16>,
    /// Events of this author (hex or npub1…). May be repeated.
    #[arg(long, value_name = "KEY")]
    author: Vec<String>,
    /// The event with this id. May be repeated.
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// Events with this tag. Its name is one letter. May be repeated.
    #[arg(long = "tag", value_name = "LETTER=VALUE")]
    tags: Vec<String>,
    /// Events of this Unix time or later.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
    /// Events of this Unix time or earlier.
    #[arg(long, value_name = "SECONDS")]
    until: Option<u64>,
    /// At most this many events, the newest ones.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u64>,
}

impl FilterArgs {
    /// All filters. If there is none, one filter that matches everything.
    pub(crate) fn filters(&self) -> Result<Vec<Filter>, Failure> {
        let parse = |text: &String| {
            serde_json::from_str(text)
                .map_err(|error| Failure::usage(format_args!("the filter {text}: {error}")))
        };
        let mut filters: Vec<Filter> = self.filters.iter().map(parse).collect::<Result<_, _>>()?;
        let from_flags = self.filter_of_flags()?;
        if filters.is_empty() || from_flags != Filter::default() {
            filters.push(from_flags);
        }
        Ok(filters)
    }

    fn filter_of_flags(&self) -> Result<Filter, Failure> {
        let mut filter = Filter {
            ids: some(&self.id, |id| EventId::from_hex(id))?,
            authors: some(&self.author, nip19::parse_pubkey)?,
            kinds: (!self.kind.is_empty()).then(|| self.kind.clone()),
            since: self.since,
            until: self.until,
            limit: self.limit,
            ..Filter::default()
        };
        for tag in &self.tags {
            match tag.split_once('=') {
                Some((name, value)) if is_letter(name) => {
                    let values = filter.tags.entry(name.as_bytes()[0]).or_default();
                    values.push(value.to_owned());
                }
                _ => {
                    let why = "is no letter with a value, such as t=nostr";
                    return Err(Failure::usage(format_args!("--tag {tag} {why}")));
                }
            }
        }
        Ok(filter)
    }
}

fn is_letter(name: &str) -> bool {
    matches!(name.as_bytes(), [letter] if letter.is_ascii_alphabetic())
}

/// The values of a flag, if it is given.
fn some<T, E: std::fmt::Display>(
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<Vec<T>>, Failure> {
    let parse = |text: &String| {
        parse(text).map_err(|error| Failure::usage(format_args!("`{text}`: {error}")))
    };
    let values = texts.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    Ok((!values.is_empty()).then_some(values))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn filters(arguments: &[&str]) -> Result<Vec<Filter>, Failure> {
        let words = ["buzz", "query"].iter().chain(arguments);
        let parsed = Arguments::try_parse_from(words).map_err(Failure::usage)?;
        match parsed.command {
            Command::Query(filter) => filter.filters(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_arguments_make_sense() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn flags_and_json_say_the_same() {
        let key = "ab".repeat(32);
        let flags = filters(&[
            "--kind", "1", "--kind", "7", "--author", &key, "--id", &key, "--tag", "t=a=b",
            "--tag", "t=c", "--since", "1", "--until", "2", "--limit", "3",
        ]);
        let json = format!(
            "{{\"ids\":[\"{key}\"],\"authors\":[\"{key}\"],\"kinds\":[1,7],\"#t\":[\"a=b\",\"c\"],\
             \"since\":1,\"until\":2,\"limit\":3}}"
        );
        let json = filters(&[&json]);
        assert_eq!(
            flags.map_err(|e| e.to_string()),
            json.map_err(|e| e.to_string())
        );
    }

    #[test]
    fn filters_and_flags_are_alternatives_and_nothing_is_everything() {
        let count = |arguments: &[&str]| filters(arguments).map(|filters| filters.len()).ok();
        assert_eq!(count(&[]), Some(1));
        assert_eq!(count(&["{}"]), Some(1));
        assert_eq!(count(&["{\"kinds\":[1]}", "{}", "--limit", "1"]), Some(3));
    }

    #[test]
    fn what_is_no_filter_is_named() {
        for (arguments, part) in [
            (&["{\"kinds\":1}"][..], "kinds"),
            (&["--author", "npub1x"], "npub1x"),
            (&["--id", "12"], "12"),
            (&["--tag", "long=x"], "long=x"),
            (&["--tag", "t"], "t"),
        ] {
            let error = filters(arguments).expect_err("an error").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
