use super::*;

const SAMPLE: &str = include_str!("../../config/relay.toml");

#[test]
fn the_sample_file_holds_every_key_with_its_default() {
    let sample: Config = toml::from_str(SAMPLE).expect("the sample file parses");
    assert_eq!(sample, Config::default());
}

#[test]
fn every_key_of_the_sample_file_has_a_comment_line() {
    let mut before = "";
    for line in SAMPLE.lines() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(before.starts_with("# "), "no comment above: {line}");
        }
        before = line;
    }
}

#[test]
fn the_effective_configuration_is_valid_and_complete() {
    let text = Config::default().to_toml().expect("toml");
    assert_eq!(
        toml::from_str::<Config>(&text).expect("parses"),
        Config::default()
    );
}

#[test]
fn passwords_are_masked() {
    for (url, shown) in [
        ("postgres://u:p@host/db", "postgres://u:***@host/db"),
        (
            "postgres://u:p@x@host:1/db?a=b",
            "postgres://u:***@host:1/db?a=b",
        ),
        ("postgres://u@host/db", "postgres://u@host/db"),
        (
            "postgres:///db?host=/run&password=p&user=u",
            "postgres:///db?host=/run&password=***&user=u",
        ),
        ("sqlite://data/relay.db", "sqlite://data/relay.db"),
    ] {
        assert_eq!(mask_password(url), shown);
    }
}
