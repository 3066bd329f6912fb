//! `buzz`: publishes, reads and counts events over a relay's REST requests (NIP-98).
//!
//! | module | holds |
//! |---|---|
//! | `arguments` | what the command line means |
//! | `key` | where the secret key comes from |
//! | `relay` | one signed request, and its way past a busy relay |
//! | `commands` | the four commands |
//! | `failure` | exit codes |

mod arguments;
mod commands;
mod failure;
mod key;
mod relay;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match commands::run(arguments::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.code()
        }
    }
}
