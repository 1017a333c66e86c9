//! Authorities whose key somebody else may know: a tainted one signs no more, and another one signs at once.

use addon_signer_api::status::{AddOnSignerStatus, AuthorityState};
use addon_signer_core::names::ANNOTATION_REVOKE_AUTHORITY;
use addon_signer_ledger::Location;
use hyper::StatusCode;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::json;
use tempfile::TempDir;

use super::kit::{OnServer, issue, revoke, signed_by, taint};
use super::rotation::mk_held;
use super::serving::{gateway_request, report};
use crate::cli::{Output, run, write};
use crate::hub::{mk_csr, mk_ready, mk_served, submit, wait_event};
use test_kit::gate::{Gate, Moment};
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, certificate, condition, fresh_ledger, telemetry, wait_csr, wait_ready,
};
use test_kit::objects::managed_cluster_addons;
use test_kit::{TestHub, log, wait_until};

/// A person with a kubeconfig.
pub(in crate::hub) struct Person {
    home: TempDir,
    kubeconfig: String,
}

impl Person {
    pub(in crate::hub) fn ann(hub: &TestHub) -> Self {
        Self::with(&hub.kubeconfig("ann", &["system:masters"]))
    }

    fn with(kubeconfig: &Kubeconfig) -> Self {
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = write(home.path(), kubeconfig).display().to_string();
        Self { home, kubeconfig }
    }

    pub(in crate::hub) async fn ca(&self, arguments: &[&str]) -> Output {
        run(self.home.path(), &[&["ca"], arguments, &["--kubeconfig", &self.kubeconfig]].concat()).await
    }
}

async fn start(hub: &TestHub, ledger: &Location) -> RunningHub {
    let options = RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() };
    RunningHub::start_with(hub, options).await
}

async fn is_issued(admin: &Client, name: &str) -> bool {
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    certificate(&api.get(name).await.unwrap()).is_some()
}

async fn tainted(lineage: &OnServer) -> Vec<String> {
    let authorities = lineage.status().await.authorities;
    authorities.into_iter().filter(|authority| authority.tainted).map(|authority| authority.id).collect()
}

#[tokio::test]
async fn a_tainted_authority_signs_nothing_more_and_is_replaced() {
    let (log, _guard) = log::capture("info");
    let (hub, admin, running) = mk_held().await;
    let lineage = OnServer::client(&admin);
    running.follow_once();
    let first = lineage.wait(&["Active"]).await;
    let by_first = issue(&hub, &admin).await;
    taint(&admin, &first[0]).await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(reason, "ActiveTainted");
    assert!(message.ends_with(&format!("because {} is tainted.", first[0])), "{message}");
    assert_eq!(tainted(&lineage).await, first);
    let (_, note) = wait_event(&admin, "AuthorityTainted").await;
    assert!(note.starts_with(&format!("The authority {} is tainted", first[0])), "{note}");
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    lineage.reconcile().await;
    assert!(!is_issued(&admin, &name).await, "it waits");
    assert_eq!(lineage.wait(&["Next", "Active"]).await, ids, "gateways do not trust the next one yet");
    running.follow_once();
    wait_csr(&admin, &name, "issued", certificate).await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids);
    lineage.wait_signs(&ids).await;
    let renew_within =
        async || lineage.status().await.authorities.into_iter().map(|it| it.renew_within).collect::<Vec<_>>();
    assert_eq!(renew_within().await, [None, Some(60)]);
    assert_eq!(running.trust.borrow().signers[0].renew_within, [(first[0].as_str().into(), 60)].into());
    let bundle = lineage.bundle().await.unwrap();
    assert_eq!(signed_by(&bundle, &issue(&hub, &admin).await, running.clock.now()), ids[0]);
    assert_eq!(signed_by(&bundle, &by_first, running.clock.now()), first[0], "still trusted");
    wait_ready(&admin, "telemetry", "True").await;
    let text = log.text();
    let step = |step: &str| text.lines().any(|line| line.contains(step) && line.contains(&first[0]));
    assert!(step("tainted"), "the audit log has the step: {text}");

    super::kit::roll_back(&admin, &ids[0]).await;
    wait_until(TIMEOUT, "the refusal", async || {
        let conditions = lineage.status().await.conditions;
        let rotating = conditions.into_iter().find(|condition| condition.type_ == "Rotating")?;
        rotating.message.ends_with(&format!("the previous authority {} is tainted.", first[0])).then_some(())
    })
    .await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids);
}

#[tokio::test]
async fn a_tainted_next_is_replaced_and_no_hub_misses_it() {
    let (log, _guard) = log::capture("info");
    let (_dir, ledger) = fresh_ledger();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let options = RunningHubOptions { follow: false, ledger: Some(ledger.clone()), ..RunningHubOptions::default() };
    let running = RunningHub::start_with(&hub, options).await;
    wait_ready(&admin, "telemetry", "True").await;
    running.follow_once();
    let (lineage, ann) = (OnServer::client(&admin), Person::ann(&hub));
    issue(&hub, &admin).await;
    super::rotate(&admin, "r1").await;
    let before = lineage.wait(&["Next", "Active"]).await;
    lineage.wait_bundle(&before).await;
    lineage.wait_reported(&["Next", "Active"], &before).await; // the command reads the status
    let output = ann.ca(&["taint", "telemetry", "--authority", "0123456789abcdef"]).await;
    let sentence = "telemetry has no authority 0123456789abcdef: `addon-signer ca status` lists them";
    assert_eq!((output.code, output.stderr.contains(sentence)), (1, true), "{}", output.stderr);
    let output = ann.ca(&["taint", "telemetry", "--authority", &before[0]]).await;
    let sentence = format!("Asked the hub to taint {} of telemetry. Another authority takes its place.\n", before[0]);
    assert_eq!((output.code, output.stderr.ends_with(&sentence)), (0, true), "{}", output.stderr);
    let after = wait_until(TIMEOUT, "another one", async || {
        let ids = lineage.wait(&["Next", "Active"]).await;
        (ids[0] != before[0]).then_some(ids)
    })
    .await;
    assert_eq!(after[1], before[1]);
    lineage.wait_bundle(&after).await;
    lineage.wait_reported(&["Next", "Active"], &after).await;
    assert_eq!(lineage.data().await.len(), 5, "its key is gone");
    let output = ann.ca(&["taint", "telemetry"]).await;
    let hint = format!("If its Secret was copied, taint {} as well: it is the next to sign.\n", after[0]);
    assert_eq!((output.code, output.stderr.ends_with(&hint)), (0, true), "{}", output.stderr);
    running.stop().await;
    let _running = start(&hub, &ledger).await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    assert_eq!(ids, after);
    lineage.wait_signs(&ids).await;
    assert!(!log.text().contains("older than the ledger"), "{}", log.text());
}

/// If the gateway got no certificate any more, it would end, and that would not stop whoever has the key.
#[tokio::test]
async fn a_tainted_serving_authority_signs_until_next_may() {
    let (hub, admin, running) = mk_ready().await;
    let (lineage, ann) = (OnServer::serving(&admin), Person::ann(&hub));
    let first = lineage.wait(&["Active"]).await;
    issue(&hub, &admin).await;
    let output = ann.ca(&["taint", "--serving"]).await;
    assert_eq!(output.code, 0, "{}", output.stderr);
    let ids = lineage.wait(&["Next", "Active"]).await;
    assert_eq!(ids[1], first[0]);
    wait_until(TIMEOUT, "the report", async || {
        (report(&lineage).await["authorities"][1]["tainted"] == json!(true)).then_some(())
    })
    .await;
    let name = gateway_request(&hub).await;
    let pem = wait_csr(&admin, &name, "issued", certificate).await;
    let leaf = rustls_pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).unwrap();
    let verified = lineage.bundle().await.unwrap();
    let verified = verified.verify(&leaf, addon_signer_core::ca::bundle::Purpose::Server, running.clock.now());
    assert_eq!(verified.unwrap().id().as_str(), first[0]);
    let status = ann.ca(&["status", "--serving"]).await;
    assert!(status.stdout.contains("Active, tainted"), "{}", status.stdout);
    let early = ann.ca(&["advance", "--serving"]).await;
    let sentence = "Agents get the anchor with their next certificates, or at once with trust.manifestWorks";
    assert_eq!((early.code, early.stderr.contains(sentence)), (3, true), "{}", early.stderr);
    let again = ann.ca(&["taint", "--serving"]).await;
    let sentence = format!("{} of (serving) is tainted already", first[0]);
    assert_eq!((again.code, again.stderr.contains(&sentence)), (1, true), "{}", again.stderr);
}

#[tokio::test]
async fn a_revoked_active_is_replaced_at_once_and_no_hub_misses_it() {
    let (log, _guard) = log::capture("info");
    let (_dir, ledger) = fresh_ledger();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let running = start(&hub, &ledger).await;
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    let first = lineage.wait(&["Active"]).await;
    let by_first = issue(&hub, &admin).await;
    revoke(&admin, &first[0]).await;
    let second = wait_until(TIMEOUT, "another authority", async || {
        let ids = lineage.wait(&["Active"]).await;
        (ids != first).then_some(ids)
    })
    .await;
    lineage.wait_bundle(&second).await;
    lineage.wait_signs(&second).await;
    let bundle = lineage.bundle().await.unwrap();
    let purpose = addon_signer_core::ca::bundle::Purpose::Client;
    assert!(bundle.verify(&by_first, purpose, running.clock.now()).is_err(), "its certificate has ended");
    assert_eq!(signed_by(&bundle, &issue(&hub, &admin).await, running.clock.now()), second[0]);
    assert_eq!(lineage.data().await.len(), 3, "its key is gone");
    let (_, note) = wait_event(&admin, "AuthorityRemoved").await;
    assert!(note.contains(&first[0]), "{note}");
    let (_, note) = wait_event(&admin, "Forced").await;
    assert!(note.contains("or was revoked"), "{note}");
    let text = log.text();
    let is_step = |lineage: &str| lineage.contains("revoked") && lineage.contains(&first[0]);
    assert!(text.lines().any(is_step), "the audit log has the step: {text}");
    running.stop().await;
    let _running = start(&hub, &ledger).await;
    assert_eq!(
        signed_by(&bundle, &issue(&hub, &admin).await, addon_signer_platform::clock::Clock::default().now()),
        second[0]
    );
    assert_eq!(lineage.wait(&["Active"]).await, second, "once");
    assert!(!log.text().contains("older than the ledger"), "{}", log.text());
}

/// Waits until the hub reports that the addon's certificate is of this authority.
async fn wait_certificate(admin: &Client, id: &str) {
    wait_until(TIMEOUT, "the report on the certificate", async || {
        let addon = managed_cluster_addons(admin, "spoke1").await.get("telemetry").await.unwrap();
        addon.data["status"]["conditions"].to_string().contains(id).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_would_be_locked_out_is_said_before_it_is() {
    let (hub, admin, running) = mk_held().await;
    let (lineage, ann) = (OnServer::client(&admin), Person::ann(&hub));
    running.follow_once();
    let first = lineage.wait(&["Active"]).await;
    issue(&hub, &admin).await;
    let rest = ann.ca(&["plan", "telemetry"]).await;
    let sentence = format!("or by the age of {}.\n\nIf it were taken now:\nNobody would be locked out.\n", first[0]);
    assert_eq!((rest.code, rest.stdout.ends_with(&sentence)), (0, true), "{}{}", rest.stdout, rest.stderr);

    super::rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    wait_until(TIMEOUT, "the report", async || lineage.status().await.rotation?.waiting_for).await;
    let waits = ann.ca(&["plan", "telemetry", "--output", "json"]).await;
    assert_eq!(waits.code, 3, "{}", waits.stderr);
    let plan: serde_json::Value = serde_json::from_str(&waits.stdout).unwrap();
    assert_eq!((&plan["step"], &plan["authority"]), (&json!("Activate"), &json!(ids[0])));
    let waiting = "1 of 1 gateways to trust the new authority: the one in the hub's process";
    assert_eq!(plan["waitingFor"], waiting);
    assert!(waits.stderr.contains(&format!("refused: the step waits for {waiting}")), "{}", waits.stderr);

    let early = ann.ca(&["advance", "telemetry"]).await;
    let sentence = format!("refused: {} waits for {waiting}", ids[0]);
    assert_eq!((early.code, early.stderr.contains(&sentence)), (3, true), "{}", early.stderr);

    // No ledger is asked here. The hub reports whose certificate spoke1 has, but that is not enough for `revoke`.
    wait_certificate(&admin, &first[0]).await;
    let refused = ann.ca(&["revoke", "telemetry", &first[0]]).await;
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    let row = refused.stderr.lines().find(|row| row.starts_with("spoke1")).unwrap_or_default();
    assert!(row.contains('Z') && row.ends_with("by the hub's report"), "{}", refused.stderr);
    assert!(refused.stderr.contains("Unknown: the ledger was not asked"), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("--yes revokes {} of telemetry on context ", first[0])));
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Next", "Active"]).await, ids, "nothing was revoked");
    let missing = ann.ca(&["revoke", "telemetry", "0123456789abcdef"]).await;
    assert_eq!(missing.code, 1, "{}", missing.stderr);

    let done = ann.ca(&["revoke", "telemetry", &first[0], "--yes", "--watch"]).await;
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stderr.contains(&format!("{} signs at once.", ids[0])), "{}", done.stderr);
    assert_eq!(lineage.wait(&["Active"]).await, ids[..1], "Next signs, although gateways do not trust it yet");
}

#[tokio::test]
async fn advance_removes_an_old_authority_that_nobody_needs() {
    let (hub, admin, _running) = mk_ready().await;
    let (lineage, ann) = (OnServer::client(&admin), Person::ann(&hub));
    let nothing = ann.ca(&["advance", "telemetry"]).await;
    let sentence = "no rotation of telemetry is under way: `addon-signer ca rotate telemetry` starts one";
    assert_eq!((nothing.code, nothing.stderr.contains(sentence)), (1, true), "{}", nothing.stderr);
    issue(&hub, &admin).await;
    super::rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    lineage.wait_signs(&ids).await;
    // No ledger is asked here, so it is not certain whose certificate spoke1 has; also if its last CSR was refused.
    let hostile =
        CertificateSigningRequest { spec: mk_csr("spoke2", "telemetry").spec, ..mk_csr("spoke1", "telemetry") };
    let name = submit(&hub, "spoke1", &hostile).await;
    wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    let refused = ann.ca(&["advance", "telemetry"]).await;
    let sentence = format!("`addon-signer ca revoke telemetry {}` removes it all the same", ids[1]);
    assert_eq!((refused.code, refused.stderr.contains(&sentence)), (3, true), "{}", refused.stderr);
    assert!(refused.stderr.lines().any(|row| row.starts_with("spoke1")), "{}", refused.stderr);
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids);
    let addons = managed_cluster_addons(&admin, "spoke1").await;
    addons.delete("telemetry", &Default::default()).await.unwrap();
    let done = ann.ca(&["advance", "telemetry", "--watch"]).await;
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stderr.contains(&format!("Asked the hub to remove {} of telemetry", ids[1])), "{}", done.stderr);
    assert_eq!(lineage.wait(&["Active"]).await, ids[..1]);
}

#[tokio::test]
async fn requests_of_two_administrators_are_both_done() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let (_dir, ledger) = fresh_ledger();
    let running = start(&hub, &ledger).await;
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    issue(&hub, &admin).await;
    crate::hub::lineages::rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    lineage.wait_signs(&ids).await;
    running.stop().await;
    let (ann, bob) = (Person::ann(&hub), Person::ann(&hub));
    let asked: Vec<_> = ids.iter().map(|id| ["taint", "telemetry", "--authority", id]).collect();
    let (first, second) = tokio::join!(ann.ca(&asked[0]), bob.ca(&asked[1]));
    assert_eq!((first.code, second.code), (0, 0), "{}{}", first.stderr, second.stderr);
    // The one that has signed nothing is removed soon after.
    let (decisions, _, _guard) = log::capture_audit();
    let _running = start(&hub, &ledger).await;
    wait_until(TIMEOUT, "both to be tainted", async || {
        let steps = decisions.json();
        let is_tainted = |id: &String| steps.iter().any(|step| step["step"] == "tainted" && step["authority"] == *id);
        ids.iter().all(is_tainted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_request_is_written_only_onto_what_the_command_has_seen() {
    let (hub, admin, running) = mk_held().await;
    running.follow_once();
    let lineage = OnServer::client(&admin);
    lineage.wait(&["Active"]).await;
    super::rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    wait_until(TIMEOUT, "the report", async || lineage.status().await.rotation?.waiting_for).await;

    // The lineage takes a step after the command has read it: another authority signs than the one to taint.
    let gate = Gate::in_front_of(hub.admin().await).await;
    let ann = Person::with(&gate.kubeconfig());
    gate.stop_at(Moment::Before, |write| write.path.ends_with("/selfsubjectreviews"));
    let meanwhile = async {
        gate.stopped().await;
        running.follow_once();
        let signs = |status: AddOnSignerStatus| status.authorities[0].state == AuthorityState::Active;
        wait_until(TIMEOUT, "the step", async || signs(lineage.status().await).then_some(())).await;
        gate.open();
    };
    let (output, ()) = tokio::join!(ann.ca(&["taint", "telemetry"]), meanwhile);
    let sentence = "telemetry has changed meanwhile: see `addon-signer ca status telemetry`, and ask again";
    assert_eq!((output.code, output.stderr.contains(sentence)), (1, true), "{}", output.stderr);

    // Somebody else's write comes between the last look and the command's own write.
    gate.stop_at(Moment::Late, |write| write.path.ends_with("/addonsigners/telemetry"));
    let meanwhile = async {
        gate.stopped().await;
        super::kit::taint(&admin, &ids[1]).await;
        let status = gate.deliver().await;
        gate.open();
        status
    };
    let (_, status) = tokio::join!(ann.ca(&["taint", "telemetry"]), meanwhile);
    assert_eq!(status, StatusCode::CONFLICT);
}

/// Only whoever may change the AddOnSigner decides on its authorities.
#[tokio::test]
async fn whoever_may_write_config_maps_revokes_nothing() {
    let (hub, admin, _running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    let first = lineage.wait(&["Active"]).await;
    issue(&hub, &admin).await;
    let asked = json!({ "metadata": { "annotations": { ANNOTATION_REVOKE_AUTHORITY: format!("{} now", first[0]) } } });
    lineage.maps.patch(lineage.map, &PatchParams::default(), &Patch::Merge(asked)).await.unwrap();
    super::rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    lineage.wait_signs(&ids).await;
    assert_eq!(ids[1], first[0]);
}
