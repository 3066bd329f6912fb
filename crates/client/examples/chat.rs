//! Reads a channel and writes into it: `cargo run -p buzz-client --example chat -- ws://localhost:3000`.
//! Lines from standard input are published; what others write is printed. Ends with the input.

use std::{
    io::BufRead,
    time::{SystemTime, UNIX_EPOCH},
};

use buzz_client::{Client, Message};
use buzz_protocol::{Event, Filter, Tag, UnsignedEvent};
use secp256k1::{Keypair, rand};

const CHANNEL: &str = "lobby";

fn message(text: String, keys: &Keypair) -> Event {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let unsigned = UnsignedEvent {
        created_at: now.map_or(0, |since| since.as_secs()),
        kind: 9,
        tags: vec![Tag::new(["h", CHANNEL])],
        content: text,
    };
    unsigned.sign(keys)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "ws://localhost:3000".to_owned());
    let keys = Keypair::new(&mut rand::rng());
    let client = Client::builder(url).signer(keys).connect()?;

    let mut channel = client.subscribe(vec![Filter {
        kinds: Some(vec![9]),
        tags: [(b'h', vec![CHANNEL.to_owned()])].into(),
        limit: Some(20),
        ..Filter::default()
    }]);
    let reader = tokio::spawn(async move {
        while let Some(message) = channel.next().await {
            match message {
                Message::Event(event) => println!("{}: {}", event.pubkey, event.content),
                Message::CaughtUp => println!("-- from here on live --"),
                Message::Closed(reason) => println!("-- closed: {reason} --"),
            }
        }
    });

    // Standard input has no place on the runtime's one thread.
    let (lines, mut typed) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = typed.recv().await {
        // It arrives by itself, or this says why not; within 25 seconds either way.
        match client.publish(message(line, &keys)).await {
            Ok(_) => {}
            Err(error) => eprintln!("-- not sent: {error} --"),
        }
    }
    client.close().await;
    reader.await?;
    Ok(())
}
