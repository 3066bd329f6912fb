//! The admin port: `/metrics` for Prometheus, `/livez` and `/readyz` for whoever restarts relays.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::Addr;
use actix_web::{
    HttpResponse,
    web::{self, Data, ServiceConfig},
};
use buzz_actors::{
    db_reader::{DbReader, Ping},
    flag_refresher::FlagRefresher,
    services::Services,
};
use futures_util::future::join;
use metrics_exporter_prometheus::PrometheusHandle;

/// The database must answer within this time.
const READY_WITHIN: Duration = Duration::from_secs(1);

/// What the handlers share.
pub struct Admin {
    /// The actors that must be there.
    pub services: Arc<Services>,
    /// The same.
    pub refresher: Addr<FlagRefresher>,
    /// What `/metrics` shows.
    pub metrics: PrometheusHandle,
    /// Set when a shutdown begins.
    pub draining: Arc<AtomicBool>,
}

/// The routes.
pub fn routes(config: &mut ServiceConfig) {
    config
        .route("/metrics", web::get().to(metrics))
        .route("/livez", web::get().to(livez))
        .route("/readyz", web::get().to(readyz));
}

async fn metrics(admin: Data<Admin>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain; version=0.0.4")
        .body(admin.metrics.render())
}

async fn livez() -> HttpResponse {
    HttpResponse::Ok().body("ok\n")
}

async fn readyz(admin: Data<Admin>) -> HttpResponse {
    let not_ready = |why: &str| HttpResponse::ServiceUnavailable().body(format!("{why}\n"));
    if admin.draining.load(Ordering::Acquire) {
        return not_ready("draining");
    }
    let mut gone = admin.services.gone();
    if !admin.refresher.connected() {
        gone.push("flag_refresher");
    }
    if !gone.is_empty() {
        return not_ready(&format!("gone: {}", gone.join(", ")));
    }
    // One free reader of each kind is enough; where all of them are stuck, none answers in time.
    let ping = |readers: &Addr<DbReader>| readers.send(Ping).timeout(READY_WITHIN);
    let (history, logins) = join(
        ping(&admin.services.reader),
        ping(&admin.services.authorizer),
    )
    .await;
    for answer in [history, logins] {
        match answer {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return not_ready(&error.to_string()),
            Err(_) => return not_ready("the database does not answer"),
        }
    }
    HttpResponse::Ok().body("ok\n")
}
