//! The handle to a client that runs on tokio.

use std::{
    future::Future,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use buzz_protocol::{Event, Filter};
use futures_util::{Stream, stream};
use rustls::pki_types::CertificateDer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::{
    Error, PublishError, Signer, Subscription,
    counts::Counts,
    driver::{Call, Calls, Driver},
    session::{Answer, Command, Config, Published, RequestId, Status, SubId},
    socket::{self, Dialer, Transport},
};

/// What a client is made of before it connects.
pub struct Builder {
    url: String,
    signer: Option<Arc<dyn Signer>>,
    config: Config,
    transport: Transport,
    roots: Vec<CertificateDer<'static>>,
}

impl Builder {
    /// Who signs logins. Without one, what needs a login is refused.
    pub fn signer(mut self, signer: impl Signer) -> Self {
        self.signer = Some(Arc::new(signer));
        self
    }

    /// Other bounds and waits than the defaults.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Trusts `wss://` relays whose certificate this one has signed, beside those that Mozilla
    /// trusts: a team's own authority, or a relay's own certificate. May be called again.
    pub fn root_certificate(mut self, certificate: CertificateDer<'static>) -> Self {
        self.roots.push(certificate);
        self
    }

    #[cfg(test)]
    pub(crate) fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Starts the client, which connects and reconnects by itself from now on; see
    /// [`Client::status`]. Must be called inside a tokio runtime with time and I/O enabled.
    ///
    /// # Errors
    /// [`Error::Url`] where the URL is no relay's, [`Error::Certificate`] where a root certificate
    /// is none.
    pub fn connect(self) -> Result<Client, Error> {
        check_url(&self.url)?;
        let dialer = Dialer {
            transport: self.transport,
            tls: socket::tls_config(self.roots)
                .map_err(|error| Error::Certificate(error.to_string()))?,
        };
        let (calls, inbox) = mpsc::unbounded_channel();
        let (status, statuses) = watch::channel(Status::Connecting);
        let counts = Arc::new(Counts::default());
        let queue = self.config.queue;
        let seed = RandomState::new().build_hasher().finish();
        let driver = Driver::new(
            self.url,
            self.config,
            self.signer,
            dialer,
            seed,
            status,
            counts.clone(),
        );
        tokio::spawn(driver.run(inbox));
        Ok(Client {
            calls: Calls::new(calls),
            next_id: Arc::new(AtomicU64::new(0)),
            statuses,
            counts,
            queue,
        })
    }
}

fn check_url(url: &str) -> Result<(), Error> {
    let wrong = || Error::Url(url.to_owned());
    let request = url.into_client_request().map_err(|_| wrong())?;
    match request.uri().scheme_str() {
        Some("ws" | "wss") => Ok(()),
        _ => Err(wrong()),
    }
}

/// A client of one relay. Clones are handles to the same client, which ends with the last of them
/// and of its subscriptions, or by [`Client::close`].
#[derive(Debug, Clone)]
pub struct Client {
    calls: Calls,
    next_id: Arc<AtomicU64>,
    statuses: watch::Receiver<Status>,
    counts: Arc<Counts>,
    queue: usize,
}

impl Client {
    /// Starts to build a client of the relay at `url` (`ws://` or `wss://`).
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder {
            url: url.into(),
            signer: None,
            config: Config::default(),
            transport: socket::tcp(),
            roots: Vec::new(),
        }
    }

    /// Publishes a signed event. The result comes within [`Config::request_timeout`] of the call,
    /// whatever it waits for: a socket, the rate-limit gate, a login, the relay's answer.
    ///
    /// # Errors
    /// The relay's reason as soon as it is final, or why there was no answer.
    pub fn publish(
        &self,
        event: Event,
    ) -> impl Future<Output = Result<Published, PublishError>> + Send + use<> {
        let answer = self.request(|id| Command::Publish(id, Box::new(event)));
        async move {
            match answer.await?? {
                Answer::Published(published) => Ok(published),
                _ => Err(Error::Closed),
            }
        }
    }

    /// Counts the stored events that match any of `filters` (NIP-45).
    ///
    /// # Errors
    /// As [`Client::publish`].
    pub fn count(
        &self,
        filters: Vec<Filter>,
    ) -> impl Future<Output = Result<u64, Error>> + Send + use<> {
        let answer = self.request(|id| Command::Count(id, filters));
        async move {
            match answer.await?? {
                Answer::Count(count) => Ok(count),
                _ => Err(Error::Closed),
            }
        }
    }

    /// Resolves once the relay has accepted a login on the current socket. Logins are made by
    /// themselves when the relay asks; this waits for one.
    ///
    /// # Errors
    /// The relay's or the signer's reason, or [`Error::Timeout`] where no challenge came.
    pub fn authenticate(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answer = self.request(Command::Authenticate);
        async move { answer.await?.map(|_| ()) }
    }

    /// The call is made here and now; only its answer is awaited.
    fn request(
        &self,
        command: impl FnOnce(RequestId) -> Command,
    ) -> oneshot::Receiver<Result<Answer, Error>> {
        let id = RequestId(self.next_id());
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call::Request(id, command(id), answer));
        answered
    }

    /// Subscribes to what matches any of `filters`: stored events, then live ones. Survives lost
    /// sockets and refusals; ends when dropped, or when the relay closes it for good.
    pub fn subscribe(&self, filters: Vec<Filter>) -> Subscription {
        let id = SubId(self.next_id());
        let (sender, messages) = mpsc::unbounded_channel();
        self.calls.send(Call::Subscribe(id, filters, sender));
        Subscription::new(id, messages, self.calls.clone(), self.queue)
    }

    /// Sends telemetry (ephemeral, kind 24200) when there is room, and never before a message. At
    /// most [`Config::observer_queue`] frames wait; the oldest are dropped.
    pub fn observe(&self, event: Event) {
        self.calls
            .send(Call::Command(Command::Observe(Box::new(event))));
    }

    /// Telemetry frames dropped since the start because too many waited.
    pub fn observer_dropped(&self) -> u64 {
        self.counts.observer_dropped()
    }

    /// EVENT, REQ and COUNT frames sent since the start: what spends quota.
    pub fn frames_sent(&self) -> u64 {
        self.counts.frames_sent()
    }

    /// `rate-limited:` answers since the start, of all kinds.
    pub fn refusals(&self) -> u64 {
        self.counts.refusals()
    }

    /// Goes to another relay. Calls without an answer fail with [`Error::Switched`];
    /// subscriptions start anew there, and deliver nothing twice.
    ///
    /// # Errors
    /// [`Error::Url`] where the URL is no relay's; the client stays where it is.
    pub fn switch(&self, url: impl Into<String>) -> Result<(), Error> {
        let url = url.into();
        check_url(&url)?;
        self.calls.send(Call::Command(Command::Switch(url)));
        Ok(())
    }

    /// The connection's state: the current one first, then each change; changes that follow one
    /// another faster than they are read may be skipped.
    pub fn status(&self) -> impl Stream<Item = Status> + Send + Unpin + use<> {
        let mut receiver = self.statuses.clone();
        receiver.mark_changed();
        Box::pin(stream::unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok()?;
            let status = receiver.borrow_and_update().clone();
            Some((status, receiver))
        }))
    }

    /// Ends the client: the socket is closed, calls without an answer fail, subscriptions end.
    /// Returns when that is done.
    pub async fn close(&self) {
        self.calls.send(Call::Command(Command::Close));
        let mut statuses = self.statuses.clone();
        // An error says that the driver is gone, which is as closed.
        let _ = statuses.wait_for(|status| *status == Status::Closed).await;
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}
