//! Against a peer that writes its bytes as the test says, in the pieces the test says.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use super::*;
use crate::net::push_text;

/// Accepts one socket, answers the upgrade with `behind` glued to it, then runs `then`.
fn peer(
    behind: &'static [u8],
    then: impl FnOnce(TcpStream) + Send + 'static,
) -> (Sockets, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let peer = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.set_nodelay(true).unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let mut answer = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: \
            s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
            .to_vec();
        answer.extend_from_slice(behind);
        stream.write_all(&answer).unwrap();
        then(stream);
    });
    let sockets = Sockets::connect(&url.parse().unwrap(), 1).unwrap();
    (sockets, peer)
}

/// Everything that comes until the peer ends.
fn run_to_end(sockets: &mut Sockets) -> (Vec<String>, String) {
    let (mut texts, mut end) = (Vec::new(), None);
    let start = Instant::now();
    while end.is_none() {
        assert!(start.elapsed() < Duration::from_secs(30), "no end was seen");
        let handler = |_, incoming: Incoming<'_>, _, _: &mut Vec<u8>| {
            match incoming {
                Incoming::Text(text) => texts.push(String::from_utf8(text.to_vec()).unwrap()),
                Incoming::Closed(why) => end = Some(why.to_owned()),
            }
            Ok(())
        };
        sockets.turn(Duration::from_secs(10), handler).unwrap();
    }
    (texts, end.unwrap())
}

#[test]
fn messages_survive_any_cut_and_close_frames_name_their_reason() {
    let (mut sockets, peer) = peer(b"\x81\x02h", |mut stream| {
        // "hi" (its head came with the handshake), "abc" in three frames with a ping between,
        // then a close; one byte a write.
        let bytes = b"i\x01\x01a\x89\x01p\x00\x01b\x80\x01c\x88\x05\x03\xf1bye";
        for byte in bytes {
            stream.write_all(&[*byte]).unwrap();
            thread::yield_now();
        }
        let mut pong = [0; 7];
        stream.read_exact(&mut pong).unwrap();
        assert_eq!((pong[0], pong[1], pong[6] ^ pong[2]), (0x8a, 0x81, b'p'));
    });
    let (texts, end) = run_to_end(&mut sockets);
    assert_eq!(texts, ["hi", "abc"]);
    assert_eq!(end, "the relay closed the socket: 1009 bye");
    assert_eq!((sockets.len(), sockets.closed()), (1, 1));
    peer.join().unwrap();
}

#[test]
fn more_than_a_read_and_more_than_a_write_pass_whole() {
    const MANY: usize = 1_000_000;
    let (mut sockets, peer) = peer(b"", |mut stream| {
        let mut sent = vec![0; 14 + MANY];
        stream.read_exact(&mut sent).unwrap();
        let key: [u8; 4] = sent[10..14].try_into().unwrap();
        let plain: Vec<u8> = sent[14..]
            .iter()
            .zip(key.iter().cycle())
            .map(|(b, k)| b ^ k)
            .collect();
        let mut frame = vec![0x81, 127];
        frame.extend_from_slice(&(MANY as u64).to_be_bytes());
        frame.extend_from_slice(&plain);
        stream.write_all(&frame).unwrap();
    });
    let text: Vec<u8> = (0..MANY).map(|i| b'a' + (i % 23) as u8).collect();
    sockets.send(0, |out| push_text(out, &[&text]));
    let (texts, end) = run_to_end(&mut sockets);
    assert!(texts.len() == 1 && texts[0].as_bytes() == text);
    assert!(end.contains("without a close frame"), "{end}");
    peer.join().unwrap();
}

#[test]
fn data_and_end_that_arrive_together_are_both_seen() {
    let (mut sockets, peer) = peer(b"", |mut stream| stream.write_all(b"\x81\x02hi").unwrap());
    // Both are there before the first turn, so that one readiness event stands for both.
    peer.join().unwrap();
    let (texts, end) = run_to_end(&mut sockets);
    assert_eq!(texts, ["hi"]);
    assert!(end.contains("without a close frame"), "{end}");
}

#[test]
fn a_refused_upgrade_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let peer = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream
            .write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
            .unwrap();
    });
    let error = Sockets::connect(&url.parse().unwrap(), 1).err().unwrap();
    assert!(
        format!("{error:#}").contains("503 Service Unavailable"),
        "{error:#}"
    );
    peer.join().unwrap();
    let error = Sockets::connect(&url.parse().unwrap(), 1).err().unwrap();
    assert!(format!("{error:#}").contains("can't connect"), "{error:#}");
}
