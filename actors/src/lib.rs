//! The rooms of the relay, each an actor that owns its state alone. What crosses between them is
//! a message; mailbox order replaces locks.
//!
//! | room | bound | arrives | leaves | when full |
//! |---|---|---|---|---|
//! | [`connection`] | 64 frames in work a socket | the client's frames, answers | requests to the rooms, the client's bytes | the socket is not read |
//! | [`admission`] | a batch a connection; 2²⁰ principals | `Admit`, `Knock`, `Leave`, `InvalidSignatures` | `Admitted`, `Suspect` | the budget that was silent longest is forgotten |
//! | [`verifier`] | handler permits | `VerifyEvents`, `VerifyLogin` | `StoreEvents`, `Verified` | the frame is refused by name |
//! | [`gate`] | handler permits, a wait each | `Acquire`, `SetLimit`, permits | `ReadHistory`, `CountEvents`, `LookUpRole` | whoever waited too long is refused by name, a login by a bare close |
//! | [`writer`] | handler permits | `StoreEvents` | `Publish`, `Stored` | the same |
//! | [`db_reader`] | handler permits, a page a read | `ReadHistory`, `CountEvents`, `LookUpRole` | `HistoryPage`, `Counted`, `RoleFound` | the same |
//! | [`call`] | handler permits, one request a connection | a REST request | requests to the rooms, the answer | HTTP 503 |
//! | [`replay`] | a million ids | `FirstUse` | its answer | HTTP 503 |
//! | [`fanout`] | subscriptions × connections | `Subscribe`, `Publish` | `Deliver`, `FellBehind` | the subscription ends by name |
//! | [`flag_refresher`] | one `SetLimit` a gate and refresh | `Refresh`, `Flush` | `SetLimit` | missed refreshes are skipped |
//! | [`roster`] | one entry a connection | `Joined`, `Left`, `Drain` | `Shutdown` | HTTP 503 before it gets here |
//!
//! Beside them: [`rules`] (what may be published and asked), [`ports`] (what the rooms need from
//! outside), [`rooms`] (their addresses and the two shared counters), [`outbox`] (what waits for one
//! socket, counted), [`flags`] (which there are), [`metrics`].

pub mod admission;
pub mod call;
pub mod connection;
pub mod db_reader;
pub mod fanout;
pub mod flag_refresher;
pub mod flags;
pub mod gate;
pub mod metrics;
pub mod outbox;
pub mod ports;
pub mod replay;
pub mod rooms;
pub mod roster;
pub mod rules;
pub mod verifier;
pub mod writer;
