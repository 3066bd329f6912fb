//! Each test names the changes of the code that it catches.

use std::fs;

use buzz_actors::flags::{AUTH, HISTORY_READS};
use tempfile::TempDir;

use super::*;

const ONE: &str = "\"buzz.relay.concurrency.history-reads\" = 1\n";

struct Fixture {
    dir: TempDir,
    flags: FileFlags,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let flags = FileFlags::new(&dir.path().join("flags.toml"));
        Self { dir, flags }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("flags.toml")
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        fs::write(self.path(), text).expect("a file");
    }

    /// Refreshes, and says the value of the history flag.
    fn history(&mut self) -> Option<i64> {
        self.flags.refresh();
        self.flags.integer(&HISTORY_READS).expect("always")
    }
}

/// Kills: reading the file once only; ready before there is a value.
#[test]
fn the_file_is_read_anew_at_each_refresh() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.history(), None);
    assert!(!fixture.flags.ready());
    fixture.write(ONE);
    assert_eq!(fixture.history(), Some(1));
    assert!(fixture.flags.ready());
    fixture.write(ONE.replace('1', "2"));
    assert_eq!(fixture.history(), Some(2));
    assert_eq!(fixture.flags.integer(&AUTH).expect("always"), None);
}

/// Kills: values dropped where the file is missing, broken, empty, too large, or no file at all.
#[test]
fn what_cannot_be_read_keeps_the_last_good_values() {
    let mut fixture = Fixture::new();
    fixture.write(ONE);
    assert_eq!(fixture.history(), Some(1));
    let half = &ONE[..ONE.len() / 2];
    let large = format!("# {}\n", "x".repeat(MAX_BYTES as usize));
    for broken in [
        half,
        "",
        " \n",
        "= 4",
        &large,
        "a = 1\na = 2\n",
        "a.b = 1\n\"a.b\" = 2\n",
    ] {
        fixture.write(broken);
        assert_eq!(fixture.history(), Some(1), "{broken:.20?}");
        assert!(fixture.flags.trouble.is_some(), "{broken:.20?}");
    }
    fixture.write([ONE.as_bytes(), b"# \xff\n"].concat());
    assert_eq!(fixture.history(), Some(1));
    fs::remove_file(fixture.path()).expect("a file");
    assert_eq!(fixture.history(), Some(1));
    fs::create_dir(fixture.path()).expect("a directory");
    assert_eq!(fixture.history(), Some(1));
    assert!(fixture.flags.ready());
}

/// Kills: taking a changed file after one read. The writer below makes the file empty, then half
/// full, then whole, faster than [`SETTLED`]; each state parses and would lift the cap.
#[test]
fn a_file_that_is_being_written_lifts_no_cap() {
    let mut fixture = Fixture::new();
    fixture.write(ONE);
    assert_eq!(fixture.history(), Some(1));
    let (path, mut pieces) = (fixture.path(), 0);
    fixture.write("# begun\n");
    let writer = thread::spawn(move || {
        for text in ["# still\n", "# more\n", &ONE.replace('1', "2")] {
            thread::sleep(SETTLED / 3);
            fs::write(&path, text).expect("a file");
            pieces += 1;
        }
        pieces
    });
    assert_eq!(fixture.history(), Some(2));
    assert_eq!(writer.join().expect("a writer"), 3);
}

/// Kills: a wrong type read as a number, or kept at the last good value.
#[test]
fn a_mistyped_value_is_no_value() {
    let mut fixture = Fixture::new();
    for value in ["3.7", "3.0", "\"3\"", "true", "[3]", "1979-05-27"] {
        fixture.write(ONE);
        assert_eq!(fixture.history(), Some(1));
        fixture.write(format!("\"{}\" = {value}\n", HISTORY_READS.key));
        assert_eq!(fixture.history(), None, "{value}");
    }
}

/// Kills: a removed line that keeps its last value; a comment taken for an empty file.
#[test]
fn a_removed_line_is_no_value() {
    let mut fixture = Fixture::new();
    fixture.write(ONE);
    assert_eq!(fixture.history(), Some(1));
    fixture.write("# none\n");
    assert_eq!(fixture.history(), None);
}

/// Kills: a key without quotes, which TOML takes for tables, ignored in silence.
#[test]
fn keys_may_stand_without_quotes() {
    let values = parse("buzz.relay.concurrency.auth = 4\n[buzz.relay.concurrency]\n");
    assert!(values.is_err(), "a table defined twice is TOML's error");
    let values = parse("buzz.relay.concurrency.auth = 4\n").expect("values");
    assert_eq!(values.get(AUTH.key), Some(&Some(4)));
}

/// Kills: the same complaint at each refresh; a complaint that is not made again after a change.
#[test]
fn what_is_wrong_is_said_once() {
    let mut fixture = Fixture::new();
    fixture.write("typo = 1\n");
    fixture.history();
    assert_eq!(fixture.flags.reported.len(), 1);
    fixture.write("# none\n");
    fixture.history();
    assert!(fixture.flags.reported.is_empty());
}
