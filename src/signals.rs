//! How SIGTERM and SIGINT end a subcommand. Without a handler they would not end one that is a
//! container's first process.

use std::{
    io::Result,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

/// A signal ends the process at once.
pub(crate) fn end_at_once() -> Result<()> {
    end_where(&Arc::new(AtomicBool::new(true)))
}

/// The first signal sets what this gives; a second one ends the process at once.
pub(crate) fn ask_to_end() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    end_where(&asked)?;
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, Arc::clone(&asked))?;
    }
    Ok(asked)
}

fn end_where(condition: &Arc<AtomicBool>) -> Result<()> {
    for signal in [SIGTERM, SIGINT] {
        // What a shell makes of a signal's end.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(condition))?;
    }
    Ok(())
}
