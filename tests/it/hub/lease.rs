//! One hub leads: which hub waits, which takes over, and what an outage or a stolen Lease does.

use std::time::Duration;

use addon_signer_core::lease::{LEASE_NAME, Loss};
use addon_signer_hub::HubError;
use addon_signer_hub::lease::{DEFAULT_DURATION, Leadership};
use addon_signer_ledger::Location;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::{MOMENT, mk_csr, mk_ready, mk_served, submit};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, telemetry, wait_csr, wait_ready};
use test_kit::lease::{change, leases};
use test_kit::quick::{as_usual, pass};
use test_kit::store::on_store;
use test_kit::{TestHub, wait_until};

/// The shortest duration in which a loaded machine can still renew.
const SHORT: Duration = Duration::from_secs(3);

async fn start(hub: &TestHub) -> RunningHub {
    RunningHub::start_with(hub, RunningHubOptions { lease: Some(SHORT), ..RunningHubOptions::default() }).await
}

async fn spec(admin: &Client) -> LeaseSpec {
    leases(admin).get(LEASE_NAME).await.unwrap().spec.unwrap()
}

async fn waits(running: &RunningHub) -> String {
    wait_until(TIMEOUT, "a hub to wait", async || match running.leading.leadership() {
        Leadership::Waiting(why) if why.starts_with("held by") => Some(why),
        _ => None,
    })
    .await
}

async fn issue(hub: &TestHub, admin: &Client) {
    let name = submit(hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(admin, &name, "issued", certificate).await;
}

#[tokio::test]
async fn second_hub_takes_over_at_once_when_the_first_stops() {
    as_usual(); // the bound below is of the machine's time
    let (hub, admin, mut first) = mk_ready().await;
    let epoch = first.leads().await;
    let mut second = start(&hub).await;
    let holder = spec(&admin).await.holder_identity.unwrap();
    assert_eq!(waits(&second).await, format!("held by {holder}"));
    issue(&hub, &admin).await;
    assert!(second.trust.borrow().signers.is_empty(), "the second has begun nothing");
    wait_until(TIMEOUT, "the second to be ready to begin", async || {
        second.registry.read(addon_signer_core::registry::Registry::is_ready).then_some(())
    })
    .await;

    first.stop().await;
    let stopped = Instant::now();
    assert_eq!(second.leads().await, epoch + 1);
    // Without the release it would be two thirds of the duration at least: the first renews after each third.
    assert!(stopped.elapsed() < DEFAULT_DURATION / 2, "it took {:?}", stopped.elapsed());
    issue(&hub, &admin).await;
    let spec = spec(&admin).await;
    assert_ne!(spec.holder_identity, Some(holder));
    assert_eq!(spec.lease_transitions, i32::try_from(epoch + 1).ok());
    assert_eq!(spec.lease_duration_seconds, Some(3));
}

#[tokio::test]
async fn hub_takes_over_from_killed_one_when_lease_expires() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut first = start(&hub).await;
    let epoch = first.leads().await;
    assert!(epoch > 1, "a restart is a new holder");
    let mut second = start(&hub).await;
    waits(&second).await;
    let killed = Instant::now();
    drop(first);
    assert_eq!(second.leads().await, epoch + 1);
    // The Lease was renewed at most a third of the duration before the kill.
    assert!(killed.elapsed() > SHORT / 2, "it took only {:?}", killed.elapsed());
    issue(&hub, &admin).await;
}

#[tokio::test]
async fn api_server_outage_stops_the_steps_but_not_the_epoch() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut running = start(&hub).await;
    let epoch = running.leads().await;
    wait_ready(&admin, "telemetry", "True").await;
    hub.pause().await;
    wait_until(TIMEOUT, "the hub to be unsure", async || {
        (running.leading.leadership() == Leadership::Unsure { epoch }).then_some(())
    })
    .await;
    assert_eq!(running.leading.epoch(), None);
    tokio::time::sleep(SHORT).await;
    hub.resume().await;
    assert_eq!(running.leads().await, epoch);
    issue(&hub, &admin).await;
    assert!(timeout(Duration::from_millis(1), running.ended()).await.is_err(), "the hub goes on");
}

#[tokio::test]
async fn a_hub_that_is_not_sure_signs_nothing() {
    let (hub, admin, running) = mk_ready().await;
    drop(running);
    // Everything works, but the hub does not know that it leads: this tests only that it does nothing then.
    let running = RunningHub::start_with(&hub, RunningHubOptions { lease: None, ..RunningHubOptions::default() }).await;
    wait_ready(&admin, "telemetry", "True").await;
    issue(&hub, &admin).await;
    running.believe(None);
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let lineage: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let before = lineage.get("telemetry-client-authorities").await.unwrap().metadata.resource_version;
    super::lineages::rotate(&admin, "r1").await;
    pass(MOMENT).await;
    let csrs: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let status = csrs.get(&name).await.unwrap().status.unwrap_or_default();
    assert!(status.conditions.is_none(), "{status:?}");
    assert!(status.certificate.is_none(), "{status:?}");
    let after = lineage.get("telemetry-client-authorities").await.unwrap().metadata.resource_version;
    assert_eq!(before, after, "a step of the lineage was taken");
    running.believe(Some(2));
    wait_csr(&admin, &name, "issued", certificate).await;
    wait_until(TIMEOUT, "the rotation to go on", async || {
        let now = lineage.get("telemetry-client-authorities").await.unwrap().metadata.resource_version;
        (now != before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hub_whose_lease_was_taken_ends_with_a_sentence() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut running = start(&hub).await;
    running.leads().await;
    change(&leases(&admin), |spec| {
        spec.holder_identity = Some("thief".to_owned());
        spec.lease_transitions = spec.lease_transitions.map(|count| count + 1);
    })
    .await;
    let ended = running.ended().await.unwrap_err();
    assert!(matches!(&ended, HubError::LeaseLost(Loss::Displaced(thief)) if thief == "thief"), "{ended:?}");
    assert_eq!(
        ended.to_string(),
        "thief holds the Lease addon-signer now; this hub exits so that two never act at once, and waits for its turn \
         after a restart"
    );
    assert_eq!(spec(&admin).await.holder_identity.as_deref(), Some("thief"), "it is not taken back");
}

#[tokio::test]
async fn a_hub_whose_lease_was_deleted_ends() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut running = start(&hub).await;
    running.leads().await;
    leases(&admin).delete(LEASE_NAME, &Default::default()).await.unwrap();
    let ended = running.ended().await.unwrap_err();
    assert!(matches!(ended, HubError::LeaseLost(Loss::Deleted)), "{ended:?}");
    assert!(leases(&admin).get_opt(LEASE_NAME).await.unwrap().is_none(), "it is not made again");
}

#[tokio::test]
async fn a_hub_whose_etcd_was_restored_under_it_ends() {
    let (hub, admin, first) = mk_ready().await;
    let Some(backup) = hub.back_up() else { return }; // a real etcd is shared with other tests
    drop(first);
    let mut running = start(&hub).await;
    running.leads().await;
    let later = hub.back_up().unwrap();
    let version = async || leases(&admin).get(LEASE_NAME).await.unwrap().metadata.resource_version;
    let before = version().await;
    wait_until(TIMEOUT, "a renewal", async || (version().await != before).then_some(())).await;
    hub.restore(later);
    let ended = running.ended().await.unwrap_err();
    assert!(matches!(ended, HubError::LeaseLost(Loss::Restored)), "{ended:?}");
    // Nor does one wait for ever behind watches that see nothing.
    let mut waiting = start(&hub).await;
    waits(&waiting).await;
    hub.restore(backup);
    let ended = waiting.ended().await.unwrap_err();
    assert!(matches!(ended, HubError::LeaseLost(Loss::Restored)), "{ended:?}");
}

/// It reads another's old Lease, or the backup has none: then only the version of what it writes says so.
#[tokio::test]
async fn a_hub_that_waits_ends_whatever_lease_a_restored_etcd_has() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let Some(without) = hub.back_up() else { return }; // a real etcd is shared with other tests
    let held = json!({ "holderIdentity": "another", "leaseDurationSeconds": 3_600 });
    leases(&admin).create(&PostParams::default(), &mk_lease(LEASE_NAME, held)).await.unwrap();
    let with = hub.back_up().unwrap();
    for backup in [with, without] {
        for count in 1..=3 {
            change(&leases(&admin), |spec| spec.lease_transitions = Some(count)).await.unwrap();
        }
        let mut waiting = start(&hub).await;
        waits(&waiting).await;
        hub.restore(backup);
        let ended = waiting.ended().await.unwrap_err();
        assert!(matches!(ended, HubError::LeaseLost(Loss::Restored)), "{ended:?}");
    }
}

/// A hub that waits also learns of the epochs that pass while it waits, not only of those before its start.
#[tokio::test]
async fn hub_that_waited_leads_in_an_epoch_new_to_the_ledger() {
    as_usual();
    on_store(async |store| {
        let (hub, admin, first) = mk_ready().await;
        first.stop().await;
        let taken = |spec: &mut LeaseSpec| {
            spec.holder_identity = Some("another".to_owned());
            spec.lease_duration_seconds = Some(3_600);
        };
        change(&leases(&admin), taken).await;
        let location: Location = store.url().parse().unwrap();
        // The hub waits for the ledger's answer for a sixth of this, and a busy machine needs more than that of SHORT.
        let lease = Some(Duration::from_secs(30));
        let options = RunningHubOptions { lease, ledger: Some(location.clone()), ..RunningHubOptions::default() };
        let mut second = RunningHub::start_with(&hub, options).await;
        waits(&second).await;
        crate::ledger::open(crate::ledger::options(&location, "another"), 40).await.close().await;
        leases(&admin).delete(LEASE_NAME, &Default::default()).await.unwrap();
        assert_eq!(second.leads().await, 41);
        issue(&hub, &admin).await;
        assert!(timeout(Duration::from_millis(1), second.ended()).await.is_err(), "its first turn is good");
        assert_eq!(spec(&admin).await.lease_transitions, Some(41));
    })
    .await;
}

fn mk_lease(name: &str, spec: Value) -> Lease {
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

/// The behaviour of an API server on which the election relies, the same on both kinds of servers.
#[tokio::test]
async fn api_servers_guard_a_lease_by_its_version() {
    let hub = TestHub::start().await;
    let api: Api<Lease> = Api::namespaced(hub.admin().await, "default");
    let params = PostParams::default();
    for spec in [json!({ "leaseDurationSeconds": 0 }), json!({ "leaseTransitions": -1 })] {
        assert_eq!(code(api.create(&params, &mk_lease("bad", spec)).await), 422);
    }
    let free = mk_lease("free", json!({ "holderIdentity": "", "leaseTransitions": 7 }));
    let created = api.replace("free", &params, &free).await.unwrap();
    assert_eq!(created.spec.as_ref().unwrap().holder_identity.as_deref(), Some(""));
    assert_eq!(code(api.create(&params, &free).await), 409);
    assert_eq!(code(api.replace("free", &params, &free).await), 422, "without resourceVersion");
    let mut ours = created.clone();
    ours.spec.as_mut().unwrap().holder_identity = Some("us".to_owned());
    let taken = api.replace("free", &params, &ours).await.unwrap();
    assert_ne!(taken.metadata.resource_version, created.metadata.resource_version);
    let mut theirs = created.clone();
    theirs.spec.as_mut().unwrap().holder_identity = Some("them".to_owned());
    assert_eq!(code(api.replace("free", &params, &theirs).await), 409, "with an old resourceVersion");
    api.delete("free", &Default::default()).await.unwrap();
    assert_eq!(code(api.replace("free", &params, &taken).await), 409, "of a Lease that is gone");
}

/// A real process is frozen until its Lease has expired: when it wakes up it only ends.
#[tokio::test]
async fn a_process_that_was_frozen_ends_when_another_has_taken_over() {
    as_usual();
    let (hub, admin, running) = mk_ready().await;
    running.stop().await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let text = serde_saphyr::to_string(&hub.kubeconfig(HUB_USER, &HUB_GROUPS)).unwrap();
    std::fs::write(&kubeconfig, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_addon-signer"));
    command.env_clear().env("HOME", home.path()).arg("hub").arg("--kubeconfig").arg(kubeconfig).args([
        "--gateway-name=127.0.0.1",
        "--gateway-listen=127.0.0.1:0",
        "--metrics-listen=127.0.0.1:0",
        &format!("--ledger=sqlite://{}/ledger.db", home.path().display()),
        "--replica=frozen",
        // It waits for an answer for a third of this; a busy API server needs more than a second.
        "--lease-duration=9s",
    ]);
    let log = home.path().join("log");
    command.stderr(std::fs::File::create(&log).unwrap()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let pid = child.id().unwrap().to_string();
    // It may miss the answer to its write, and learn only later that it leads.
    let leads = async || std::fs::read_to_string(&log).unwrap().contains("This hub holds the Lease").then_some(());
    wait_until(TIMEOUT, "the process to lead", leads).await;
    signal(&pid, "STOP").await;
    let mut second = RunningHub::start_with(&hub, RunningHubOptions::default()).await;
    let epoch = second.leads().await;
    signal(&pid, "CONT").await;
    let ended = timeout(TIMEOUT, child.wait()).await;
    let message = std::fs::read_to_string(&log).unwrap();
    assert_eq!(ended.ok().and_then(|ended| ended.unwrap().code()), Some(1), "{message}");
    assert!(message.contains("holds the Lease addon-signer now; this hub exits"), "{message}");
    issue(&hub, &admin).await;
    assert_eq!(second.leads().await, epoch, "even if a busy machine lets it doubt for a moment");
}

async fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), pid]).status().await.unwrap().success());
}
