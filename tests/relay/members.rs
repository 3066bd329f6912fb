//! Members: `buzz-relay member`, and relays that only members may use.

use std::process::Output;

use buzz_protocol::{
    Pubkey,
    nip19::{npub, nsec},
};
use serde_json::json;

use buzz_testkit::{Author, Client, Relay, relay::URL};

use crate::RELAY;

fn member(relay: &Relay, arguments: &[&str]) -> Output {
    let mut command = RELAY.command(relay.dir());
    command.arg("member").args(arguments);
    command.output().expect("an end")
}

fn out(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Kills: an npub taken for another key; a second role beside the first; a removal of who is no
/// member that is no error.
#[tokio::test]
async fn members_are_added_changed_listed_and_removed_beside_a_running_relay() {
    let relay = RELAY.start().await;
    let author = Author::new(1);
    let hex = author.pubkey();
    let npub = npub(&Pubkey::from_hex(&hex).expect("a key"));
    let told = |arguments: &[&str]| out(&member(&relay, arguments));
    assert_eq!(told(&["list"]), "");
    assert_eq!(
        told(&["add", &npub]),
        format!("{npub} is now a member: member\n")
    );
    assert_eq!(
        told(&["add", &hex, "--role", "agent"]),
        format!("{npub} was member, is now agent\n")
    );
    assert_eq!(told(&["list"]), format!("{npub}  {hex}  agent\n"));
    assert_eq!(told(&["list", &npub]), format!("{npub}  {hex}  agent\n"));
    assert_eq!(told(&["list", "--role", "owner"]), "");
    assert_eq!(
        told(&["remove", &hex.to_uppercase()]),
        format!("{npub} was agent, is no member any more\n")
    );
    assert_eq!(told(&["list"]), "");
    let gone = member(&relay, &["remove", &hex]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains(&format!("{npub} is no member")));
}

/// Kills: a key or role that is not checked; a secret key accepted.
#[tokio::test]
async fn what_is_no_key_or_role_is_an_error_that_says_so() {
    let relay = RELAY.start().await;
    let hex = Author::new(1).pubkey();
    for (arguments, why) in [
        (
            vec!["add", "alice"],
            "neither 64 hexadecimal digits nor an npub1… key",
        ),
        (vec!["add", &nsec(&[7; 32])], "this is an nsec1… key"),
        (
            vec!["add", &hex, "--role", "king"],
            "[possible values: member, agent, admin, owner]",
        ),
    ] {
        let output = member(&relay, &arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(why), "{err}");
        assert!(!err.contains(&nsec(&[7; 32])), "a secret is repeated");
    }
    assert_eq!(out(&member(&relay, &["list"])), "");
}

/// Kills: a login that lets everybody in; one that keeps a member out; reading or publishing
/// without a login; the outcome counted as another.
#[tokio::test]
async fn only_members_log_in_publish_and_read_where_only_members_may() {
    let relay = RELAY.start_with("auth.members_only = true").await;
    let (insider, outsider) = (Author::new(1), Author::new(2));
    out(&member(
        &relay,
        &["add", &insider.pubkey(), "--role", "owner"],
    ));

    let mut client = Client::connect(&relay).await;
    let event = insider.note("hello").sign();
    client.refuse(&event, "auth-required: log in first").await;
    client.send(json!(["REQ", "r", {}])).await;
    let closed = json!(["CLOSED", "r", "auth-required: log in first"]).to_string();
    assert_eq!(client.text().await, closed);
    let challenge = client.challenge().await;
    let login = outsider.login(&challenge, URL).sign();
    let refused = (false, "restricted: not a member of this relay".to_owned());
    assert_eq!(client.log_in_with(&login).await, refused);
    client.send(json!(["REQ", "r", {}])).await;
    assert_eq!(client.text().await, closed);
    client.log_in(&insider).await;
    client.accept(&event).await;
    assert_eq!(client.fetch(json!([{}])).await, [event]);

    let metrics = relay.metrics().await;
    let outcome = |outcome| {
        metrics.get(&format!(
            "buzz_auth_outcomes_total{{outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!((outcome("ok"), outcome("restricted")), (1.0, 1.0));
    relay.log.line_with(&["login denied/restricted"]).await;

    // A membership that ends counts at the next login, and for open sockets soon.
    out(&member(&relay, &["remove", &insider.pubkey()]));
    let mut again = Client::connect(&relay).await;
    let challenge = again.challenge().await;
    let login = insider.login(&challenge, URL).sign();
    assert_eq!(again.log_in_with(&login).await, refused);
}

/// Kills: a removed member that reads and publishes on; a look that cuts those who are members
/// still, or a key that can't be looked up.
#[tokio::test]
async fn whose_membership_ends_is_cut_soon() {
    let relay = RELAY
        .start_with("auth.members_only = true\nauth.recheck = \"200ms\"")
        .await;
    let (stays, goes) = (Author::new(1), Author::new(2));
    for author in [&stays, &goes] {
        out(&member(&relay, &["add", &author.pubkey()]));
    }
    let mut staying = Client::connect(&relay).await;
    staying.log_in(&stays).await;
    let mut going = Client::connect(&relay).await;
    going.log_in(&goes).await;
    out(&member(&relay, &["remove", &goes.pubkey()]));
    let frame = going.closed().await.expect("a close frame");
    assert_eq!(u16::from(frame.code), 1008);
    assert_eq!(frame.reason.as_str(), "membership ended");
    staying.accept(&stays.note("still here").sign()).await;
}

/// Kills: a command that only looks and leaves an empty database behind.
#[tokio::test]
async fn commands_that_look_make_no_database() {
    let dir = Relay::prepare("");
    for arguments in [&["member", "list"][..], &["export"]] {
        let output = RELAY
            .command(dir.path())
            .args(arguments)
            .output()
            .expect("an end");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains("relay.db: no such file"), "{err}");
        assert!(!dir.path().join("relay.db").exists());
    }
}
