//! The texts that the programs read: each is read once, whatever it comes through, and by the same
//! rules.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use buzz_testkit::{Relay, events::REAL_LINES};

use crate::RELAY;

const SETTINGS: &str = "server.listen = \"127.0.0.1:7001\"\nauth.members_only = true\n\
    database.url = \"sqlite://mine.db\"\n";

/// Runs a shell's script, in which `$RELAY` is the program, with `input` on standard input.
fn shell(dir: &Path, script: &str, input: &[u8]) -> Output {
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", script]).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BUZZ_") {
            shell.env_remove(name);
        }
    }
    let mut child = shell
        .env("RELAY", RELAY.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bash");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("an end")
}

/// Mutants: the file read a second time; a pipe not read; an empty pipe taken for the defaults.
#[test]
fn settings_come_through_pipes() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("c.toml"), SETTINGS).expect("a file");
    let file = shell(dir.path(), "$RELAY --config c.toml check-config", b"");
    let expected = String::from_utf8(file.stdout).expect("UTF-8");
    assert!(expected.contains("members_only = true"), "{expected}");
    for script in [
        "$RELAY --config <(cat c.toml) check-config",
        "cat c.toml | $RELAY --config /dev/stdin check-config",
        "$RELAY --config /dev/stdin check-config < c.toml",
        "mkfifo pipe; cat c.toml > pipe & $RELAY --config pipe check-config",
        "(sleep 0.3; cat c.toml) | $RELAY --config /dev/stdin check-config",
    ] {
        let output = shell(dir.path(), script, b"");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{script}: {error}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{script}"
        );
    }
    for script in [
        "cat missing.toml 2>/dev/null | $RELAY --config /dev/stdin check-config",
        "$RELAY --config <(true) check-config",
    ] {
        let output = shell(dir.path(), script, b"");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{script}: {error}");
        assert!(error.contains("nothing came through the pipe"), "{error}");
    }
}

/// Mutants: a byte order mark or CRLF that breaks a file; UTF-16 that is not named.
#[test]
fn marks_and_line_ends_of_other_systems_change_nothing() {
    let check = "$RELAY --config /dev/stdin check-config";
    let dir = tempfile::tempdir().expect("a directory");
    let expected = shell(dir.path(), check, SETTINGS.as_bytes()).stdout;
    let crlf = SETTINGS.replace('\n', "\r\n");
    let marked = format!("\u{feff}{crlf}");
    for text in [crlf, marked] {
        let output = shell(dir.path(), check, text.as_bytes());
        assert!(output.stdout == expected, "{output:?}");
    }
    let wide: Vec<u8> = "\u{feff}a = 1"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let output = shell(dir.path(), check, &wide);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("UTF-16"),
        "{output:?}"
    );

    let marked = format!("\u{feff}{}", REAL_LINES.replace('\n', "\r\n"));
    let summaries = [REAL_LINES, &marked].map(|lines| {
        let dir = Relay::prepare("");
        let output = shell(
            dir.path(),
            "$RELAY --config relay.toml import",
            lines.as_bytes(),
        );
        let summary = String::from_utf8(output.stdout).expect("UTF-8");
        summary.rsplit_once(", ").expect("a summary").0.to_owned()
    });
    assert_eq!(summaries[0], summaries[1]);
    let nothing = shell(
        Relay::prepare("").path(),
        "$RELAY import",
        "\u{feff}".as_bytes(),
    );
    let summary = String::from_utf8_lossy(&nothing.stdout);
    assert!(
        summary.starts_with("accepted 0, duplicate 0, rejected 0"),
        "{nothing:?}"
    );
}
