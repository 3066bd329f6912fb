//! The texts that the programs read: settings, feature flags, certificates. Each is read once, so
//! that what was checked is what counts, also where it comes through a pipe.

use std::{
    fs::File,
    io::{Error, ErrorKind, Read, Result},
    os::unix::fs::FileTypeExt,
    path::Path,
};

/// What an editor may put before the text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a file, a pipe or a device to its end.
///
/// # Errors
/// When it can't be read or is not UTF-8, and when nothing comes through a pipe: the command that
/// should have written it has failed.
pub(crate) fn read(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if bytes.trim_ascii().is_empty() && file.metadata()?.file_type().is_fifo() {
        return Err(Error::new(
            ErrorKind::UnexpectedEof,
            "nothing came through the pipe",
        ));
    }
    decode(bytes)
}

/// The text in `bytes`, without a byte order mark.
///
/// # Errors
/// When it is not UTF-8; names the line.
pub(crate) fn decode(mut bytes: Vec<u8>) -> Result<String> {
    let invalid = |why: String| Err(Error::new(ErrorKind::InvalidData, why));
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return invalid("the text is UTF-16; it must be UTF-8".into());
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            invalid(format!("line {line} is not UTF-8"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: a mark that is kept; UTF-16 read as something else; a wrong line number.
    #[test]
    fn text_is_utf_8_with_or_without_a_mark() {
        let text = |bytes: &[u8]| decode(bytes.to_vec()).map_err(|error| error.to_string());
        assert_eq!(text(b"a = 1\r\n").as_deref(), Ok("a = 1\r\n"));
        assert_eq!(text(b"\xef\xbb\xbfa = 1").as_deref(), Ok("a = 1"));
        assert_eq!(text(b"").as_deref(), Ok(""));
        let why = "the text is UTF-16; it must be UTF-8";
        assert_eq!(text(b"\xff\xfea\0"), Err(why.into()));
        assert_eq!(text(b"a\nb\n\xff"), Err("line 3 is not UTF-8".into()));
    }
}
