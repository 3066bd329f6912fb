//! What must hold for every input, tried on generated ones: parsing never panics, what is written
//! is read back, and each clever routine agrees with a naive one built on `serde_json`.

mod events;
mod filters;
mod frames;
mod inputs;
mod refusals;
