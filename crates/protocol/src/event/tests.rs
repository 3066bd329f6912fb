use secp256k1::rand::{SeedableRng, rngs::StdRng};

use super::{canonical::push_quoted, *};

fn keys() -> Keypair {
    Keypair::new(&mut StdRng::seed_from_u64(1))
}

fn signed(content: &str, tags: Vec<Tag>) -> Event {
    UnsignedEvent {
        created_at: 1_700_000_000,
        kind: 1,
        tags,
        content: content.into(),
    }
    .sign(&keys())
}

/// Signed by a client of 2022; the content holds quotes, a slash and line breaks.
const REAL: &str = r##"{"id":"00000e1253a8888a195da04ebc528d2b44a3d4e2788e79b85ec1a2c61eef3733","pubkey":"32e1827635450ebb3c5a7d12c1f8e7b2b514439ac10a67eef3d9fd9c5c68e245","created_at":1650051200,"kind":1,"tags":[["nonce","2255367"]],"content":"I am a robot beep boop! This note took 4 seconds to mine 20 bits after 2255367 tries!\n\nThis was generated with https://github.com/jb55/nostril","sig":"97aa14e528c3bef66ebfc767592c5e1488f191b949862b7ca9f061839698d3c2048ba252fa767ab688aafc81107a1d1a81f4ae74ff6d7e2dfe4460807dfab98a"}"##;

#[test]
fn a_real_event_verifies_and_is_written_as_it_came() {
    let event: Event = serde_json::from_str(REAL).expect("an event");
    assert_eq!(event.verify(), Ok(()));
    assert_eq!(event.to_json(), REAL);
}

#[test]
fn a_change_anywhere_is_noticed() {
    let event: Event = serde_json::from_str(REAL).expect("an event");
    let content = Event {
        content: event.content.clone() + " ",
        ..event.clone()
    };
    assert_eq!(content.verify(), Err(VerifyError::Id));
    let mut sig = event.clone();
    sig.sig.0[5] ^= 1;
    assert_eq!(sig.verify(), Err(VerifyError::Signature));
    let author = signed("x", vec![]);
    let forged = Event {
        pubkey: event.pubkey,
        ..author
    };
    assert_eq!(forged.verify(), Err(VerifyError::Id));
}

#[test]
fn a_key_off_the_curve_is_named() {
    let mut event = signed("x", vec![]);
    event.pubkey = Pubkey([0xff; 32]);
    event.id = event_id(
        &event.pubkey,
        event.created_at,
        event.kind,
        &[],
        "x",
        Escapes::AllControls,
    );
    assert_eq!(event.verify(), Err(VerifyError::Pubkey));
}

#[test]
fn strings_are_escaped_as_nip_01_says() {
    let mut out = String::new();
    push_quoted(
        &mut out,
        "a\"b\\c/\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}ñ🍕\u{2028}",
    );
    assert_eq!(
        out,
        "\"a\\\"b\\\\c/\\n\\r\\t\\b\\f\\u0001\\u001f\u{7f}ñ🍕\u{2028}\""
    );
    assert_eq!(
        Ok(out),
        serde_json::to_string("a\"b\\c/\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}ñ🍕\u{2028}")
            .map_err(|_| ())
    );
}

#[test]
fn both_ways_to_write_rare_controls_give_a_right_id() {
    let mut event = signed("a\u{1}b", vec![Tag::new(["t", "\u{1f}"])]);
    assert_eq!(event.verify_id(), Ok(()));
    event.id = event_id(
        &event.pubkey,
        event.created_at,
        1,
        &event.tags,
        &event.content,
        Escapes::Nip01,
    );
    assert_eq!(event.verify_id(), Ok(()));
    event.content.push('\u{1}');
    assert_eq!(event.verify_id(), Err(VerifyError::Id));
}

#[test]
fn the_layout_reads_what_to_json_writes() {
    let event = Event {
        created_at: 12,
        kind: 30_023,
        ..signed("\"id\":\"", vec![])
    };
    let json = event.to_json();
    assert_eq!(json_layout::id(json.as_bytes()), Some(event.id));
    assert_eq!(json_layout::pubkey(json.as_bytes()), Some(event.pubkey));
    assert_eq!(
        json_layout::created_at_and_kind(json.as_bytes()),
        Some((12, 30_023))
    );
    assert_eq!(
        json_layout::created_at_and_kind(&json.as_bytes()[..170]),
        None
    );
}

#[test]
fn a_missing_and_an_empty_d_tag_are_one_address() {
    let d = |tags| {
        Event {
            kind: 30_000,
            ..signed("", tags)
        }
        .address()
        .map(|address| address.d)
    };
    for tags in [vec![], vec![Tag::new(["d"])], vec![Tag::new(["d", ""])]] {
        assert_eq!(d(tags), Some(String::new()));
    }
    assert_eq!(
        d(vec![Tag::new(["d", "x", "y"]), Tag::new(["d", "z"])]),
        Some("x".into())
    );
    assert_eq!(signed("", vec![Tag::new(["d", "x"])]).address(), None);
    let profile = Event {
        kind: 0,
        ..signed("", vec![Tag::new(["d", "x"])])
    };
    assert_eq!(
        profile.address().map(|address| address.d),
        Some(String::new())
    );
}

#[test]
fn addresses_are_read_from_a_tags() {
    let key = "ab".repeat(32);
    let parsed = Address::parse(&format!("30023:{key}:a:b")).expect("an address");
    assert_eq!((parsed.kind, parsed.d.as_str()), (30_023, "a:b"));
    assert_eq!(
        Address::parse(&format!("0:{key}:")).map(|a| a.d),
        Some(String::new())
    );
    for bad in [
        format!("1:{key}:x"),
        format!("30023:{}:x", &key[1..]),
        "x".into(),
        String::new(),
    ] {
        assert_eq!(Address::parse(&bad), None, "{bad}");
    }
}

#[test]
fn expiration_is_reached_at_its_second() {
    let event = signed(
        "",
        vec![
            Tag::new(["expiration", "x"]),
            Tag::new(["expiration", "10"]),
        ],
    );
    assert_eq!((event.is_expired(9), event.is_expired(10)), (false, true));
    assert!(!signed("", vec![Tag::new(["expiration"])]).is_expired(u64::MAX));
}

#[test]
fn errors_name_the_field() {
    for (from, to, part) in [
        ("\"kind\":1", "\"kind\":1.5", "kind: "),
        ("\"kind\":1", "\"kind\":18446744073709551616", "kind: "),
        (
            "\"created_at\":1650051200",
            "\"created_at\":1e3",
            "created_at: ",
        ),
        (
            "\"created_at\":1650051200",
            "\"created_at\":-1",
            "created_at: ",
        ),
        ("\"tags\":[[", "\"tags\":[[1,", "tags: "),
        ("\"sig\":\"97", "\"sig\":\"9", "sig: expected 128"),
        (
            "\"pubkey\":\"32e",
            "\"pubkey\":\"32E",
            "pubkey: expected 64",
        ),
        ("\"id\":", "\"ID\":", "missing field `id`"),
        (
            "\"kind\":1",
            "\"kind\":1,\"kind\":1",
            "duplicate field `kind`",
        ),
    ] {
        let error = serde_json::from_str::<Event>(&REAL.replace(from, to))
            .expect_err(to)
            .to_string();
        assert!(error.contains(part), "{to}: {error}");
    }
}
