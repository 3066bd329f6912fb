//! The four commands.

use std::{
    fmt,
    io::{IsTerminal, Read, Write},
    path::Path,
};

use buzz_protocol::{Event, Filter, Pubkey, Tag, UnsignedEvent, nip19};
use secp256k1::{Keypair, rand};
use serde::{
    Deserialize,
    de::{self, DeserializeSeed},
};
use serde_json::json;

use crate::{
    arguments::{Arguments, Command, PublishArgs},
    failure::Failure,
    key,
    relay::{Relay, unix_now},
};

const DEFAULT_RELAY: &str = "ws://localhost:3000";
/// Bytes of an event on standard input; no relay takes more.
const MAX_INPUT: u64 = 64 * 1024 * 1024;

/// Does what the arguments say.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let connect = || {
        let keys = key::load(arguments.key_file.as_deref())?;
        let url = arguments.relay.clone();
        let url = url.or_else(|| std::env::var("BUZZ_RELAY").ok());
        let url = url.as_deref().unwrap_or(DEFAULT_RELAY);
        Ok((Relay::new(url, keys, arguments.max_wait())?, keys))
    };
    match &arguments.command {
        Command::Keygen => keygen(arguments.key_file.as_deref(), arguments.json),
        Command::Publish(publish_args) => {
            let (relay, keys) = connect()?;
            publish(relay, &keys, publish_args, arguments.json)
        }
        Command::Query(filter) => {
            let filters = filter.filters()?;
            query(connect()?.0, &filters)
        }
        Command::Count(filter) => {
            let filters = filter.filters()?;
            count(connect()?.0, &filters, arguments.json)
        }
    }
}

fn print(line: impl fmt::Display) -> Result<(), Failure> {
    let written = writeln!(std::io::stdout(), "{line}");
    written.map_err(|error| Failure::Refused(format!("standard output: {error}")))
}

fn keygen(file: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let keys = Keypair::new(&mut rand::rng());
    let secret = keys.to_secret_bytes();
    let nsec = nip19::nsec(&secret);
    let public = public_key(&keys);
    let npub = nip19::npub(&public);
    match file {
        Some(file) => {
            key::store(file, &nsec)?;
            match as_json {
                true => print(json!({"npub": npub, "public_key": public})),
                false => print(npub),
            }
        }
        None if as_json => {
            let hex = Pubkey(secret).to_hex();
            print(json!({"nsec": nsec, "secret_key": hex, "npub": npub, "public_key": public}))
        }
        None => print(format_args!("{nsec}\n{npub}")),
    }
}

fn public_key(keys: &Keypair) -> Pubkey {
    Pubkey(keys.x_only_public_key().0.to_byte_array())
}

#[derive(Deserialize)]
struct Verdict {
    id: String,
    accepted: bool,
    message: String,
}

fn publish(
    mut relay: Relay,
    keys: &Keypair,
    arguments: &PublishArgs,
    as_json: bool,
) -> Result<(), Failure> {
    let event = if arguments.is_empty() {
        event_from_input(keys)?
    } else {
        let unsigned = UnsignedEvent {
            created_at: arguments.created_at.unwrap_or_else(unix_now),
            kind: arguments.kind.unwrap_or(1),
            tags: arguments.tags(),
            content: arguments.content.clone().unwrap_or_default(),
        };
        unsigned.sign(keys)
    };
    let verdict: Verdict = read(relay.post("/events", &event.to_json())?)?;
    let Verdict {
        id,
        accepted,
        message,
    } = verdict;
    if as_json {
        print(json!({"id": id, "accepted": accepted, "message": message}))?;
    } else if accepted {
        print(&id)?;
    }
    match accepted {
        true => Ok(()),
        false => Err(Failure::Refused(message)),
    }
}

/// An event that is not signed, as far as it says something.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    #[serde(default = "note")]
    kind: u16,
    #[serde(default)]
    content: String,
    #[serde(default)]
    tags: Vec<Tag>,
    #[serde(default)]
    created_at: Option<u64>,
    #[serde(default)]
    pubkey: Option<Pubkey>,
    /// Made anew: it depends on the time.
    #[serde(default, rename = "id")]
    _id: Option<de::IgnoredAny>,
}

fn note() -> u16 {
    1
}

fn event_from_input(keys: &Keypair) -> Result<Event, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Failure::usage(
            "give --content, or an event as JSON on standard input",
        ));
    }
    let mut text = String::new();
    let read = input.lock().take(MAX_INPUT).read_to_string(&mut text);
    read.map_err(|error| Failure::usage(format_args!("standard input: {error}")))?;
    let wrong = |error| Failure::usage(format_args!("standard input holds no event: {error}"));
    let value: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    if value.get("sig").is_some() {
        return serde_json::from_str(&text).map_err(wrong);
    }
    let draft: Draft = serde_json::from_str(&text).map_err(wrong)?;
    if draft.pubkey.is_some_and(|key| key != public_key(keys)) {
        let why = "the event on standard input is another key's, and not signed";
        return Err(Failure::usage(why));
    }
    let unsigned = UnsignedEvent {
        created_at: draft.created_at.unwrap_or_else(unix_now),
        kind: draft.kind,
        tags: draft.tags,
        content: draft.content,
    };
    Ok(unsigned.sign(keys))
}

fn query(mut relay: Relay, filters: &[Filter]) -> Result<(), Failure> {
    let answer = relay.post("/query", &body(filters)?)?;
    let mut from = serde_json::Deserializer::from_reader(std::io::BufReader::new(answer));
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = PrintEvents(&mut out).deserialize(&mut from);
    let printed = printed.and_then(|()| from.end());
    // The reader of the pipe has seen enough, as `head` does.
    let pipe_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    match (printed, out.flush()) {
        (_, Err(error)) if pipe_closed(&error) => Ok(()),
        (Ok(()), Ok(())) => Ok(()),
        (Ok(()), Err(error)) => Err(Failure::Refused(format!("standard output: {error}"))),
        (Err(error), _) => Err(broken_off(&error)),
    }
}

fn count(mut relay: Relay, filters: &[Filter], as_json: bool) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Count {
        count: u64,
    }
    let Count { count } = read(relay.post("/count", &body(filters)?)?)?;
    match as_json {
        true => print(json!({"count": count})),
        false => print(count),
    }
}

fn body(filters: &[Filter]) -> Result<String, Failure> {
    serde_json::to_string(filters).map_err(Failure::usage)
}

fn read<T: de::DeserializeOwned>(answer: impl Read) -> Result<T, Failure> {
    serde_json::from_reader(answer).map_err(|error| broken_off(&error))
}

fn broken_off(error: &serde_json::Error) -> Failure {
    Failure::Unreachable(format!("the answer breaks off or is no relay's: {error}"))
}

/// Prints an array's events one by one, so that a long answer is held nowhere.
struct PrintEvents<'a, W>(&'a mut W);

impl<'de, W: Write> DeserializeSeed<'de> for PrintEvents<'_, W> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, W: Write> de::Visitor<'de> for PrintEvents<'_, W> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Event>()? {
            let written = writeln!(self.0, "{}", event.to_json());
            written.map_err(de::Error::custom)?;
        }
        Ok(())
    }
}
