//! Tests of what the tests are made of, which is a crate without a test program of its own.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::sleep;

use test_kit::accounts::{ADDON_GROUP, HUB_USER};
use test_kit::audit_log::{LEASE, Write, assert_nothing_is_hammered};
use test_kit::moved::made;
use test_kit::needed::{Needed, may_lack};
use test_kit::pki::{base64, pem as pem_of};
use test_kit::quick::pass;
use test_kit::rights::{Right, right};
use test_kit::secrets::{find, private_bytes};

/// The waits run at the same time, which must not make time run away.
#[tokio::test]
async fn time_passes_ten_times_as_fast_and_in_order() {
    let (real, quick) = (std::time::Instant::now(), tokio::time::Instant::now());
    let mut order = Vec::new();
    let waiting = async {
        for pause in [1, 2] {
            sleep(Duration::from_secs(pause)).await;
            order.push(pause);
        }
    };
    let time = Duration::from_secs(6);
    tokio::join!(waiting, pass(time), pass(time));
    assert_eq!(order, [1, 2]);
    let (real, quick) = (real.elapsed(), quick.elapsed());
    assert!(quick >= time, "{quick:?}");
    assert!(quick <= real * 11, "{quick:?} in {real:?}");
}

#[test]
fn what_a_run_names_must_be_there() {
    assert_eq!(may_lack(Needed::Openssl, ""), Ok(()));
    assert_eq!(may_lack(Needed::Openssl, "postgres mount"), Ok(()));
    let sentence = "ADDON_SIGNER_TESTS_NEED names mount, but this process may not mount a file system";
    assert_eq!(may_lack(Needed::Mount, "postgres mount"), Err(sentence.to_owned()));
    let typo = "ADDON_SIGNER_TESTS_NEED names mounts, which no test needs";
    assert_eq!(may_lack(Needed::Mount, "mounts"), Err(typo.to_owned()));
}

#[test]
fn writes_without_a_cause_are_counted_by_the_minute() {
    let mk = |user: &str, object: &str, second: i64| Write {
        at: Timestamp::from_second(1_800_000_000 + second).unwrap(),
        user: user.to_owned(),
        object: Some(object.to_owned()),
        subresource: String::new(),
        code: 200,
        holder: None,
        duration: None,
    };
    let ours =
        |every: i64, count: i64| (0..count).map(move |n| mk(HUB_USER, "managedclusteraddons/c1/telemetry", n * every));
    let is_hammered = |writes: Vec<Write>| std::panic::catch_unwind(|| assert_nothing_is_hammered(&writes)).is_err();
    assert!(!is_hammered(ours(6, 100).collect()));
    assert!(is_hammered(ours(5, 100).collect()));
    let others = (0..600).map(|n| mk("addon-manager", "managedclusteraddons/c1/telemetry", n));
    assert!(is_hammered(ours(1, 11).chain(others).collect()), "a program is no cause");
    let edit = [mk("admin", "addonsigners//telemetry", 0)];
    assert!(!is_hammered(ours(1, 15).chain(edit.clone()).collect()));
    assert!(is_hammered(ours(1, 16).chain(edit.clone()).collect()));
    assert!(is_hammered(edit.into_iter().chain(ours(1, 11)).collect()), "before the hub came");
    let renewals = |duration: u64, count: i64| {
        (0..count).map(move |n| Write { duration: Some(duration), ..mk(HUB_USER, LEASE, n) })
    };
    assert!(!is_hammered(renewals(15, 14).collect()));
    assert!(is_hammered(renewals(15, 15).collect()));
    assert!(!is_hammered(renewals(3, 60).collect()));
}

#[test]
fn right_belongs_to_the_role_that_allowed_the_call() {
    let event = |user: &str, decision: &str| {
        serde_json::json!({
            "user": { "username": user },
            "verb": "update",
            "objectRef": {
                "apiGroup": "certificates.k8s.io", "resource": "certificatesigningrequests", "subresource": "status",
                "name": "csr-1",
            },
            "annotations": {
                "authorization.k8s.io/decision": decision,
                "authorization.k8s.io/reason":
                    "RBAC: allowed by ClusterRoleBinding \"binding\" of ClusterRole \"hub\" to ServiceAccount \"a/b\"",
            },
        })
    };
    let expected = Right {
        role: "ClusterRole hub".to_owned(),
        verb: "update".to_owned(),
        group: "certificates.k8s.io".to_owned(),
        resource: "certificatesigningrequests/status".to_owned(),
        name: Some("csr-1".to_owned()),
    };
    assert_eq!(right(&event(HUB_USER, "allow")), Some(expected.clone()));
    let mut by_the_addon = event("addon", "allow");
    assert_eq!(right(&by_the_addon), None);
    by_the_addon["user"]["groups"] = serde_json::json!(["system:authenticated", ADDON_GROUP]);
    assert_eq!(right(&by_the_addon), Some(expected));
    assert_eq!(right(&event(HUB_USER, "forbid")), None);
    assert_eq!(right(&event("admin", "allow")), None);
}

#[test]
fn times_of_objects_move_wherever_the_answer_is_cut() {
    let text =
        br#"{"creationTimestamp":"2026-01-01T00:01:00Z","x":"creation","creationTimestamp":"2026-01-01T00:00:30Z"}"#;
    let expected =
        br#"{"creationTimestamp":"2026-01-01T00:00:00Z","x":"creation","creationTimestamp":"2025-12-31T23:59:30Z"}"#;
    for cut in 0..text.len() {
        let mut rest = Vec::new();
        let parts = [&text[..cut], &text[cut..]].map(|part| made(&mut rest, part, -60));
        assert_eq!((parts.concat().as_slice(), rest.as_slice()), (&expected[..], &[][..]), "{cut}");
    }
}

static SECRET: [u8; 32] = *b"\x8e\x00\xff\xfb not-for-any-log, \"\xef'\\\x07\xd1\x10wxy";

/// The secret in the middle of something else, as in a key of P-256.
fn pem() -> String {
    pem_of("PRIVATE KEY", &[[7; 36].as_slice(), &SECRET, &[9; 70]].concat())
}

#[test]
fn a_secret_is_found_in_every_encoding() {
    let colons = SECRET.map(|byte| format!("{byte:02X}")).join(":");
    for text in [
        pem(),
        format!("{:?}", pem()),
        pem().replace('+', "-").replace('/', "_"),
        base64(pem().as_bytes()),
        base64(format!("x{}", pem()).as_bytes()),
        base64(format!("xy{}", pem()).as_bytes()),
        format!("{:?}", pem().as_bytes()),
        format!("{:#?}", pem().as_bytes()),
        format!("{SECRET:?}"),
        format!("{SECRET:#?}"),
        format!("{SECRET:x?}"),
        format!("{SECRET:02X?}"),
        SECRET.map(|byte| format!("{byte:02x}")).concat(),
        colons,
        pem().bytes().fold(String::new(), |all, byte| format!("{all}{byte:02x}")),
        SECRET.escape_ascii().to_string(),
    ] {
        let line = format!("2026-11-22T16:00:00Z WARN addon_signer: Something failed error={text} name=telemetry");
        assert!(find(&SECRET, line.as_bytes()).is_some(), "{line}");
    }
    assert!(find(&SECRET, &[b"row".as_slice(), &SECRET, b"row"].concat()).is_some());
}

#[test]
fn private_bytes_of_a_key_appear_in_no_other_key() {
    let key = || rcgen::KeyPair::generate().unwrap().serialize_der();
    let one = key();
    let bytes = private_bytes(&one);
    assert_eq!((bytes.len(), find(&bytes, &one).is_some(), find(&bytes, &key())), (32, true, None));
}
