use super::*;

/// A client's frame, masked with a fixed key.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut out = vec![first];
    match payload.len() {
        length @ 0..=125 => out.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            out.push(0x80 | 126);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend(mask);
    out.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    out
}

fn decode(max_bytes: usize, bytes: &[u8]) -> Result<Vec<Incoming>, Broken> {
    let mut decoder = Decoder::new(max_bytes);
    let mut messages = Vec::new();
    // One byte at a time: every boundary is met.
    for byte in bytes {
        decoder.push(&[*byte]);
        while let Some(message) = decoder.next_message()? {
            messages.push(message);
        }
    }
    Ok(messages)
}

fn text(payload: &[u8]) -> Incoming {
    Incoming::Text(Bytes::copy_from_slice(payload))
}

#[test]
fn messages_of_each_length_form_are_read() {
    for length in [0, 1, 125, 126, 127, 65_535, 65_536] {
        let payload = vec![b'x'; length];
        let messages = decode(65_536, &frame(0x81, &payload)).expect("a message");
        assert_eq!(messages, [text(&payload)], "{length}");
    }
}

#[test]
fn a_frame_over_the_limit_is_refused_by_its_header() {
    let header = &frame(0x81, &[0; 101])[..2];
    assert!(matches!(
        decode(100, header),
        Err(Broken::TooLarge {
            bytes: 101,
            limit: 100
        })
    ));
    let mut huge = vec![0x81, 0xff];
    huge.extend(u64::MAX.to_be_bytes());
    assert!(matches!(
        decode(100, &huge),
        Err(Broken::TooLarge {
            bytes: usize::MAX,
            ..
        })
    ));
    assert_eq!(
        decode(100, &frame(0x81, &[b'x'; 100])).expect("fits").len(),
        1
    );
}

#[test]
fn fragments_are_joined_around_control_frames_and_summed() {
    let bytes = [
        frame(0x01, b"ab"),
        frame(0x89, b"!"),
        frame(0x00, b"c"),
        frame(0x80, b"d"),
    ]
    .concat();
    let expected = [Incoming::Ping(Bytes::from_static(b"!")), text(b"abcd")];
    assert_eq!(decode(4, &bytes).expect("messages"), expected);
    assert!(matches!(
        decode(3, &bytes),
        Err(Broken::TooLarge { bytes: 4, limit: 3 })
    ));
}

#[test]
fn frames_out_of_order_end_the_socket() {
    for bytes in [
        frame(0x80, b"x"),
        [frame(0x01, b"a"), frame(0x81, b"b")].concat(),
        frame(0x09, b"x"),
        frame(0xC1, b"x"),
        frame(0x83, b"x"),
        frame(0x89, &[0; 126]),
        vec![0x81, 0x01, b'x'],
    ] {
        assert!(
            matches!(decode(1000, &bytes), Err(Broken::Protocol(_))),
            "{bytes:?}"
        );
    }
}

#[test]
fn an_idle_decoder_holds_no_memory() {
    let mut decoder = Decoder::new(1000);
    decoder.push(&frame(0x81, &[b'x'; 500]));
    assert!(decoder.is_unfinished());
    while decoder.next_message().expect("messages").is_some() {}
    assert!(!decoder.is_unfinished());
    assert_eq!(decoder.buffer.capacity(), 0);
}

#[test]
fn written_messages_have_the_shortest_header() {
    for (length, header) in [(125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
        let mut out = BytesMut::new();
        push_text(&mut out, &[&vec![b'x'; length - 1], b"y"]);
        assert_eq!(out.len(), header + length);
        assert_eq!(announced_bytes(&out), Some(length));
    }
    let mut close = BytesMut::new();
    push_close(&mut close, CloseCode::TooLarge, "big");
    assert_eq!(&close[..], b"\x88\x05\x03\xf1big");
}
