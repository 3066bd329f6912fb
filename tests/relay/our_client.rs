//! The client library of this repository against the relay.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use buzz_client::{CertificateDer, Client as BuzzClient, Message, Status, Subscription};
use buzz_protocol::Filter;
use futures_util::StreamExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{self, pki_types::PrivateKeyDer},
};

use serde_json::json;

use buzz_testkit::{Author, Client, Relay, relay::DEFAULT_QUOTAS, soon};

use crate::RELAY;

fn channels(client: &BuzzClient) -> Vec<Subscription> {
    let channel = |n: usize| Filter {
        tags: [(b'h', vec![format!("channel-{n}")])].into(),
        ..Filter::default()
    };
    (0..40)
        .map(|n| client.subscribe(vec![channel(n)]))
        .collect()
}

async fn next_event(channel: &mut Subscription) -> String {
    soon("an event of the channel", async {
        loop {
            match channel.next().await.expect("an open channel") {
                Message::Event(event) => return event.content.clone(),
                Message::CaughtUp => {}
                Message::Closed(reason) => panic!("closed: {reason}"),
            }
        }
    })
    .await
}

/// Kills: a REQ for each channel; the message sent after the REQs that wait for their window; the
/// old relay's quota counted on the new one.
#[tokio::test]
async fn a_client_with_forty_channels_switches_relay_and_sends_at_once() {
    let first = RELAY.start_with(DEFAULT_QUOTAS).await;
    let second = RELAY.start_with(DEFAULT_QUOTAS).await;
    let author = Author::new(1);
    let mut publisher = Client::connect(&second).await;
    let stored = author.note("stored").tag(&["h", "channel-39"]).sign();
    publisher.accept(&stored).await;

    let client = BuzzClient::builder(first.url())
        .connect()
        .expect("a client");
    let mut channels = channels(&client);
    let here = author.note("here").tag(&["h", "channel-0"]).sign();
    soon("the first relay's OK", client.publish(here))
        .await
        .expect("published");
    assert_eq!(next_event(&mut channels[0]).await, "here");

    client.switch(second.url()).expect("a URL");
    let began = Instant::now();
    let there = author.note("there").tag(&["h", "channel-1"]).sign();
    soon("the second relay's OK", client.publish(there))
        .await
        .expect("published");
    let took = began.elapsed();
    // A refused frame would have to wait for five seconds.
    assert!(
        took < Duration::from_secs(4),
        "the first send took {took:?}"
    );
    assert_eq!(next_event(&mut channels[1]).await, "there");
    assert_eq!(next_event(&mut channels[39]).await, "stored");
    let live = author.note("live").tag(&["h", "channel-20"]).sign();
    publisher.accept(&live).await;
    assert_eq!(next_event(&mut channels[20]).await, "live");
    for relay in [&first, &second] {
        let metrics = relay.metrics().await;
        assert_eq!(metrics.sum("buzz_admission_rejections_total"), 0.0);
    }
    // Four REQs and a message at each relay.
    assert_eq!((client.refusals(), client.frames_sent()), (0, 10));
    client.close().await;
}

/// Kills: a message that fails although its retry would be in time; one that is sent before the
/// wait is over (it would be refused again, and then finally); a refused REQ that is not asked again.
#[tokio::test]
async fn a_client_forced_over_quota_sends_and_reads_once_the_gate_clears() {
    let relay = RELAY.start_with(DEFAULT_QUOTAS).await;
    let author = Author::new(1);
    // The same address, so the same quota; the client knows nothing of it.
    let mut neighbour = Client::connect(&relay).await;
    for _ in 0..50 {
        assert_eq!(neighbour.count(json!({"kinds": [1]})).await, Ok(0));
    }
    let began = Instant::now();
    let client = BuzzClient::builder(relay.url())
        .connect()
        .expect("a client");
    let note = author.note("after all").tag(&["h", "channel-5"]).sign();
    let published = client.publish(note);
    let mut channels = channels(&client);
    soon("the OK", published).await.expect("published");
    assert_eq!(next_event(&mut channels[5]).await, "after all");
    assert!(client.refusals() >= 1, "the quota was not used up");
    let metrics = relay.metrics().await;
    let refused = metrics.sum("buzz_admission_rejections_total");
    // All that was on its way when the first refusal came, and nothing later.
    assert!((1.0..=5.0).contains(&refused), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(20));
    client.close().await;
}

/// Kills: a pace that ignores the quota that the relay advertises.
#[tokio::test]
async fn a_client_keeps_to_the_quota_that_the_relay_advertises() {
    let relay = RELAY
        .start_with(
            "admission.human_ws_events_per_sec = 2\nadmission.agent_ws_events_per_sec = 2\n\
         admission.burst_window = \"2s\"",
        )
        .await;
    let client = BuzzClient::builder(relay.url())
        .connect()
        .expect("a client");
    let author = Author::new(1);
    // One by one, so that the relay's information is there before its quota is used up.
    let began = Instant::now();
    for n in 0..3 {
        let note = author.note(&n.to_string()).sign();
        soon("an OK", client.publish(note))
            .await
            .expect("published");
    }
    let burst: Vec<_> = (3..9)
        .map(|n| client.publish(author.note(&n.to_string()).sign()))
        .collect();
    for published in burst {
        soon("an OK", published).await.expect("published");
    }
    // Four in the first window, four in the second, one in the third.
    assert!(began.elapsed() >= Duration::from_secs(4));
    assert_eq!(client.refusals(), 0);
    client.close().await;
}

/// A proxy that ends TLS for the relay, as in front of a public one; its address.
async fn tls_proxy(
    relay: &Relay,
    key: &rcgen::KeyPair,
    certificate: CertificateDer<'static>,
) -> SocketAddr {
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate and its key");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, relay) = (listener.local_addr().expect("an address"), relay.addr);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust the certificate ends here.
                let Ok(mut client) = acceptor.accept(stream).await else {
                    return;
                };
                let mut relay = TcpStream::connect(relay).await.expect("the relay");
                let _ = copy_bidirectional(&mut client, &mut relay).await;
            });
        }
    });
    address
}

/// Kills: a root certificate that is not used for the socket or for the relay's information; a
/// client that trusts anyone.
#[tokio::test]
async fn over_tls_a_client_reaches_a_relay_whose_authority_it_was_told() {
    let relay = RELAY.start().await;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let root = authority.self_signed(&authority_key).expect("a root");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names)
        .and_then(|params| params.signed_by(&key, &issuer))
        .expect("a certificate");
    let proxy = tls_proxy(&relay, &key, certificate.der().clone()).await;
    let url = format!("wss://127.0.0.1:{}", proxy.port());

    let client = BuzzClient::builder(&url)
        .root_certificate(root.der().clone())
        .connect()
        .expect("a client");
    let mut channels = channels(&client);
    let author = Author::new(1);
    let note = author.note("over tls").tag(&["h", "channel-3"]).sign();
    soon("the OK", client.publish(note))
        .await
        .expect("published");
    assert_eq!(next_event(&mut channels[3]).await, "over tls");
    client.close().await;

    let stranger = BuzzClient::builder(&url).connect().expect("a client");
    let mut statuses = stranger.status();
    soon("a refused certificate", async {
        loop {
            match statuses.next().await.expect("a status") {
                Status::Offline { .. } => break,
                Status::Online => panic!("trusted a stranger"),
                _ => {}
            }
        }
    })
    .await;
}
