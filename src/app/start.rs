//! Starts the actors, downstream first, and the two servers.

use std::{
    net::SocketAddr,
    num::NonZeroU64,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use actix::{Actor, Addr, Arbiter, Handler, SyncArbiter};
use actix_web::{App, HttpServer, dev::ServerHandle, web::Data};
use anyhow::{Context, Result};
use buzz_actors::{
    admission::{Admission, AdmissionSettings},
    committed::Committed,
    db_reader::{CountEvents, DbReader, LookUpRole, Read, RoleLookUp, Start},
    fanout::Fanout,
    flag_refresher::{Cap, FlagRefresher, Refresh},
    flags::{AUTH, FlagSource, HISTORY_READS},
    gate::{Acquire, Gate, GatePermit, Work},
    metrics::{FlagMetrics, GateMetrics, Metrics},
    permits::Permits,
    ports::{EventStore, Purpose},
    registry::ConnectionRegistry,
    replay::{self, Replay},
    services::Services,
    shared::Shared,
    verifier::Verifier,
    writer::Writer,
};

use super::open_files::{ADMIN_SOCKETS, OpenFiles, cores};
use crate::{
    commands::unix_now,
    config::Config,
    http::{
        admin::{self, Admin},
        public::{self, Public},
    },
    shared_budget,
};

/// A request head must be whole within this time, so that a slow handshake costs little.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// An idle connection for REST calls stays open so long: longer than a proxy in front keeps its own
/// (nginx: 60 s), so that none is closed while a request is on its way.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// After the relay's side has closed, the client's side may take this long. Not less: the HTTP
/// server reckons it from a clock that is up to half a second late, and never fires a timer that
/// has passed already.
const CLOSING: Duration = Duration::from_secs(1);
/// The start does not wait longer for a flag source that blocks; the caps are at their ceilings then.
const FIRST_FLAGS: Duration = Duration::from_secs(5);
/// The end waits so many seconds for answers to REST calls to go out.
const LAST_CALLS_SECS: u64 = 1;

pub(super) fn start_services(config: &Config, store: Arc<dyn EventStore>) -> Result<Services> {
    let files = OpenFiles::provide(config);
    files.warn(config);
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
    let verifier = {
        let (writer, metrics) = (writer.clone(), metrics.clone());
        SyncArbiter::start(cores(), move || {
            Verifier::new(writer.clone(), metrics.clone())
        })
    };
    let readers = start_readers(config, &store, &metrics);
    let quotas = config.admission.quotas();
    let admission = AdmissionSettings {
        quotas,
        guards: config.admission.guards(),
        shared: shared_budget::open(&config.admission)?,
    };
    Ok(Services {
        admission: Admission::start(&admission, cores(), &metrics),
        verifier,
        writer,
        reader: readers.reader,
        authorizer: readers.authorizer,
        history_gate: readers.history_gate,
        count_gate: readers.count_gate,
        auth_gate: readers.auth_gate,
        recheck_gate: readers.recheck_gate,
        fanout,
        replay: Replay::new(replay::MAX_REMEMBERED, unix_now).start(),
        registry: ConnectionRegistry::default().start(),
        shared: Arc::new(Shared {
            settings: config.settings(),
            quotas,
            metrics,
            frames: Permits::new(config.server.handler_permits),
        }),
        committed,
        sockets: Permits::new(files.connections),
        clock: unix_now,
    })
}

/// The readers, and the gates in front of them.
struct Readers {
    reader: Addr<DbReader>,
    authorizer: Addr<DbReader>,
    history_gate: Addr<Gate<Read>>,
    count_gate: Addr<Gate<CountEvents>>,
    auth_gate: Addr<Gate<RoleLookUp>>,
    recheck_gate: Addr<Gate<LookUpRole>>,
}

/// Reads of history take no more connections than their gate lets pass; the rest is for logins.
/// The gates run on this thread, where the way to the readers' threads begins: a permit that comes
/// back and the read that gets it then wake one thread, not two.
fn start_readers(config: &Config, store: &Arc<dyn EventStore>, metrics: &Metrics) -> Readers {
    let start = |threads, purpose| {
        let (store, metrics) = (Arc::clone(store), metrics.clone());
        SyncArbiter::start(threads, move || {
            DbReader::new(Arc::clone(&store), purpose, metrics.clone())
        })
    };
    let readers = config.database.readers;
    let history_ceiling = buzz_gate::reader_ceiling(readers as u64);
    let history = history_ceiling.get() as usize;
    let reader = start(history, Purpose::History);
    let authorizer = start(
        readers.saturating_sub(history).max(1),
        Purpose::Authorization,
    );
    let history_gate = start_gate(
        ("history_reads", Some(history_ceiling), config.history.wait),
        &metrics.history_gate,
        send_to(reader.clone()),
    );
    let counts = NonZeroU64::new(history_ceiling.get() / 4).unwrap_or(NonZeroU64::MIN);
    let next_gate = history_gate.clone();
    let count_gate = start_gate(
        ("counts", Some(counts), config.history.wait),
        &metrics.count_gate,
        move |count: CountEvents, share| {
            let since = count.since;
            let work = Read::Count(Box::new(count), share);
            next_gate.do_send(Acquire { work, since });
        },
    );
    let auth_gate = start_gate(
        ("auth", None, config.auth.wait),
        &metrics.auth_gate,
        send_to(authorizer.clone()),
    );
    let next_gate = auth_gate.clone();
    let recheck_gate = start_gate(
        ("rechecks", Some(NonZeroU64::MIN), config.auth.recheck),
        &metrics.recheck_gate,
        move |look_up: LookUpRole, share| {
            next_gate.do_send(Acquire {
                work: RoleLookUp::Recheck(look_up, share),
                since: Instant::now(),
            });
        },
    );
    Readers {
        reader,
        authorizer,
        history_gate,
        count_gate,
        auth_gate,
        recheck_gate,
    }
}

/// Starts a gate: its name, its ceiling, the longest wait, and where admitted work goes.
fn start_gate<W: Work>(
    (name, ceiling, wait): (&'static str, Option<NonZeroU64>, Duration),
    metrics: &GateMetrics,
    start: impl Fn(W, GatePermit<W>) + Send + 'static,
) -> Addr<Gate<W>> {
    Gate::new(name, ceiling, wait, metrics.clone(), start).start()
}

/// Sends admitted work to a pool of readers.
fn send_to<W: Work>(readers: Addr<DbReader>) -> impl Fn(W, GatePermit<W>) + Send
where
    DbReader: Handler<Start<W>>,
{
    move |work, permit| readers.do_send(Start { work, permit })
}

/// Starts what sets the gates' limits, and waits for the first ones: no socket is open yet.
pub(super) async fn start_refresher(
    config: &Config,
    flags: Box<dyn FlagSource>,
    services: &Services,
) -> Addr<FlagRefresher> {
    let metrics = FlagMetrics::register(flags.provider());
    let caps = vec![
        Cap {
            flag: HISTORY_READS,
            gate: services.history_gate.clone().recipient(),
        },
        Cap {
            flag: AUTH,
            gate: services.auth_gate.clone().recipient(),
        },
    ];
    let every = config.feature_flags.refresh;
    let refresher = in_own_thread(move || FlagRefresher::new(flags, caps, every, metrics));
    if let Err(error) = refresher.send(Refresh).timeout(FIRST_FLAGS).await {
        tracing::error!(%error, "feature flags: no values yet; the caps start at their ceilings");
    }
    refresher
}

/// Starts an actor whose handlers take their time, so that they hold up no socket.
fn in_own_thread<A>(actor: impl FnOnce() -> A + Send + 'static) -> Addr<A>
where
    A: Actor<Context = actix::Context<A>>,
{
    A::start_in_arbiter(&Arbiter::new().handle(), move |_| actor())
}

pub(super) fn start_public(
    config: &Config,
    services: Arc<Services>,
    draining: Arc<AtomicBool>,
) -> Result<(ServerHandle, SocketAddr)> {
    let trusted_proxies = config.server.trusted_proxies.clone();
    let public = Data::new(Public::new(services, trusted_proxies, draining)?);
    let address = config.server.listen;
    let sockets = OpenFiles::provide(config).sockets;
    let server = HttpServer::new(move || {
        App::new()
            .app_data(public.clone())
            .configure(public::routes)
    })
    .on_connect(public::on_connect)
    .workers(cores())
    .shutdown_timeout(LAST_CALLS_SECS)
    .keep_alive(KEEP_ALIVE)
    // The server counts each worker's alone.
    .max_connections((sockets / cores()).max(1))
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

pub(super) fn start_admin(config: &Config, admin: Admin) -> Result<(ServerHandle, SocketAddr)> {
    let admin = Data::new(admin);
    let address = config.server.admin_listen;
    let server =
        HttpServer::new(move || App::new().app_data(admin.clone()).configure(admin::routes))
            .workers(1)
            .max_connections(ADMIN_SOCKETS as usize)
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
