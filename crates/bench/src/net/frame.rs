//! WebSocket frames (RFC 6455, section 5): client frames are written masked, relay frames are
//! read in place.

use anyhow::{Result, bail, ensure};

/// A constant mask: the relay unmasks whatever it is, and it hides nothing from anyone here.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x17, 0x8e];

/// The largest message a relay may send; past it the socket counts as broken.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

/// Where a frame's payload stands in the buffer it was read from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The last frame of its message.
    pub(super) fin: bool,
    pub(super) opcode: Opcode,
    /// The first byte of the payload.
    pub(super) start: usize,
    /// One past the last; the next frame starts here.
    pub(super) end: usize,
}

/// Reads the frame at the start of `buf`; `None` until all of it is there.
///
/// # Errors
/// When the bytes can't be a relay's frame.
pub(super) fn read_header(buf: &[u8]) -> Result<Option<Header>> {
    let &[first, second, ..] = buf else {
        return Ok(None);
    };
    ensure!(first & 0x70 == 0, "the relay set a reserved bit in a frame");
    ensure!(second & 0x80 == 0, "the relay masked a frame");
    let opcode = match first & 0x0f {
        0 => Opcode::Continuation,
        1 => Opcode::Text,
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        other => bail!("the relay sent a frame with opcode {other}"),
    };
    let (start, length) = match second {
        126 => match buf.get(2..4) {
            Some(&[a, b]) => (4, u64::from(u16::from_be_bytes([a, b]))),
            _ => return Ok(None),
        },
        127 => match buf.get(2..10).and_then(|bytes| bytes.try_into().ok()) {
            Some(bytes) => (10, u64::from_be_bytes(bytes)),
            None => return Ok(None),
        },
        short => (2, u64::from(short)),
    };
    ensure!(
        length <= MAX_MESSAGE_BYTES as u64,
        "the relay sent a frame of {length} bytes"
    );
    let end = start + length as usize;
    Ok((end <= buf.len()).then_some(Header {
        fin: first & 0x80 != 0,
        opcode,
        start,
        end,
    }))
}

/// Appends one masked text frame, whose payload is `parts` one after the other.
pub(crate) fn push_text(out: &mut Vec<u8>, parts: &[&[u8]]) {
    push_frame(out, Opcode::Text, parts);
}

/// Appends one masked frame.
pub(super) fn push_frame(out: &mut Vec<u8>, opcode: Opcode, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(0x80 | opcode as u8);
    match length {
        0..126 => out.push(0x80 | length as u8),
        126..0x1_0000 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    let start = out.len();
    for part in parts {
        out.extend_from_slice(part);
    }
    mask(&mut out[start..]);
}

/// Eight bytes at a time, which the compiler turns into wider ones.
fn mask(payload: &mut [u8]) {
    let [a, b, c, d] = MASK;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(MASK.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a client frame by the letter of RFC 6455, section 5.2, byte by byte.
    fn unmask(frame: &[u8]) -> (u8, Vec<u8>) {
        assert_eq!(frame[1] & 0x80, 0x80, "client frames are masked");
        let (at, length) = match frame[1] & 0x7f {
            126 => (4, usize::from(frame[2]) << 8 | usize::from(frame[3])),
            127 => (
                10,
                frame[2..10].iter().fold(0, |n, b| n << 8 | usize::from(*b)),
            ),
            short => (2, usize::from(short)),
        };
        let key = &frame[at..at + 4];
        let payload = &frame[at + 4..];
        assert_eq!(payload.len(), length);
        let plain = payload.iter().enumerate().map(|(i, b)| b ^ key[i % 4]);
        (frame[0], plain.collect())
    }

    #[test]
    fn client_frames_of_every_length_form_are_masked() {
        for length in [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, 70_001] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let (head, tail) = payload.split_at(length / 3);
            let mut out = Vec::new();
            push_text(&mut out, &[head, tail]);
            assert_eq!(unmask(&out), (0x81, payload));
        }
    }

    #[test]
    fn relay_frames_of_every_length_form_are_read() {
        for length in [0usize, 125, 126, 65_535, 65_536] {
            let mut frame = vec![0x81];
            match length {
                0..126 => frame.push(length as u8),
                126..65_536 => {
                    frame.push(126);
                    frame.extend_from_slice(&(length as u16).to_be_bytes());
                }
                _ => {
                    frame.push(127);
                    frame.extend_from_slice(&(length as u64).to_be_bytes());
                }
            }
            let start = frame.len();
            frame.resize(start + length, b'x');
            for cut in [0, 1, start - 1, frame.len() - 1] {
                assert_eq!(read_header(&frame[..cut]).unwrap(), None, "{length} {cut}");
            }
            let header = Header {
                fin: true,
                opcode: Opcode::Text,
                start,
                end: start + length,
            };
            assert_eq!(read_header(&frame).unwrap(), Some(header));
        }
    }

    #[test]
    fn frames_no_relay_may_send_are_errors() {
        for bytes in [
            vec![0xc1, 0],                           // compressed, never agreed on
            vec![0x81, 0x80, 0, 0, 0, 0],            // masked
            vec![0x83, 0],                           // unknown opcode
            vec![0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0], // a terabyte
        ] {
            assert!(read_header(&bytes).is_err(), "{bytes:?}");
        }
    }
}
