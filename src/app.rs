//! Starts the rooms, downstream first, and stops them in the other order.

use std::{
    net::SocketAddr,
    num::NonZeroU64,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::{Duration, Instant},
};

use actix::{Actor, Addr, Arbiter, MailboxError, SyncArbiter, System};
use actix_web::{App, HttpServer, dev::ServerHandle, web::Data};
use anyhow::{Context, Result};
use buzz_actors::{
    admission::{Admission, AdmissionSettings},
    db_reader::{
        DbReader,
        request::{RequestGate, Waiter},
    },
    fanout::Fanout,
    flag_refresher::{Cap, FlagRefresher, Flush, Refresh},
    flags::{AUTH, HISTORY_READS},
    metrics::{FlagMetrics, GateMetrics, Metrics},
    ports::{EventStore, FlagSource, Purpose},
    replay::{self, Replay},
    rooms::{Committed, Permits, Rooms},
    roster::{Drain, Roster},
    verifier::Verifier,
    writer::{Settle, Writer},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    commands::{open_store, unix_now},
    config::{Config, Server},
    flags,
    http::{
        admin::{self, Admin},
        public::{self, Public},
    },
    shared_budget, store, telemetry,
};

/// A request head must be whole within this time, so that a slow handshake costs little.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// After the relay's side has closed, the client's side may take this long. Not less: the HTTP
/// server reckons it from a clock that is up to half a second late, and never fires a timer that
/// has passed already.
const CLOSING: Duration = Duration::from_secs(1);
/// Sockets beyond `server.max_connections` that can still be told 503.
const SPARE_SOCKETS: usize = 1024;
/// The start does not wait longer for a flag source that blocks; the caps are at their ceilings then.
const FIRST_FLAGS: Duration = Duration::from_secs(5);
/// The end does not wait longer for a database that takes no writes.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// The end waits so many seconds for answers to REST calls to go out.
const LAST_CALLS_SECS: u64 = 1;
/// The end does not wait longer for flag events to be delivered, even where their delivery hangs.
const LAST_FLAGS: Duration = Duration::from_secs(2);

/// Runs the relay until SIGTERM or SIGINT.
///
/// # Errors
/// When the database can't be opened or an address is taken.
pub fn serve(config: Config) -> Result<()> {
    let traces = telemetry::start(&config.telemetry)?;
    let metrics_page = telemetry::install_metrics()?;
    let store = open_store(&config)?;
    let _alone = store::serve_alone(&config.database.url).context("database.url")?;
    let flags = flags::start(&config.feature_flags)?;
    System::new().block_on(async move {
        let mut signals = Signals::install()?;
        let rooms = Arc::new(start_rooms(&config, store)?);
        let refresher = start_refresher(&config, flags, &rooms).await;
        let draining = Arc::new(AtomicBool::new(false));
        let admin = Admin {
            rooms: Arc::clone(&rooms),
            metrics: metrics_page.clone(),
            draining: Arc::clone(&draining),
        };
        let (admin_server, admin_addr) = start_admin(&config, admin)?;
        let (public_server, public_addr) =
            start_public(&config, Arc::clone(&rooms), Arc::clone(&draining))?;
        tracing::info!(
            listen = %public_addr, admin = %admin_addr, url = config.server.url,
            database = crate::config::mask_password(&config.database.url), "relay is up"
        );
        let defaults = Server::default();
        if config.server.url == defaults.url && config.server.listen != defaults.listen {
            tracing::warn!(
                url = config.server.url,
                "server.listen was changed and server.url was not: logins and REST calls that name another URL are refused"
            );
        }
        // Histograms are folded up now and then, not at every scrape alone.
        let upkeep = actix_web::rt::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(5));
            loop {
                tick.tick().await;
                metrics_page.run_upkeep();
            }
        });
        signals.wait().await;
        tokio::select! {
            () = shut_down(&config, &rooms, &draining, &public_server, &refresher) => {}
            // What was answered is committed: nothing is lost by this.
            () = signals.wait() => {}
        }
        admin_server.stop(false).await;
        upkeep.abort();
        anyhow::Ok(())
    })?;
    traces.shutdown();
    Ok(())
}

fn start_rooms(config: &Config, store: Arc<dyn EventStore>) -> Result<Rooms> {
    let metrics = Metrics::register();
    let committed = Committed::default();
    let fanout = {
        let (send_queue, metrics) = (config.server.send_queue, metrics.clone());
        in_own_thread(move || Fanout::new(send_queue, metrics))
    };
    let writer = Writer::open(
        Arc::clone(&store),
        fanout.clone(),
        committed.clone(),
        metrics.clone(),
        unix_now,
    )
    .context("the database can't be written")?;
    let writer = in_own_thread(move || writer);
    let start_readers = |threads, purpose| {
        let (store, metrics) = (Arc::clone(&store), metrics.clone());
        SyncArbiter::start(threads, move || {
            DbReader::new(Arc::clone(&store), purpose, metrics.clone())
        })
    };
    // Reads of history take no more connections than their gate lets pass, the rest is for logins.
    let readers = config.database.readers;
    let history_ceiling = buzz_gate::reader_ceiling(readers as u64);
    let reader = start_readers(history_ceiling.get() as usize, Purpose::History);
    let authorizer = start_readers((readers / 5).max(1), Purpose::Authorization);
    // The gates run on this thread, where the way to the readers' threads begins: a permit that
    // comes back and the read that gets it then wake one thread, not two.
    let gate = |name, ceiling, wait, metrics: &GateMetrics| {
        let start = |work: Box<dyn Waiter>, permit| work.admitted(permit);
        RequestGate::new(name, ceiling, wait, metrics.clone(), start).start()
    };
    let counters = NonZeroU64::new(history_ceiling.get() / 4).unwrap_or(NonZeroU64::MIN);
    let (ceiling, wait) = (Some(history_ceiling), config.history.wait);
    let history_gate = gate("history_reads", ceiling, wait, &metrics.history_gate);
    let count_gate = gate("counts", Some(counters), wait, &metrics.count_gate);
    let auth_gate = gate("auth", None, config.auth.wait, &metrics.auth_gate);
    let verifier = {
        let (writer, metrics) = (writer.clone(), metrics.clone());
        SyncArbiter::start(cores(), move || {
            Verifier::new(writer.clone(), metrics.clone())
        })
    };
    let admission = AdmissionSettings {
        quotas: config.admission.quotas(),
        guards: config.admission.guards(),
        shared: shared_budget::open(&config.admission)?,
    };
    Ok(Rooms {
        admission: Admission::start(&admission, cores(), &metrics),
        verifier,
        writer,
        reader,
        authorizer,
        history_gate,
        count_gate,
        auth_gate,
        fanout,
        replay: Replay::new(replay::MAX_REMEMBERED, unix_now).start(),
        roster: Roster::default().start(),
        settings: config.settings(),
        metrics,
        committed,
        handlers: Permits::new(config.server.handler_permits),
        sockets: Permits::new(config.server.max_connections),
        clock: unix_now,
    })
}

/// Starts what sets the gates' limits, and waits for the first ones: no socket is open yet.
async fn start_refresher(
    config: &Config,
    flags: Box<dyn FlagSource>,
    rooms: &Rooms,
) -> Addr<FlagRefresher> {
    let metrics = FlagMetrics::register(flags.provider());
    let caps = vec![
        Cap {
            flag: HISTORY_READS,
            gate: rooms.history_gate.clone().recipient(),
        },
        Cap {
            flag: AUTH,
            gate: rooms.auth_gate.clone().recipient(),
        },
    ];
    let every = config.feature_flags.refresh;
    let refresher = in_own_thread(move || FlagRefresher::new(flags, caps, every, metrics));
    if let Err(error) = refresher.send(Refresh).timeout(FIRST_FLAGS).await {
        tracing::error!(%error, "feature flags: no values yet; the caps start at their ceilings");
    }
    refresher
}

/// Starts a room whose handlers take their time, so that they hold up no socket.
fn in_own_thread<A>(room: impl FnOnce() -> A + Send + 'static) -> Addr<A>
where
    A: Actor<Context = actix::Context<A>>,
{
    A::start_in_arbiter(&Arbiter::new().handle(), move |_| room())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn start_public(
    config: &Config,
    rooms: Arc<Rooms>,
    draining: Arc<AtomicBool>,
) -> Result<(ServerHandle, SocketAddr)> {
    let trusted_proxies = config.server.trusted_proxies.clone();
    let public = Data::new(Public::new(rooms, trusted_proxies, draining)?);
    let address = config.server.listen;
    let server = HttpServer::new(move || {
        App::new()
            .app_data(public.clone())
            .configure(public::routes)
    })
    .on_connect(public::on_connect)
    .workers(cores())
    .shutdown_timeout(LAST_CALLS_SECS)
    .max_connections(config.server.max_connections.saturating_add(SPARE_SOCKETS))
    .client_request_timeout(HANDSHAKE)
    .client_disconnect_timeout(CLOSING)
    .disable_signals()
    .bind(address)
    .with_context(|| format!("server.listen: {address}"))?;
    Ok(run(
        server.addrs().first().copied().unwrap_or(address),
        server.run(),
    ))
}

fn start_admin(config: &Config, admin: Admin) -> Result<(ServerHandle, SocketAddr)> {
    let admin = Data::new(admin);
    let address = config.server.admin_listen;
    let server =
        HttpServer::new(move || App::new().app_data(admin.clone()).configure(admin::routes))
            .workers(1)
            .disable_signals()
            .bind(address)
            .with_context(|| format!("server.admin_listen: {address}"))?;
    Ok(run(
        server.addrs().first().copied().unwrap_or(address),
        server.run(),
    ))
}

fn run(address: SocketAddr, server: actix_web::dev::Server) -> (ServerHandle, SocketAddr) {
    let handle = server.handle();
    actix_web::rt::spawn(server);
    (handle, address)
}

/// What ends the relay. Made before it says that it is up: from then on it may be ended.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Sent by a terminal that closes, or by somebody who wants settings read anew: no reason to
    /// cut every client.
    hangup: Signal,
}

impl Signals {
    fn install() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) {
        let name = loop {
            tokio::select! {
                _ = self.terminate.recv() => break "SIGTERM",
                _ = self.interrupt.recv() => break "SIGINT",
                _ = self.hangup.recv() => tracing::warn!(
                    "SIGHUP: settings are read at the start only; the relay runs on"
                ),
            }
        };
        tracing::info!(
            signal = name,
            "shutting down; a second signal ends it at once"
        );
    }
}

async fn shut_down(
    config: &Config,
    rooms: &Rooms,
    draining: &AtomicBool,
    public: &ServerHandle,
    refresher: &Addr<FlagRefresher>,
) {
    // New sockets are told 503; those that are open are closed one by one, what is in work answered.
    draining.store(true, Ordering::Release);
    let began = Instant::now();
    if rooms
        .roster
        .send(Drain {
            over: config.server.drain,
        })
        .await
        .is_err()
    {
        tracing::error!("the roster is gone: sockets are closed all at once");
    }
    // The sockets are closed: what is still in work are REST calls.
    let left = config.server.drain.saturating_sub(began.elapsed());
    if actix_web::rt::time::timeout(left, rooms.handlers.all_back())
        .await
        .is_err()
    {
        tracing::warn!("calls are in work at the end; they get no answer");
    }
    match rooms.writer.send(Settle).timeout(LAST_WRITES).await {
        Ok(_) => {}
        Err(MailboxError::Timeout) => tracing::error!(
            "the database does not take the last events; they stay without an answer"
        ),
        Err(MailboxError::Closed) => tracing::error!("the writer is gone"),
    }
    // The answers go out, for as long as the server waits at its end.
    public.stop(true).await;
    // On the refresher's thread, which is left behind where the source does not keep to its time.
    let within = LAST_FLAGS * 9 / 10;
    if let Err(error) = refresher.send(Flush { within }).timeout(LAST_FLAGS).await {
        tracing::warn!(%error, "feature flags: the last events were not delivered");
    }
    tracing::info!("relay is down");
}
