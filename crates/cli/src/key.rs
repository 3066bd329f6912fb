//! Where the secret key comes from: a file or the environment, never an argument, which every
//! user of the machine can see.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use buzz_protocol::nip19;
use secp256k1::Keypair;

use crate::failure::Failure;

const VARIABLE: &str = "BUZZ_SECRET_KEY";

/// Reads the key.
pub(crate) fn load(file: Option<&Path>) -> Result<Keypair, Failure> {
    let (place, text) = match (file, std::env::var(VARIABLE)) {
        (Some(file), _) => {
            let place = file.display().to_string();
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| Failure::usage(format_args!("{place}: {error}")))?;
            warn_if_others_can_read(file);
            (place, text)
        }
        (None, Ok(text)) => (VARIABLE.to_owned(), text),
        (None, Err(_)) => {
            let why = format!(
                "a secret key is needed: set {VARIABLE}, or name a --key-file; `buzz keygen` makes one"
            );
            return Err(Failure::Usage(why));
        }
    };
    let secret = nip19::parse_secret_key(text.trim());
    let secret = secret.map_err(|error| Failure::usage(format_args!("{place}: {error}")))?;
    Keypair::from_secret_bytes(secret)
        .map_err(|_| Failure::usage(format_args!("{place}: this is no secret key")))
}

fn warn_if_others_can_read(file: &Path) {
    let mode = std::fs::metadata(file).map(|found| found.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o077 != 0) {
        let file = file.display();
        eprintln!("warning: others can read {file}; chmod 600 keeps the key yours");
    }
}

/// Writes a key into a new file that nobody else can read.
pub(crate) fn store(file: &Path, nsec: &str) -> Result<(), Failure> {
    let opened: std::io::Result<File> = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    opened
        .and_then(|mut opened| writeln!(opened, "{nsec}"))
        .map_err(|error| Failure::usage(format_args!("{}: {error}", file.display())))
}
