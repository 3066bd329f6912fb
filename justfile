# What CI runs.
check:
    .ci/run

# All tests; arguments go to `cargo test`.
test *arguments:
    scripts/test {{arguments}}

# The relay with the sample configuration.
run:
    cargo run --release

# Formats everything.
fmt:
    cargo fmt --all

# Feeds generated frames to the parsers for a minute (needs cargo-fuzz).
fuzz:
    cd fuzz && cargo fuzz run -s none frames -- -max_total_time=60
