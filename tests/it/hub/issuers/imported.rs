//! A Secret with an authority and its key, as a person or cert-manager writes it.

use std::sync::Arc;
use std::time::Duration;

use addon_signer_api::AddOnSigner;
use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_core::encoding::pem;
use addon_signer_core::names::{ANNOTATION_AUTHORITY_OF, ANNOTATION_REVOKE_AUTHORITY};
use addon_signer_hub::authorities::supply::{ServingSource, Trusted};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, ExtendedKeyUsagePurpose, GeneralSubtree,
    IsCa, KeyPair, NameConstraints, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::UnixTime;
use serde_json::json;

use super::{
    OF_SEARCH, change, put, put_authority, put_authority_in, put_pair, telemetry_of, wait_issued, wait_reported,
};
use crate::hub::lineages::{OnServer, Person, issue, not_after, report, revoke, revoke_all};
use crate::hub::signers::allow;
use crate::hub::{mk_csr, mk_served, submit};
use test_kit::TestHub;
use test_kit::company::{CompanyCa, ca_params, chain};
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, certificate, change_signer, create_signer, telemetry, wait_csr, wait_ready,
};
use test_kit::{accept_cluster, install_addon, wait_until};

const DAY: Duration = Duration::from_secs(86_400);

/// An authority for names in one domain.
fn authority_for(root: &CompanyCa, domain: &str) -> CompanyCa {
    let mut params = ca_params(domain, DAY * 700);
    let permitted_subtrees = vec![GeneralSubtree::DnsName(domain.to_owned())];
    params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    root.signs(params)
}

/// A hub whose signer has the first authority of this company.
async fn mk_imported(root: &CompanyCa) -> (TestHub, kube::Client, RunningHub, OnServer, CompanyCa) {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry_of(json!({ "type": "Imported", "secretName": "company" }))).await;
    let first = root.authority("Telemetry CA 1");
    put_authority(&admin, &first, &[], root).await;
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    assert_eq!(lineage.wait(&["Active"]).await, [first.id()]);
    (hub, admin, running, lineage, first)
}

#[tokio::test]
async fn a_leaf_has_its_chain_and_verifies_by_authority_and_by_root() {
    let root = CompanyCa::root();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry_of(json!({ "type": "Imported", "secretName": "company" }))).await;
    let middle = root.signs(ca_params("Example Issuing CA", DAY * 1000));
    let authority = middle.authority("Telemetry CA");
    put_authority(&admin, &authority, &[&middle], &root).await;
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let text = wait_csr(&admin, &name, "issued", certificate).await;
    let certificates = pem::certificates(text.as_bytes()).unwrap();
    assert_eq!(certificates[1..], [authority.der.clone(), middle.der.clone()], "all but the root");
    let lineage = OnServer::client(&admin);
    let bundle = lineage.bundle().await.unwrap();
    assert_eq!(bundle.pem(), chain(&[&authority.der]), "the authority itself is pinned, not the root");
    let now = running.clock.now();
    assert_eq!(bundle.verify(&certificates[0], Purpose::Client, now).unwrap().id().as_str(), authority.id());
    let mut roots = RootCertStore::empty();
    roots.add(root.der.clone()).unwrap();
    let provider = addon_signer_platform::crypto::provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(now.unix().unsigned_abs()));
    verifier.verify_client_cert(&certificates[0], &certificates[1..], time).unwrap();
    let by_root = Bundle::from_pem(chain(&[&root.der]).as_bytes()).unwrap();
    assert!(by_root.verify(&certificates[0], Purpose::Client, now).is_err(), "nobody takes it for one of the root");
}

#[tokio::test]
async fn a_new_pair_is_a_rotation_like_any_other() {
    let root = CompanyCa::root();
    let (hub, admin, _running, lineage, first) = mk_imported(&root).await;
    issue(&hub, &admin).await;
    let second = root.authority("Telemetry CA 2");
    put_authority(&admin, &second, &[], &root).await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    assert_eq!(ids, [second.id(), first.id()]);
    lineage.wait_signs(&ids).await;
    lineage.wait_bundle(&ids).await;
    wait_issued(&lineage, "True", "Every authority").await;
    let mut before = ca_params("Telemetry CA 0", DAY * 700);
    before.not_before -= DAY;
    put_authority(&admin, &root.signs(before), &[], &root).await; // somebody restores a backup
    wait_issued(&lineage, "False", &format!("it is older than {}, which signs", second.id())).await;
    put_authority(&admin, &first, &[], &root).await; // or the pair before, which the lineage still has
    wait_issued(&lineage, "True", "Every authority").await;
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids);
    let data = lineage.data().await;
    let stored = String::from_utf8(data[&format!("{}.crt", second.id())].0.clone()).unwrap();
    assert_eq!(stored, chain(&[&second.der, &root.der]), "with what is above it");
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_is_said_and_the_line_goes_on() {
    let root = CompanyCa::root();
    let (hub, admin, _running, lineage, first) = mk_imported(&root).await;
    let (other, foreign) = (root.authority("other"), CompanyCa::root().authority("foreign"));
    let mut leaf = ca_params("leaf", DAY * 300);
    leaf.is_ca = IsCa::NoCa;
    let leaf = root.signs(leaf);
    let mut middle = ca_params("middle", DAY * 600);
    middle.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let middle = root.signs(middle);
    let below = middle.authority("below");
    let short = root.signs(ca_params("short", DAY * 30));
    let with = |name: &str, change: fn(&mut CertificateParams)| {
        let mut params = ca_params(name, DAY * 600);
        change(&mut params);
        root.signs(params)
    };
    let old = with("old", |it| (it.not_before, it.not_after) = (it.not_before - DAY, it.not_before));
    let web = with("web", |it| it.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth));
    let large = with("large", |it| {
        it.custom_extensions.push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![4; 70_000]));
    });
    let nameless = with("", |it| it.distinguished_name = DistinguishedName::new());
    let pem = |ca: &CompanyCa| chain(&[&ca.der]);
    let ca = &pem(&root);
    for (certificates, key, ca, why) in [
        (pem(&leaf), leaf.key(), ca, "\"CN=leaf\" is not a CA certificate (basic constraints and key usage)"),
        (pem(&other), first.key(), ca, "another certificate for the key of"),
        (pem(&other), below.key(), ca, "the private key is not the key of the first certificate, \"CN=other\""),
        (pem(&foreign), foreign.key(), ca, "no root has signed that"),
        (pem(&below) + &pem(&middle), below.key(), ca, "\"CN=middle\" has the path length 0"),
        (pem(&middle) + &pem(&below), below.key(), ca, "the certificates are in the wrong order: \"CN=below\""),
        (pem(&below) + &pem(&other), below.key(), ca, "\"CN=other\" did not sign \"CN=below\""),
        (pem(&short), short.key(), ca, "within renewBefore from now"),
        (pem(&old), old.key(), ca, "\"CN=old\" expired at "),
        (pem(&web), web.key(), ca, "\"CN=web\" is not for the authentication of TLS clients"),
        (pem(&large), large.key(), ca, "and at most 8192 are accepted"),
        (pem(&other), "hello".to_owned(), ca, "tls.key: there is no private key in PEM"),
        ("hello".to_owned(), other.key(), ca, "tls.crt: it has no certificate in PEM"),
        (pem(&other), other.key(), &"hello".to_owned(), "ca.crt: it has no certificate in PEM"),
        (pem(&other), other.key(), &String::new(), "there is no root (ca.crt)"),
        (pem(&nameless), nameless.key(), ca, "certificate 1 has an empty subject"),
    ] {
        put_pair(&admin, &certificates, &key, ca).await;
        let output = wait_issued(&lineage, "False", why).await;
        assert!(output.starts_with("The authority in the Secret company is not used: "), "{output}");
        assert!(output.ends_with(". The lineage continues with its present authorities."), "{output}");
    }
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    secrets.delete("company", &Default::default()).await.unwrap();
    wait_issued(&lineage, "False", "it does not exist").await;
    assert_eq!(lineage.wait(&["Active"]).await, [first.id()]);
    issue(&hub, &admin).await;
    put_authority(&admin, &first, &[], &root).await;
    wait_issued(&lineage, "True", "Every authority").await;
}

#[tokio::test]
async fn a_revoked_one_without_a_successor_is_tainted_until_then() {
    let root = CompanyCa::root();
    let (hub, admin, running, lineage, first) = mk_imported(&root).await;
    issue(&hub, &admin).await;
    revoke(&admin, &first.id()).await;
    wait_until(TIMEOUT, "Rotating to say so", async || {
        let conditions = lineage.status().await.conditions;
        let rotating = conditions.into_iter().find(|condition| condition.type_ == "Rotating")?;
        rotating
            .message
            .contains(&format!("until then {}, which is to be revoked, is trusted", first.id()))
            .then_some(())
    })
    .await;
    let status = &lineage.status().await.authorities[0];
    assert!(status.tainted && status.to_revoke, "it signs nothing more");
    let ann = Person::ann(&hub);
    let output = ann.ca(&["status", "telemetry"]).await;
    assert!(output.stdout.contains("Active, to be revoked"), "{}", output.stdout);
    let output = ann.ca(&["plan", "telemetry"]).await;
    let sentence = format!("telemetry: {} is revoked as soon as another authority can sign.", first.id());
    assert!(output.stdout.contains(&sentence), "{}", output.stdout);
    let output = ann.ca(&["rotate", "telemetry"]).await;
    assert_eq!((output.code, output.stderr.contains("is to be revoked: another")), (1, true), "{}", output.stderr);
    // Another program writes the AddOnSigner as it knows it.
    change_signer(&admin, json!({ "metadata": { "annotations": { ANNOTATION_REVOKE_AUTHORITY: null } } })).await;
    running.stop().await;
    let _running = RunningHub::start(&hub).await; // it has never seen the annotation
    let second = root.authority("Telemetry CA 2");
    put_authority(&admin, &second, &[], &root).await;
    lineage.wait_signs(&[second.id()]).await;
    issue(&hub, &admin).await;
    let third = root.authority("Telemetry CA 3");
    put_authority(&admin, &third, &[], &root).await;
    lineage.wait_signs(&[third.id(), second.id()]).await;
    put_authority(&admin, &first, &[], &root).await;
    wait_issued(&lineage, "False", &format!("{} has left this lineage before", first.id())).await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, [third.id(), second.id()]);
}

/// The one that is to be revoked first waits for a successor. The other one needs none.
#[tokio::test]
async fn an_old_one_is_revoked_while_another_waits_for_its_issuer() {
    let root = CompanyCa::root();
    let (hub, admin, _running, lineage, first) = mk_imported(&root).await;
    issue(&hub, &admin).await;
    let second = root.authority("Telemetry CA 2");
    put_authority(&admin, &second, &[], &root).await;
    lineage.wait_signs(&[second.id(), first.id()]).await;
    revoke_all(&admin, &[&second.id(), &first.id()]).await;
    assert_eq!(lineage.wait(&["Active"]).await, [second.id()]);
    wait_until(TIMEOUT, "the second one to be tainted", async || {
        lineage.status().await.authorities.first()?.tainted.then_some(())
    })
    .await;
}

/// The Secret of the lineage comes from before it had the pair, which the issuer still has.
#[tokio::test]
async fn a_pair_that_comes_again_keeps_its_certificates() {
    let root = CompanyCa::root();
    let (hub, admin, _running, lineage, _first) = mk_imported(&root).await;
    let backup = lineage.data().await;
    let second = root.authority("Telemetry CA 2");
    put_authority(&admin, &second, &[], &root).await;
    lineage.wait_signs(&[second.id()]).await;
    let end = not_after(&issue(&hub, &admin).await);
    lineage.set_data(backup).await;
    wait_until(TIMEOUT, "its end to be reserved again", async || {
        let members = lineage.members().await?;
        let again = members.iter().find(|member| member["id"] == second.id().as_str())?;
        (again["leavesExpire"].as_i64()? >= end.unix()).then_some(())
    })
    .await;
    lineage.wait_signs(&[second.id()]).await;
}

#[tokio::test]
async fn a_line_goes_on_when_its_issuer_cannot_be_asked() {
    let root = CompanyCa::root();
    let (hub, admin, _running, lineage, _) = mk_imported(&root).await;
    let issuer = json!({ "type": "Imported", "secretName": "Not_A_Name/x" });
    change(&admin, json!({ "authority": { "issuer": issuer } })).await;
    wait_issued(&lineage, "False", "is not used: ").await;
    issue(&hub, &admin).await;
}

#[tokio::test]
async fn two_signers_never_share_an_authority() {
    let root = CompanyCa::root();
    let (hub, admin, _running, lineage, first) = mk_imported(&root).await;
    allow(&hub, &admin, "example.com/search").await;
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "search").await;
    put(&admin, OF_SEARCH, &[("tls.crt", &chain(&[&first.der, &root.der])), ("tls.key", &first.key())]).await;
    let issuer = json!({ "type": "Imported", "secretName": OF_SEARCH });
    let spec = json!({ "signerName": "example.com/search", "addOns": ["search"], "authority": { "issuer": issuer } });
    create_signer(&admin, "search", spec).await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let message = wait_until(TIMEOUT, "the hub to say why", async || {
        let conditions = signers.get("search").await.ok()?.status?.conditions;
        let healthy = conditions.into_iter().find(|condition| condition.type_ == "AuthorityHealthy")?;
        (healthy.reason == "AuthorityNotIssued").then_some(healthy.message)
    })
    .await;
    let why = format!(
        "The authority {} is not used: it is or was in the Secret telemetry-client-authorities, and each lineage has \
         keys",
        first.id()
    );
    assert!(message.contains(&why), "{message}");
    assert_eq!(lineage.wait(&["Active"]).await, [first.id()]);
}

/// Whoever writes AddOnSigners may name any Secret. Whoever writes the Secret says whose it is.
#[tokio::test]
async fn no_secret_is_taken_that_does_not_name_its_signer() {
    let (hub, root) = (TestHub::start().await, CompanyCa::root());
    let admin = mk_served(&hub, telemetry_of(json!({ "type": "Imported", "secretName": OF_SEARCH }))).await;
    put_authority_in(&admin, OF_SEARCH, &root.authority("Search CA"), &[], &root).await;
    let _running = RunningHub::start(&hub).await;
    let why = "The authority in the Secret of-search is not used: it does not exist in the hub's namespace, or its \
               annotation addon-signer.io/authority-of does not name telemetry.";
    wait_reported(&admin, why).await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let change = Patch::Merge(json!({ "metadata": { "annotations": { ANNOTATION_AUTHORITY_OF: "telemetry" } } }));
    secrets.patch(OF_SEARCH, &PatchParams::default(), &change).await.unwrap();
    wait_ready(&admin, "telemetry", "True").await;
}

#[tokio::test]
async fn an_authority_must_permit_the_names_that_are_issued() {
    let (hub, root) = (TestHub::start().await, CompanyCa::root());
    let mut spec = telemetry_of(json!({ "type": "Imported", "secretName": "company" }));
    spec["identity"] = json!({ "dnsNames": ["agent.example.com"] });
    let admin = mk_served(&hub, spec).await;
    put_authority(&admin, &authority_for(&root, "example.org"), &[], &root).await;
    put_authority_in(&admin, "serving", &root.authority("Gateway CA"), &[], &root).await;
    let serving_source =
        ServingSource { source: AuthoritySource::Secret("serving".to_owned()), trusted: Trusted::Authority };
    let options = RunningHubOptions { serving_source, ..RunningHubOptions::default() };
    let _running = RunningHub::start_with(&hub, options).await;
    wait_reported(&admin, "\"CN=example.org\" do not permit the DNS name agent.example.com").await;
    put_authority(&admin, &authority_for(&root, "example.com"), &[], &root).await;
    wait_ready(&admin, "telemetry", "True").await;

    put_authority_in(&admin, "serving", &authority_for(&root, "example.org"), &[], &root).await;
    let serving = OnServer::serving(&admin);
    wait_until(TIMEOUT, "the gateway's lineage to say why", async || {
        let report = report(&serving).await;
        report["notUsed"].as_str()?.contains("\"CN=example.org\" do not permit the DNS name gateway.").then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_rsa_key_or_another_algorithm_signs_as_well() {
    let root = CompanyCa::root();
    let (hub, admin, running, lineage, _) = mk_imported(&root).await;
    let p384 = root.signs_with_key(ca_params("P-384", DAY * 700), &PKCS_ECDSA_P384_SHA384);
    put_authority(&admin, &p384, &[], &root).await;
    lineage.wait_signs(&[p384.id()]).await; // the first one has signed nothing, so it is gone
    issue(&hub, &admin).await;
    let rsa = |pem: &str| KeyPair::from_pem_and_sign_algo(pem, &PKCS_RSA_SHA256).unwrap();
    let rsa_root = CompanyCa::root_with(rsa(include_str!("../../../../crates/core/testdata/keys/rsa3072-pkcs8.pem")));
    let key = rsa(include_str!("../../../../crates/core/testdata/keys/rsa2048-pkcs8.pem"));
    let authority = rsa_root.signs_for(ca_params("RSA", DAY * 700), key);
    let pkcs1 = include_str!("../../../../crates/core/testdata/keys/rsa2048-pkcs1.pem");
    put_pair(&admin, &chain(&[&authority.der]), pkcs1, &chain(&[&rsa_root.der])).await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    lineage.wait_signs(&ids).await;
    let leaf = issue(&hub, &admin).await;
    let bundle = lineage.bundle().await.unwrap();
    assert_eq!(bundle.verify(&leaf, Purpose::Client, running.clock.now()).unwrap().id().as_str(), ids[0]);
}

#[tokio::test]
async fn an_issuer_may_be_changed_at_any_time() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let _running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    let own = lineage.wait(&["Active"]).await;
    issue(&hub, &admin).await;
    let root = CompanyCa::root();
    let first = root.authority("Telemetry CA 1");
    put_authority(&admin, &first, &[], &root).await;
    change(&admin, json!({ "authority": { "issuer": { "type": "Imported", "secretName": "company" } } })).await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    assert_eq!(ids, [first.id(), own[0].clone()]);
    lineage.wait_signs(&ids).await;
    issue(&hub, &admin).await;
    change(&admin, json!({ "authority": { "issuer": { "type": "SelfSigned", "secretName": null } } })).await;
    crate::hub::lineages::rotate(&admin, "r1").await;
    let states = lineage.wait(&["Active", "Old", "Old"]).await;
    assert_eq!(states.len(), 3);
    let issued = lineage.status().await.conditions.into_iter().any(|condition| condition.type_ == "AuthorityIssued");
    assert!(!issued, "it is not about an issuer any more");
}
