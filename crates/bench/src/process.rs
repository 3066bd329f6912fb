//! What the system says about processes and files: CPU time, resident memory, disk space.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, Result};
use rustix::{
    process::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// The relay's process, by its id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relay {
    pub(crate) pid: u32,
}

impl Relay {
    /// CPU time of all its threads since it started, user and system, in microseconds (to the
    /// system's clock tick, 10 ms).
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn cpu_us(self) -> Result<f64> {
        let stat = self.read("stat")?;
        // The name in parentheses may hold anything; utime and stime are fields 14 and 15.
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks = |at: usize| fields.get(at - 3).and_then(|f| f.parse::<u64>().ok());
        let (user, system) = ticks(14).zip(ticks(15)).context("unreadable stat")?;
        let tick_us = 1e6 / rustix::param::clock_ticks_per_second() as f64;
        Ok((user + system) as f64 * tick_us)
    }

    /// Its resident memory in KiB.
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn rss_kib(self) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.context("no VmRSS: has the relay ended?")? as f64)
    }

    fn read(self, file: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid))
            .with_context(|| format!("--relay-pid {}: no such process", self.pid))
    }
}

/// This tool's own CPU time, in microseconds.
pub(crate) fn own_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Raises this process's limit of open files as far as it may.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused: opening the sockets will say which limit is in the way.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Bytes on disk of every file whose path starts with `prefix`, and of all below where it is a
/// folder; by name.
///
/// # Errors
/// When the folder that should hold them can't be read.
pub(crate) fn disk_bytes(prefix: &Path) -> Result<BTreeMap<String, u64>> {
    let name = prefix.file_name().unwrap_or_default().to_string_lossy();
    let parent = match prefix.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut files = BTreeMap::new();
    let entries = fs::read_dir(parent).with_context(|| format!("--disk {}", prefix.display()))?;
    for entry in entries {
        let entry = entry?;
        let entry_name = entry.file_name().to_string_lossy().into_owned();
        if entry_name.starts_with(&*name) {
            files.insert(entry_name, space(&entry.path()));
        }
    }
    Ok(files)
}

/// Files that vanish meanwhile count as nothing.
fn space(path: &Path) -> u64 {
    let own = fs::symlink_metadata(path).map_or(0, |meta| meta.blocks() * 512);
    let below = fs::read_dir(path).map_or(0, |entries| {
        entries.flatten().map(|entry| space(&entry.path())).sum()
    });
    own + below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured_while_it_works() {
        let me = Relay {
            pid: std::process::id(),
        };
        let (before, own) = (me.cpu_us().unwrap(), own_cpu_us());
        while own_cpu_us() < own + 50_000.0 {}
        assert!(me.cpu_us().unwrap() - before >= 30_000.0);
        assert!(me.rss_kib().unwrap() > 500.0);
        let error = Relay { pid: u32::MAX }.cpu_us().unwrap_err();
        assert!(error.to_string().contains("no such process"), "{error}");
    }

    #[test]
    fn only_files_with_the_prefix_take_space() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["relay.db", "relay.db-wal", "other"] {
            fs::write(dir.path().join(name), vec![1; 8192]).unwrap();
        }
        let files = disk_bytes(&dir.path().join("relay.db")).unwrap();
        assert_eq!(Vec::from_iter(files.keys()), ["relay.db", "relay.db-wal"]);
        assert!(files.values().all(|bytes| *bytes >= 8192), "{files:?}");
    }
}
