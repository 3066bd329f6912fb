//! The commands that README and docs show: each is one that the programs know, and the blocks
//! marked `<!-- tested -->` run as they stand.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::RELAY;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const TESTED: &str = "<!-- tested -->";

/// A block of shell commands in a document.
struct Block {
    file: PathBuf,
    is_tested: bool,
    text: String,
}

fn documents() -> Vec<PathBuf> {
    let mut files = vec![Path::new(ROOT).join("README.md")];
    if let Ok(docs) = std::fs::read_dir(Path::new(ROOT).join("docs")) {
        files.extend(docs.map(|entry| entry.expect("a directory entry").path()));
    }
    files.retain(|file| file.extension().is_some_and(|end| end == "md"));
    files
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let (mut previous, mut block) = ("", None::<Block>);
        for line in text.lines() {
            match &mut block {
                Some(_) if line.trim() == "```" => blocks.extend(block.take()),
                Some(block) => block.text += &format!("{line}\n"),
                None if line.trim() == "```sh" => {
                    block = Some(Block {
                        file: file.clone(),
                        is_tested: previous.trim() == TESTED,
                        text: String::new(),
                    });
                }
                None => {}
            }
            if !line.trim().is_empty() {
                previous = line;
            }
        }
    }
    blocks
}

/// Commands of a block: continued lines joined, comments and a leading `$` left out.
fn commands(block: &str) -> Vec<String> {
    block
        .replace("\\\n", " ")
        .lines()
        .map(|line| line.trim().trim_start_matches("$ ").to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// The program of ours that the words call, and its arguments.
fn our_program(words: &[String]) -> Option<(String, Vec<String>)> {
    let ours = ["buzz-relay", "buzz-bench", "buzz"];
    let at = words.iter().position(|word| !word.contains('='))?;
    let words = &words[at..];
    let (program, arguments) = words.split_first()?;
    let name = program.rsplit('/').next().expect("a last part");
    if ours.contains(&name) {
        return Some((name.to_owned(), arguments.to_vec()));
    }
    if program != "cargo" || arguments.first().map(String::as_str) != Some("run") {
        return None;
    }
    let package = arguments
        .iter()
        .position(|word| ["-p", "--package", "--bin"].contains(&word.as_str()))
        .and_then(|at| arguments.get(at + 1).cloned());
    let own = arguments.iter().position(|word| word == "--");
    let own = own.map_or(Vec::new(), |at| arguments[at + 1..].to_vec());
    Some((package.unwrap_or_else(|| "buzz-relay".into()), own))
}

fn words(command: &str) -> Vec<String> {
    // Pipes and redirections end what belongs to the first program.
    let first = command
        .split([';', '|', '>', '<', '&'])
        .next()
        .unwrap_or_default();
    first
        .split_whitespace()
        .map(|word| word.trim_matches(['\'', '"']).to_owned())
        .collect()
}

fn help(program: &str, subcommand: Option<&str>) -> String {
    let path = RELAY.sibling(program);
    let output = Command::new(&path)
        .args(subcommand)
        .arg("--help")
        .output()
        .unwrap_or_else(|error| {
            panic!("{}: {error}; cargo build --workspace first", path.display())
        });
    assert!(
        output.status.success(),
        "{program} {subcommand:?} --help fails"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_documented_command_is_one_that_the_program_knows() {
    let mut checked = 0;
    for block in blocks() {
        for command in commands(&block.text) {
            let Some((program, arguments)) = our_program(&words(&command)) else {
                continue;
            };
            let place = format!("{}: {command}", block.file.display());
            let general = help(&program, None);
            let subcommand = arguments.iter().find(|word| {
                if word.starts_with('-') {
                    return false;
                }
                let mut names = general.lines().filter(|line| line.starts_with("  "));
                names.any(|line| line.split_whitespace().next() == Some(word))
            });
            let special = subcommand.map(|name| help(&program, Some(name)));
            let known = general.clone() + &special.unwrap_or_default();
            if subcommand.is_none() {
                let plain = arguments.iter().find(|word| !word.starts_with('-'));
                let after_flag = arguments.first().is_some_and(|word| word.starts_with("--"));
                assert!(plain.is_none() || after_flag, "{place}: no such subcommand");
            }
            for flag in arguments.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().expect("a first part");
                assert!(known.contains(flag), "{place}: no {flag}");
            }
            checked += 1;
        }
    }
    assert!(checked > 0, "the documents show no command of the relay");
}

#[test]
fn every_documented_script_exists() {
    for block in blocks() {
        for command in commands(&block.text) {
            let words = words(&command);
            let Some(program) = words.first() else {
                continue;
            };
            if program.starts_with("scripts/") || program.starts_with("./scripts/") {
                let place = format!("{}: {command}", block.file.display());
                assert!(Path::new(ROOT).join(program).is_file(), "{place}");
            }
        }
    }
}

#[test]
fn blocks_marked_as_tested_run() {
    let programs = RELAY.path().parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    for block in blocks().iter().filter(|block| block.is_tested) {
        let dir = tempfile::TempDir::new().expect("a temporary directory");
        let output = Command::new("sh")
            .args(["-euc", &commands(&block.text).join("\n")])
            .current_dir(dir.path())
            .env("PATH", format!("{}:{path}", programs.display()))
            .output()
            .expect("a shell");
        assert!(
            output.status.success(),
            "{}:\n{}\n{}{}",
            block.file.display(),
            block.text,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
