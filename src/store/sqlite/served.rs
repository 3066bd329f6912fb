//! One relay serves a file. The lock is on the file itself (`flock`), so it does not matter by which
//! name or link somebody comes to it. SQLite's own locks (`fcntl`) are of another kind and do not
//! meet it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    os::unix::fs::MetadataExt,
    path::Path,
};

use buzz_actors::ports::StoreError;

use crate::store::fault::Fault;

/// Held by the one relay that serves a SQLite file. Kept open to the process's end: closing it
/// would take SQLite's locks away.
#[derive(Debug)]
pub struct Served {
    _lock: File,
}

impl Served {
    /// Locks the file, which is made where there is none.
    pub(in crate::store) fn lock(path: &Path) -> Result<Self, StoreError> {
        let place = path.display().to_string();
        let failed = |error| Fault::Unreachable.at(&place, error);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _lock: file }),
            Err(TryLockError::WouldBlock) => {
                Err(Fault::Busy.at(place, "another relay serves this file"))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// SQLite keeps a file's log beside the name it was opened by, and resolves symbolic links only. By
/// a second hard link, a program would miss the log that the relay writes, and break the file.
///
/// # Errors
/// When the file has several names.
pub(super) fn check_links(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.nlink() > 1 => {
            let why = format!(
                "the file has {} names (hard links), and SQLite's log belongs to one of them; \
                 copy it, or remove the others",
                meta.nlink()
            );
            Err(Fault::Failed.at(path.display().to_string(), why))
        }
        _ => Ok(()),
    }
}
