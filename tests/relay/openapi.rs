//! The relay against its own description: schemathesis sends what the document allows and what it
//! does not, each request signed, and checks every answer.

use std::path::Path;

use buzz_testkit::relay::own_address;

use crate::RELAY;

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python");
const SCHEMATHESIS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/target/schemathesis/bin/schemathesis"
);

/// Mutants: an answer that the document does not have (status, type, form, header); a filter that
/// is valid and refused, or not valid and taken.
#[tokio::test]
async fn every_answer_is_one_that_the_document_describes() {
    assert!(
        Path::new(SCHEMATHESIS).exists(),
        "no {SCHEMATHESIS}: scripts/test installs it"
    );
    let address = own_address();
    let relay = RELAY
        .start_with(&format!(
            "server.listen = \"{address}\"\nserver.url = \"ws://{address}\"\n"
        ))
        .await;
    // It writes beside its settings.
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    for file in ["schemathesis.toml", "sign.py"] {
        std::fs::copy(Path::new(PYTHON).join(file), dir.path().join(file)).expect("a copy");
    }
    let output = tokio::process::Command::new(SCHEMATHESIS)
        .args(["--config-file", "schemathesis.toml", "run"])
        .arg(format!("http://{address}/openapi.json"))
        .current_dir(dir.path())
        .kill_on_drop(true)
        .output()
        .await
        .expect("schemathesis");
    let text = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{err}");
    assert!(text.contains("No issues found"), "{text}");
    // It was signed, and got behind the door.
    let metrics = relay.metrics().await;
    assert!(metrics.sum("buzz_events_total") >= 10.0, "{text}");
}
