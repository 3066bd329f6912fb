//! The description of the REST requests (OpenAPI), with this relay's address and limits.

use buzz_actors::shared::Settings;
use serde_json::{Value, json};

const DOCUMENT: &str = include_str!("openapi.json");

/// The document of a relay that clients reach at `base`.
///
/// # Errors
/// When the document is no JSON; it is.
pub fn document(settings: &Settings, base: &str) -> serde_json::Result<String> {
    let mut document: Value = serde_json::from_str(DOCUMENT)?;
    for (place, value) in [
        ("/info/version", json!(env!("CARGO_PKG_VERSION"))),
        ("/servers/0/url", json!(base)),
        (
            "/components/schemas/Filters/oneOf/1/maxItems",
            json!(settings.limits.max_filters),
        ),
    ] {
        if let Some(found) = document.pointer_mut(place) {
            *found = value;
        }
    }
    Ok(document.to_string())
}
