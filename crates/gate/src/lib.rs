//! buzz-gate
