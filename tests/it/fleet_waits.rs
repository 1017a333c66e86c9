//! What `addon-signer status` says of certificates that the gateway refuses, of CSRs that wait, and where no
//! ManifestWork brings the trust bundle; and how much memory it takes where a cluster pads its objects.

use std::process::Stdio;
use std::time::Duration;

use addon_signer::process::HubOptions;
use addon_signer_api::AddOnSigner;
use addon_signer_core::rate::Rate;
use addon_signer_hub::HubConfig;
use addon_signer_platform::clock::Clock;
use hyper::Method;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cli::run;
use crate::fleet_status::{World, viewer};
use crate::gateway::backend;
use crate::hub::{mk_served, submit};
use crate::whole::ours::enrolled;
use crate::whole::{active, options, prepare};
use test_kit::hub::{
    TIMEOUT, certificate, change_signer, change_signer_seen, create_signer, telemetry, wait_csr, wait_ready,
};
use test_kit::objects::managed_cluster_addons;
use test_kit::ocm::approve;
use test_kit::request::mk_csr;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

/// A hub without the right to write ManifestWorks, and an addon on the cluster `spoke1`.
async fn mk_world(options: HubOptions) -> (World, Client) {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "24h").await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    (World::start(hub, options).await, admin)
}

/// Makes a CSR of `spoke1` for a certificate that lives so long, and waits until it is issued.
async fn issue(world: &World, admin: &Client, seconds: i32) {
    let mut request = mk_csr("spoke1", "telemetry");
    request.spec.expiration_seconds = Some(seconds);
    let name = submit(&world.hub, "spoke1", &request).await;
    wait_csr(admin, &name, "issued", certificate).await;
}

fn is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |row| row["state"] == state
}

/// docs/runbooks/lost-ca.md, "Or give it up". The ledger calls the certificates of the old authority valid.
#[tokio::test]
async fn certificates_of_an_authority_that_was_given_up_do_not_count() {
    let (world, admin) = mk_world(options()).await;
    issue(&world, &admin, 80_000).await;
    let lost = active(&admin).await.unwrap();
    let row = world.until("spoke1", "the certificate", is("NeverSeen")).await;
    assert_eq!(row["authority"], lost.as_str());

    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let spec = serde_json::to_value(signers.get("telemetry").await.unwrap().spec).unwrap();
    let now = DeleteParams::default();
    secrets.delete("telemetry-client-authorities", &now).await.unwrap();
    wait_ready(&admin, "telemetry", "False").await;
    signers.delete("telemetry", &now).await.unwrap();
    maps.delete("telemetry-client-ca", &now).await.unwrap();
    create_signer(&admin, "telemetry", spec).await;
    let is_another = async || active(&admin).await.filter(|id| *id != lost);
    let present = wait_until(TIMEOUT, "another authority", is_another).await;
    let why = format!(
        "a certificate from a present authority instead of {lost}: delete its Secret on the cluster \
         (docs/runbooks/lost-ca.md)"
    );
    let does_not_count = |row: &Value| row["state"] == "NoCertificate" && row["waitsFor"] == why.as_str();
    world.until("spoke1", "the old certificate not to count", does_not_count).await;
    let check = world.check().await;
    let line = "BAD  addons on clusters: 1 of 1 have no valid certificate";
    assert!(check.code == 1, "{}", check.stdout);
    assert!(check.stdout.contains(line), "{}", check.stdout);

    issue(&world, &admin, 3_600).await;
    let row = world.until("spoke1", "the new certificate", is("NeverSeen")).await;
    assert_eq!(row["authority"], present.as_str(), "the old one lives longer");
    world.whole.stop().await.unwrap();
}

#[tokio::test]
async fn without_manifest_works_nothing_brings_the_trust_bundle() {
    let (world, admin) = mk_world(options()).await;
    let World { hub, whole, home, .. } = &world;
    issue(&world, &admin, 3_600).await;
    let pair = enrolled(hub, &admin, home.path(), "spoke2", whole.gateway).await;
    assert_eq!(pair.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap().0, 200);
    let rows = [
        world.until("spoke2", "its agent's CSR", is("Certified")).await,
        world.until("spoke1", "the certificate", is("NeverSeen")).await,
    ];
    assert!(rows.iter().all(|row| row.get("hasTrust").is_none() && row["trustBy"] == "Nothing"), "{rows:?}");
    let sentence =
        "no ManifestWork brings the gateway's trust bundle to spoke1/telemetry, and only addon-signer-agent ";
    let (status, check) = (world.status(&[]).await, world.check().await);
    assert!(status.stderr.contains(&format!("Note: {sentence}")), "{}", status.stderr);
    assert!(check.stdout.contains(&format!("?    addons on clusters: {sentence}")), "{}", check.stdout);
    change_signer(&admin, json!({ "spec": { "trust": { "manifestWork": "Never" } } })).await;
    world.until("spoke1", "the other way", |row| row["trustBy"] == "Other").await;
    world.whole.stop().await.unwrap();
}

async fn annotate(admin: &Client, annotations: Value) {
    let addons = managed_cluster_addons(admin, "spoke1").await;
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    addons.patch("telemetry", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn request_says_what_it_awaits_and_revocation_what_it_revokes() {
    const REVOKE_BEFORE: &str = "addon-signer.io/revoke-before";
    let rate = Rate { burst: 1, interval: Duration::from_secs(3_600) };
    let options = options();
    let (world, admin) = mk_world(HubOptions { hub: HubConfig { rate, ..options.hub }, ..options }).await;
    issue(&world, &admin, 3_600).await;
    annotate(&admin, json!({ REVOKE_BEFORE: "soon" })).await;
    let row = world.until("spoke1", "no eligibility", is("NotEligible")).await;
    let unreadable = "a valid time in its annotation addon-signer.io/revoke-before";
    assert_eq!(row["waitsFor"], unreadable);

    // The certificate begins when the addon was made, which may be this second.
    let second = Clock::default().now();
    let next = async || Some(Clock::default().now()).filter(|now| *now > second);
    let revoked = wait_until(TIMEOUT, "another second", next).await;
    annotate(&admin, json!({ REVOKE_BEFORE: revoked.to_string() })).await;
    let row = world.until("spoke1", "the revocation", is("Revoked")).await;
    assert!(row["waitsFor"].as_str().unwrap().contains("OCM's agent makes one when its Secret"), "{row}");
    let valid = world.run(&["certs", "list", "--state", "valid", "--cluster", "spoke1"]).await;
    assert_eq!((valid.code, valid.stdout.lines().count(), &*valid.stderr), (0, 1, ""), "{}", valid.stdout);
    let limited = submit(&world.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let waits = |expected: String| move |row: &Value| row["waitsFor"] == expected.as_str();
    let sentence = "This addon or its cluster had too many certificates; the CSR waits and is signed later.";
    let expected = format!("the hub to answer its CSR {limited}: {sentence}");
    world.until("spoke1", "the turn to be waited for", waits(expected)).await;
    // The next CSR may be made in the same second.
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    requests.delete(&limited, &DeleteParams::default()).await.unwrap();

    change_signer_seen(&admin, json!({ "spec": { "approval": "External" } })).await;
    let open = submit(&world.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    world.until("spoke1", "the approval", waits(format!("an approval of its CSR {open}"))).await;

    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    secrets.delete("telemetry-client-authorities", &DeleteParams::default()).await.unwrap();
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    change_signer(&admin, json!({ "spec": { "approval": "Automatic" } })).await;
    let reported = format!("the hub to answer its CSR {open}, but the AddOnSigner telemetry says {reason}: {message}");
    world.until("spoke1", "the hub's trouble", waits(reported.clone())).await;

    annotate(&admin, json!({ REVOKE_BEFORE: "2099-01-01T00:00:00Z" })).await;
    let row = world.until("spoke1", "the later time", |row| row["waitsFor"] != reported.as_str()).await;
    let until = "2099-01-01T00:00:00Z; until then its annotation addon-signer.io/revoke-before revokes everything";
    assert_eq!(row["waitsFor"], until);
    world.whole.stop().await.unwrap();
}

/// A wrong signer name in an addon is found, with the one that was meant; and so is a signer that is down.
#[tokio::test]
async fn a_wrong_signer_name_and_a_hub_that_is_down_are_said() {
    let (world, admin) = mk_world(options()).await;
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "unknown").await;
    let mut approved = Vec::new();
    for (cluster, addon) in [("spoke1", "telemetry"), ("spoke2", "unknown")] {
        let mut request = mk_csr(cluster, addon);
        request.spec.signer_name = "example.com/telemtery".to_owned();
        approved.push(submit(&world.hub, cluster, &request).await);
    }
    approve(&Api::all(admin.clone()), &approved[1]).await;
    let names = format!(
        "an AddOnSigner with the signerName example.com/telemtery, which its CSR {} names; the nearest that exists is \
         example.com/telemetry",
        approved[0]
    );
    world.until("spoke1", "the wrong name", |row| row["waitsFor"] == names.as_str()).await;
    let both = "have no certificate, approved or not, because they name a signer that no AddOnSigner has: \
                example.com/telemtery (the nearest is example.com/telemetry; CSR ";
    let status = wait_until(TIMEOUT, "both to be reported", async || {
        let status = world.status(&[]).await;
        Some(status).filter(|status| status.stderr.contains(both) && status.stderr.contains(" and 1 more). Unless "))
    })
    .await;
    assert_eq!(status.code, 0, "{}", status.stderr);
    let check = world.check().await;
    assert!(
        check.stdout.contains(&format!("?    addons on clusters: CSRs of accepted clusters {both}")),
        "{}",
        check.stdout
    );
    assert_eq!(check.code, 1, "an agent has no certificate");
    let installation = world.run(&["check", "--installation"]).await;
    assert_eq!(installation.code, 0, "{}", installation.stdout);

    let World { whole, home, kubeconfig, hub } = world;
    whole.stop().await.unwrap();
    let down = run(home.path(), &["status", "--kubeconfig", &kubeconfig]).await;
    assert!(down.stdout.contains("spoke1   telemetry  "), "{}", down.stdout);
    let since = "this may be old: no hub has been leading in the namespace addon-signer since 20";
    assert!(down.code == 1 && down.stderr.contains(since), "{}", down.stderr);
    drop(hub);
}

/// The most memory of `status`, in KiB, and its rows.
async fn peak(home: &tempfile::TempDir, kubeconfig: &str) -> (u64, Vec<Value>) {
    let script = "import resource, subprocess, sys\n\
                  code = subprocess.call(sys.argv[1:])\n\
                  print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\n\
                  sys.exit(code)";
    let mut command = Command::new("python3");
    command.env_clear().env("HOME", home.path()).stdin(Stdio::null()).args(["-c", script]);
    command.arg(env!("CARGO_BIN_EXE_addon-signer")).args(["status", "--output", "json", "--kubeconfig", kubeconfig]);
    let output = tokio::time::timeout(3 * TIMEOUT, command.output()).await.unwrap().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("this may be old: no hub has been leading"), "{errors}");
    let peak = errors.lines().last().unwrap().parse().unwrap();
    (peak, serde_json::from_slice(&output.stdout).unwrap())
}

/// How many MiB more `status` takes because of so many of these CSRs, which must hide nobody.
async fn more_memory(hub: &TestHub, request: &CertificateSigningRequest, count: usize) -> u64 {
    mk_served(hub, telemetry()).await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = viewer(hub, home.path()).await;
    let (before, _) = peak(&home, &kubeconfig).await;
    for _ in 0..count {
        submit(hub, "spoke1", request).await;
    }
    let (after, rows) = peak(&home, &kubeconfig).await;
    let state: Vec<_> = rows.iter().map(|row| format!("{} {}", row["cluster"], row["state"])).collect();
    assert_eq!(state, [r#""spoke1" "Unknown""#]);
    after.saturating_sub(before) >> 10
}

/// How many objects a page of a list has.
const PAGE: usize = 16;

/// As Kubernetes' types a page of them would take 40 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_types_blow_up_take_little_memory() {
    let hub = TestHub::start().await;
    let mut request = mk_csr("spoke1", "telemetry");
    // A real API server needs seconds for the `managedFields` of so many.
    let finalizers = if hub.is_real() { 2_000 } else { 40_000 };
    request.metadata.finalizers = Some((0..finalizers).map(|n| format!("a/{n}")).collect());
    let more = more_memory(&hub, &request, PAGE).await;
    assert!(more < 25, "{more} MiB");
}

/// Two threads, so that the stand-in can answer HTTP/2 pings while it serialises a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_a_megabyte_take_little_memory_and_hide_nobody() {
    let hub = TestHub::start().await;
    let mut request = mk_csr("spoke1", "telemetry");
    let owner = OwnerReference {
        name: "x".repeat(1_000_000),
        api_version: "v1".into(),
        kind: "Pod".into(),
        uid: "u".into(),
        ..<_>::default()
    };
    request.metadata.owner_references = Some(vec![owner]);
    let more = more_memory(&hub, &request, 4 * PAGE).await;
    assert!(more < 80, "{more} MiB");
}
