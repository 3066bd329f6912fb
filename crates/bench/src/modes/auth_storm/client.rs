//! One client of the storm: dials, answers the challenge, and comes again until it is in.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use buzz_protocol::{EventId, Tag, UnsignedEvent, kind, refusal, relay_frame::RelayFrame};
use secp256k1::Keypair;
use tokio::{sync::mpsc::UnboundedSender, time::timeout};

use super::Backoff;
use crate::net::{
    Target,
    client::{Received, Socket},
};

/// How long the relay may take to send its challenge and to answer the login. Longer than any
/// relay's own limit, so that the relay decides.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Client {
    pub(super) target: Target,
    /// The URL that logins name.
    pub(super) auth_url: String,
    pub(super) keys: Keypair,
    pub(super) backoff: Backoff,
}

/// What happened to a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Dials,
    In {
        at: Instant,
        /// From the AUTH to its OK.
        latency: Duration,
    },
    /// The socket ended without a word while the login waited for its answer.
    BareClose,
    Refused {
        text: String,
        /// Coming again would not help.
        is_final: bool,
    },
    /// No WebSocket, and why.
    Handshake(String),
    /// The socket ended otherwise, and how.
    Cut(String),
}

impl News {
    /// Nothing follows that the run waits for.
    pub(super) fn settles(&self) -> bool {
        matches!(self, Self::In { .. } | Self::Refused { is_final: true, .. })
    }

    fn refused(text: String) -> Self {
        let is_final = !matches!(refusal::prefix(&text), Some("rate-limited" | "error"));
        Self::Refused { text, is_final }
    }
}

impl Client {
    /// Reports each step. The receiver may be gone once the run is over.
    pub(super) async fn run(mut self, tell: UnboundedSender<News>) {
        loop {
            let _ = tell.send(News::Dials);
            let mut socket = match Socket::open(&self.target).await {
                Ok(socket) => socket,
                Err(error) => {
                    let _ = tell.send(News::Handshake(format!("{error:#}")));
                    tokio::time::sleep(self.backoff.next()).await;
                    continue;
                }
            };
            let end = match timeout(PATIENCE, self.log_in(&mut socket)).await {
                Ok(end) => end,
                Err(_) => News::Cut(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            let (is_in, settled) = (matches!(end, News::In { .. }), end.settles());
            let _ = tell.send(end);
            if is_in {
                // A client stays: the relay bears all of them at the end.
                let _ = tell.send(News::Cut(stay(&mut socket).await));
            }
            if settled {
                return;
            }
            drop(socket);
            tokio::time::sleep(self.backoff.next()).await;
        }
    }

    async fn log_in(&self, socket: &mut Socket) -> News {
        let mut sent: Option<(EventId, Instant)> = None;
        loop {
            let text = match socket.receive().await {
                Received::Text(text) => text,
                Received::BareClose if sent.is_some() => return News::BareClose,
                Received::BareClose => return News::Cut("closed before the challenge".into()),
                Received::Cut(why) => return News::Cut(why),
            };
            match (RelayFrame::parse(&text), sent) {
                (Ok(RelayFrame::Auth { challenge }), None) => {
                    let (id, frame) = self.login(&challenge);
                    sent = Some((id, Instant::now()));
                    socket.send(frame).await;
                }
                (
                    Ok(RelayFrame::Ok {
                        id,
                        accepted,
                        message,
                    }),
                    Some((login, since)),
                ) if id == login => {
                    let at = Instant::now();
                    return match accepted {
                        true => News::In {
                            at,
                            latency: at - since,
                        },
                        false => News::refused(message),
                    };
                }
                _ => {}
            }
        }
    }

    fn login(&self, challenge: &str) -> (EventId, String) {
        // A clock before 1970 is the relay's to refuse.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let login = UnsignedEvent {
            created_at: now.map_or(0, |now| now.as_secs()),
            kind: kind::CLIENT_AUTH,
            tags: vec![
                Tag::new(["relay", &self.auth_url]),
                Tag::new(["challenge", challenge]),
            ],
            content: String::new(),
        };
        let login = login.sign(&self.keys);
        (login.id, format!("[\"AUTH\",{}]", login.to_json()))
    }
}

/// Answers pings until the socket ends; says how.
async fn stay(socket: &mut Socket) -> String {
    loop {
        match socket.receive().await {
            Received::Text(_) => {}
            Received::BareClose => return "closed after the login".into(),
            Received::Cut(why) => return why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: a client that gives up on a database that is down, or never on a ban.
    #[test]
    fn only_a_refusal_for_now_is_worth_another_attempt() {
        for (text, settles) in [
            ("error: database unavailable", false),
            ("rate-limited: retry in 1s", false),
            ("restricted: not a member", true),
            ("invalid: the relay tag must name ws://relay", true),
            ("", true),
        ] {
            assert_eq!(News::refused(text.into()).settles(), settles, "{text}");
        }
        assert!(!News::BareClose.settles());
        assert!(!News::Handshake(String::new()).settles());
    }
}
