//! buzz-bench
