//! buzz-client
