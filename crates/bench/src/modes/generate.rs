//! `generate`: the data set as JSON Lines.

use std::io::{self, BufWriter, ErrorKind, Write};

use anyhow::Result;

use crate::{cli::DataArgs, dataset::DataSet, parallel};

/// Writes the events to stdout, in order.
///
/// # Errors
/// When stdout can't be written; that its reader ended early is none.
pub(crate) fn run(args: &DataArgs) -> Result<()> {
    let data = DataSet::new(args.seed, args.authors)?;
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let written = parallel::each_chunk(
        "signed",
        0..args.events,
        |i| data.event(i),
        |events| {
            for event in events {
                out.write_all(event.json.as_bytes())?;
                out.write_all(b"\n")?;
            }
            Ok(())
        },
    );
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
