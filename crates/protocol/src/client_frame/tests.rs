use super::*;

const ID: &str = "00000e1253a8888a195da04ebc528d2b44a3d4e2788e79b85ec1a2c61eef3733";

fn answer(text: &str) -> String {
    ClientFrame::parse(text).expect_err(text).answer()
}

#[test]
fn requests_are_parsed_with_all_their_filters() {
    let frame =
        ClientFrame::parse(r#" [ "REQ" , "s\u00e9" , {"kinds":[1]} , {} ] "#).expect("a frame");
    let ClientFrame::Req { sub, filters } = frame else {
        panic!("{frame:?}")
    };
    assert_eq!((sub.as_str(), filters.len()), ("sé", 2));
    let frame = ClientFrame::parse(r#"["CLOSE","s"]"#);
    assert_eq!(frame, Ok(ClientFrame::Close { sub: "s".into() }));
}

#[test]
fn a_bad_request_with_a_readable_id_is_closed_by_name() {
    for text in [
        r#"["REQ","s"]"#,
        r#"["REQ","s",1]"#,
        r#"["REQ","s",{"kinds":[NaN]}]"#,
        r#"["REQ","s",{"ids":["ab"]}]"#,
        r#"["COUNT","s",{"kinds":[1.0]}]"#,
        r#"["REQ","s",{"since":1e3}]"#,
        r#"["REQ","s",{},"#,
    ] {
        assert!(
            answer(text).starts_with(r#"["CLOSED","s","invalid: "#),
            "{}",
            answer(text)
        );
    }
    let deep = format!(r#"["REQ","s",{{"kinds":{}"#, "[".repeat(10_000));
    assert!(answer(&deep).starts_with(r#"["CLOSED","s","invalid: "#));
    let unknown = answer(r#"["REQ","s",{"search":"x"}]"#);
    assert!(
        unknown
            .starts_with(r#"["CLOSED","s","unsupported: filter contains unknown element `search`"#),
        "{unknown}"
    );
}

#[test]
fn a_bad_event_with_a_readable_id_is_answered_by_name() {
    for text in [
        format!(r#"["EVENT",{{"id":"{ID}"}}]"#),
        format!(r#"["EVENT",{{"content":"\ud800","id" : "{ID}"}}]"#),
        format!(r#"["AUTH",{{"id":"{ID}","kind":"x"}}]"#),
        format!(r#"["EVENT",{{"id":"{ID}""#),
    ] {
        assert!(
            answer(&text).starts_with(&format!(r#"["OK","{ID}",false,"invalid: "#)),
            "{}",
            answer(&text)
        );
    }
}

#[test]
fn what_names_nothing_is_a_notice() {
    for text in [
        "",
        "x",
        "{}",
        "[]",
        "[1]",
        "null",
        r#"["HELLO","s"]"#,
        r#"["EVENT"]"#,
        r#"["EVENT",{"id":"ab"}]"#,
        r#"["EVENT",{"content":"\"id\":\"x"}]"#,
        r#"["REQ"]"#,
        r#"["REQ",7,{}]"#,
        r#"["CLOSE"]"#,
        r#"["CLOSE","s","t"]"#,
    ] {
        assert!(
            answer(text).starts_with(r#"["NOTICE","invalid: "#),
            "{text}: {}",
            answer(text)
        );
    }
    let long = format!("[\"{}\"]", "X".repeat(1_000_000));
    assert!(answer(&long).len() < 200);
}
