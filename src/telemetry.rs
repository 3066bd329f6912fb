//! Logs, traces and the metrics exporter, with their settings (`[telemetry]`).

use std::{sync::Arc, time::Duration};

use actix_web::http::Uri;
use anyhow::{Context, Result};
use buzz_actors::metrics::{BATCH_BUCKETS, SECONDS_BUCKETS, WRITE_BATCH_EVENTS};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, hyper::HyperClient};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{LevelFilter, ParseError},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::values;

/// `[telemetry]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// A level, or directives such as `info,access=off`.
    #[serde(with = "values::text")]
    pub log: String,
    /// `text` for people, `json` for machines.
    pub log_format: LogFormat,
    /// Where traces go (OTLP over HTTP); empty: nowhere.
    #[serde(with = "values::text")]
    pub otlp_endpoint: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            log: "info".into(),
            log_format: LogFormat::Text,
            otlp_endpoint: String::new(),
        }
    }
}

impl Settings {
    /// The bounds that types don't hold: the key that crosses one, and why it does.
    pub(crate) fn check(&self, wrong: &mut Vec<(&'static str, String)>) {
        let endpoint = &self.otlp_endpoint;
        let shown = values::mask_password(endpoint);
        let is_http = endpoint.starts_with("http://") || endpoint.starts_with("https://");
        if !endpoint.is_empty() && !is_http {
            let why = format!("`{shown}` does not start with http:// or https://");
            wrong.push(("telemetry.otlp_endpoint", why));
        } else if !endpoint.is_empty() && endpoint.parse::<Uri>().is_err() {
            let why = format!("`{shown}` is no URL such as \"http://localhost:4318\"");
            wrong.push(("telemetry.otlp_endpoint", why));
        }
        let mut directives = self.log.split(',');
        if let Some(word) =
            directives.find(|d| !d.contains('=') && d.parse::<LevelFilter>().is_err())
        {
            let why = format!(
                "`{word}` is neither a level (error, warn, info, debug, trace, off) nor target=level"
            );
            wrong.push(("telemetry.log", why));
        } else if let Err(error) = parse_filter(&self.log) {
            wrong.push(("telemetry.log", error.to_string()));
        }
    }
}

/// Reads a log setting. The HTTP server's own lines are left out, unless asked for:
/// strangers make errors in it as they like.
///
/// # Errors
/// When it is neither a level nor a list of directives.
pub fn parse_filter(log: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(format!("actix_server=warn,actix_http=off,{log}"))
}

/// Keeps the trace exporter alive; flushes it at the end.
pub struct Telemetry {
    traces: Option<(SdkTracerProvider, Runtime)>,
    /// Writes what is left of the log when it is dropped.
    _log: WorkerGuard,
}

/// Starts logs, and traces where an endpoint is set. Logs go to stderr.
///
/// # Errors
/// When the filter or the endpoint is wrong.
pub fn start(settings: &Settings) -> Result<Telemetry> {
    let filter = parse_filter(&settings.log).context("telemetry.log")?;
    // If the log's reader stalls, lines are dropped and counted, so that no socket waits.
    let (writer, log) = tracing_appender::non_blocking(std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match settings.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let traces = match settings.otlp_endpoint.as_str() {
        "" => None,
        endpoint => Some(trace_exporter(endpoint).context("telemetry.otlp_endpoint")?),
    };
    // Spans are made only where someone collects them: the log filter must not see them.
    let spans = traces.as_ref().map(|(provider, _)| {
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("buzz-relay"));
        layer.with_filter(tracing_subscriber::filter::filter_fn(|meta| {
            meta.is_span() && meta.target().starts_with("buzz_")
        }))
    });
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(spans)
        .init();
    Ok(Telemetry { traces, _log: log })
}

impl Telemetry {
    /// Sends what traces are left; waits at most two seconds.
    pub fn shutdown(self) {
        if let Some((provider, runtime)) = self.traces {
            if let Err(error) = provider.shutdown_with_timeout(Duration::from_secs(2)) {
                tracing::warn!(%error, "the last traces were not sent");
            }
            runtime.shutdown_background();
        }
    }
}

fn trace_exporter(endpoint: &str) -> Result<(SdkTracerProvider, Runtime)> {
    // The batch processor calls the client from a thread without a reactor, so the requests run
    // on a runtime of their own, which outlives the actors.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("traces")
        .enable_all()
        .build()?;
    let client = {
        let _in_runtime = runtime.enter();
        HyperClient::with_default_connector(Duration::from_secs(5), None)
    };
    let client = OnRuntime {
        client: Arc::new(client),
        runtime: runtime.handle().clone(),
    };
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()?;
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name("buzz-relay").build())
        .with_batch_exporter(exporter)
        .build();
    Ok((provider, runtime))
}

#[derive(Debug)]
struct OnRuntime {
    client: Arc<HyperClient>,
    runtime: tokio::runtime::Handle,
}

#[async_trait::async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = Arc::clone(&self.client);
        self.runtime
            .spawn(async move { client.send_bytes(request).await })
            .await?
    }
}

/// Installs the metrics recorder.
///
/// # Errors
/// When one is installed already.
pub fn install_metrics() -> Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets(&SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(WRITE_BATCH_EVENTS.into()), &BATCH_BUCKETS)?
        .install_recorder()?;
    metrics::gauge!(
        "buzz_build_info",
        "version" => env!("CARGO_PKG_VERSION"),
        "commit" => option_env!("BUZZ_COMMIT").unwrap_or("unknown")
    )
    .set(1.0);
    metrics::describe_gauge!("buzz_build_info", "The running version.");
    Ok(handle)
}
