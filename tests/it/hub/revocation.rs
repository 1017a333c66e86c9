//! Revocation by `certs revoke` and by kubectl: what is signed after it, what is recorded, and what the command prints.

use std::path::Path;
use std::time::Duration;

use addon_signer_api::ocm;
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{Location, Reader};
use kube::Client;
use kube::api::{Patch, PatchParams};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{MOMENT, mk_csr, submit};
use crate::cli::{Output, run};
use test_kit::deploy::apply;
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, addon, certificate, condition, create_signer, deploy, telemetry, wait_csr,
    wait_ready,
};
use test_kit::quick::{as_usual, pass};
use test_kit::{TestHub, accept_cluster, install_addon, objects, wait_until};

/// A hub whose ledger is a file that the test knows, and a person with the rights of the chart.
struct RevocationWorld {
    hub: TestHub,
    admin: Client,
    running: Option<RunningHub>,
    home: TempDir,
}

/// Makes a kubeconfig of a user who may revoke, with the binding that a comment in the chart describes.
pub(crate) async fn revoker(hub: &TestHub, home: &Path) -> String {
    if hub.is_real() {
        let role =
            json!({ "kind": "ClusterRole", "name": "addon-signer-revoker", "apiGroup": "rbac.authorization.k8s.io" });
        let subjects = json!([{ "kind": "Group", "name": "ca-admins", "apiGroup": "rbac.authorization.k8s.io" }]);
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "revokers" }, "roleRef": role, "subjects": subjects,
        });
        apply(&hub.admin().await, &[binding]).await;
    }
    kubeconfig(hub, home, "carol", &["ca-admins"])
}

fn kubeconfig(hub: &TestHub, home: &Path, user: &str, groups: &[&str]) -> String {
    let file = home.join(format!("{user}.kubeconfig"));
    std::fs::write(&file, serde_saphyr::to_string(&hub.kubeconfig(user, groups)).unwrap()).unwrap();
    file.display().to_string()
}

impl RevocationWorld {
    async fn start() -> Self {
        let hub = TestHub::start().await;
        deploy(&hub).await;
        let admin = hub.admin().await;
        accept_cluster(&admin, "spoke1").await;
        install_addon(&admin, "spoke1", "telemetry").await;
        create_signer(&admin, "telemetry", telemetry()).await;
        let mut world = Self { hub, admin, running: None, home: tempfile::tempdir().unwrap() };
        world.restart().await;
        world
    }

    fn location(&self) -> Location {
        format!("sqlite://{}/ledger.db", self.home.path().display()).parse().unwrap()
    }

    async fn restart(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
        let options = RunningHubOptions { ledger: Some(self.location()), ..RunningHubOptions::default() };
        self.running = Some(RunningHub::start_with(&self.hub, options).await);
        wait_ready(&self.admin, "telemetry", "True").await;
    }

    async fn revoke(&self, kubeconfig: &str, more: &[&str]) -> Output {
        let usual = ["certs", "revoke", "--cluster", "spoke1", "--addon", "telemetry", "--kubeconfig", kubeconfig];
        run(self.home.path(), &[&usual[..], more].concat()).await
    }

    /// Sets the annotation as kubectl does.
    async fn annotate(&self, revoke_before: Value) {
        let addons = objects::managed_cluster_addons(&self.admin, "spoke1").await;
        let patch = json!({ "metadata": { "annotations": { "addon-signer.io/revoke-before": revoke_before } } });
        addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn annotation(&self, name: &str) -> String {
        addon(&self.admin, "spoke1", "telemetry").await.metadata.annotations.unwrap().remove(name).unwrap()
    }

    async fn request(&self) -> String {
        submit(&self.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await
    }

    /// Makes a CSR; returns when its certificate becomes valid.
    async fn issue(&self) -> Timestamp {
        not_before(&wait_csr(&self.admin, &self.request().await, "issued", certificate).await)
    }

    async fn wait_known(&self, expected: Option<Timestamp>) {
        let cluster: ClusterName = "spoke1".parse().unwrap();
        let addon: AddOnName = "telemetry".parse().unwrap();
        let registry = &self.running.as_ref().unwrap().registry;
        wait_until(TIMEOUT, &format!("the hub to know of {expected:?}"), async || {
            registry.read(|registry| registry.revoked_before(&cluster, &addon) == expected).then_some(())
        })
        .await;
    }

    /// The recorded revocations: change, new time, old time, actor.
    async fn recorded(&self) -> Vec<[String; 4]> {
        let (entries, _) = Reader::open(self.location()).await.unwrap().entries(0, 1_000).await.unwrap();
        let ours =
            entries.iter().filter(|entry| entry.kind == "standing" && entry.detail("change").ends_with("revoked"));
        let read = |entry: &Entry| {
            assert_eq!((entry.detail("cluster"), entry.detail("addon")), ("spoke1", "telemetry"));
            let [change, now, was] =
                ["change", "revoke-before", "revoked-before"].map(|name| entry.detail(name).to_owned());
            [change, now, was, entry.actor.clone()]
        };
        ours.map(read).collect()
    }

    /// Waits until `last` is the last recorded revocation; `count` shows that none was recorded twice.
    async fn wait_recorded(&self, count: usize, last: [&str; 4]) {
        wait_until(TIMEOUT, &format!("{last:?} to be recorded"), async || {
            self.recorded().await.last().is_some_and(|found| *found == last).then_some(())
        })
        .await;
        let all = self.recorded().await;
        assert_eq!(all.len(), count, "{all:?}");
    }
}

fn not_before(pem: &str) -> Timestamp {
    let leaf = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    Timestamp::from_unix(X509Certificate::from_der(&leaf).unwrap().1.validity().not_before.timestamp())
}

fn time(text: &str) -> Timestamp {
    Timestamp::from_rfc3339(text).unwrap()
}

#[tokio::test]
async fn revocation_hits_earlier_certificates_and_spares_later_ones() {
    let world = RevocationWorld::start().await;
    let carol = revoker(&world.hub, world.home.path()).await;
    let first = world.issue().await;
    let done = world.revoke(&carol, &["--output", "json"]).await;
    assert_eq!(done.code, 0, "{}", done.stderr);
    let text = world.annotation("addon-signer.io/revoke-before").await;
    let expected = json!({ "cluster": "spoke1", "addon": "telemetry", "revokeBefore": text, "revokedBy": "carol" });
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap(), expected);
    assert_eq!(world.annotation("addon-signer.io/revoked-by").await, format!("{text} carol"));
    let revoked = time(&text);
    world.wait_known(Some(revoked)).await;
    assert!(first < revoked);
    assert_eq!(world.issue().await, revoked, "not 5 minutes before it is issued");
    world.wait_recorded(1, ["revoked", &text, "", "carol"]).await;

    let again = world.revoke(&carol, &[]).await;
    assert_eq!(again.code, 0, "{}", again.stderr);
    let later = world.annotation("addon-signer.io/revoke-before").await;
    assert!(time(&later) > revoked, "{}", again.stdout);
    assert!(again.stdout.contains(&format!("that begin before {later} are revoked")), "{}", again.stdout);
    world.wait_known(Some(time(&later))).await;
    assert!(world.issue().await >= time(&later));
    world.wait_recorded(2, ["revoked", &later, &text, "carol"]).await;
}

#[tokio::test]
async fn every_move_of_the_time_is_recorded_once_also_when_no_hub_ran() {
    let mut world = RevocationWorld::start().await;
    let addon = objects::managed_cluster_addons(&world.admin, "spoke1").await.get("telemetry").await.unwrap();
    let [early, late, last] = [1, 2, 4].map(|later| ocm::created(&addon).unwrap().plus(Duration::from_secs(later)));
    let [early, late, rounded_up] = [early, late, last].map(|time| time.to_string());
    let [early, late] = [early.as_str(), late.as_str()];
    let carol = revoker(&world.hub, world.home.path()).await;
    wait_until(TIMEOUT, "that second", async || {
        (world.revoke(&carol, &["--before", early]).await.code == 0).then_some(())
    })
    .await;
    world.wait_recorded(1, ["revoked", early, "", "carol"]).await;
    world.annotate(json!(late)).await;
    // The annotation with the name is about another time, so it does not say who made this change.
    world.wait_recorded(2, ["revoked", late, early, ""]).await;
    world.annotate(json!(early)).await;
    world.wait_recorded(3, ["unrevoked", early, late, "carol"]).await;
    world.annotate(Value::Null).await;
    world.wait_recorded(4, ["unrevoked", "", early, ""]).await;
    world.annotate(json!(late)).await;
    world.wait_recorded(5, ["revoked", late, "", ""]).await;

    world.restart().await;
    pass(MOMENT).await;
    world.wait_recorded(5, ["revoked", late, "", ""]).await;
    world.running.take().unwrap().stop().await;
    world.annotate(json!(early)).await;
    world.restart().await;
    world.wait_recorded(6, ["unrevoked", early, late, "carol"]).await;
    world.running.take().unwrap().stop().await;
    let fraction = last.minus(Duration::from_secs(1)).to_string().replace('Z', ".5Z");
    world.annotate(json!(fraction)).await;
    world.restart().await;
    world.wait_recorded(7, ["revoked", &rounded_up, early, ""]).await;
}

/// OCM deletes a ManagedClusterAddOn and makes it again without annotations when a Placement drops its cluster for a
/// while. Whoever was revoked must not come back by that.
#[tokio::test]
async fn what_was_revoked_stays_so_when_its_addon_is_made_anew() {
    let mut world = RevocationWorld::start().await;
    let revoked = "2026-01-03T00:00:00Z";
    world.annotate(json!(revoked)).await;
    world.wait_recorded(1, ["revoked", revoked, "", ""]).await;
    let addons = objects::managed_cluster_addons(&world.admin, "spoke1").await;
    let made = async || ocm::created(&addons.get("telemetry").await.unwrap()).unwrap();
    let anew = async || {
        let before = made().await;
        addons.delete("telemetry", &Default::default()).await.unwrap();
        wait_until(TIMEOUT, "another second", async || {
            install_addon(&world.admin, "spoke1", "telemetry").await;
            if made().await > before {
                return Some(());
            }
            addons.delete("telemetry", &Default::default()).await.unwrap();
            None
        })
        .await;
        made().await
    };
    let second = anew().await;
    let known = async |world: &RevocationWorld, created| {
        let running = world.running.as_ref().unwrap();
        let key = ("spoke1".parse().unwrap(), "telemetry".parse().unwrap());
        wait_until(TIMEOUT, "the hub to know the new object", async || {
            running.registry.read(|registry| registry.valid_from(&key.0, &key.1) == Some(created)).then_some(())
        })
        .await;
    };
    known(&world, second).await;
    assert!(world.issue().await >= second, "it is not backdated to before the object");
    let third = anew().await;
    world.restart().await;
    known(&world, third).await;
    assert!(world.issue().await >= third);
    // Nothing was said to be good again in between.
    let later = "2100-01-01T00:00:00Z";
    world.annotate(json!(later)).await;
    world.wait_recorded(2, ["revoked", later, revoked, ""]).await;
}

#[tokio::test]
async fn until_a_revocation_in_the_future_has_come_requests_wait() {
    let world = RevocationWorld::start().await;
    let until = world.running.as_ref().unwrap().clock.now().plus(Duration::from_secs(6));
    world.annotate(json!(until.to_string())).await;
    world.wait_known(Some(until)).await;
    let name = world.request().await;
    let reported = wait_csr(&world.admin, &name, "told", |csr| condition(csr, "Revoked")).await;
    assert_eq!(reported.0, "RevokedUntilLater");
    let sentence = format!("The CSR waits until the hub's clock reaches {until}: no certificate of this addon");
    assert!(reported.1.starts_with(&sentence), "{reported:?}");
    let csr = wait_csr(&world.admin, &name, "issued", |csr| certificate(csr).map(|_| csr.clone())).await;
    assert_eq!(not_before(&certificate(&csr).unwrap()), until);
    assert!(condition(&csr, "Denied").is_none());
    assert!(condition(&csr, "Revoked").is_none());
}

/// The revocation comes after the decision and before the signature: nobody gets a revoked certificate.
#[tokio::test]
async fn request_under_way_during_revocation_is_decided_anew() {
    as_usual();
    let world = RevocationWorld::start().await;
    world.issue().await;
    let file = SqliteConnectOptions::new().filename(world.home.path().join("ledger.db"));
    let mut other = file.connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let name = world.request().await;
    pass(MOMENT).await; // its intent waits for the lock, which the hub tries to get for longer
    let revoked = world.running.as_ref().unwrap().clock.now();
    world.annotate(json!(revoked.to_string())).await;
    world.wait_known(Some(revoked)).await;
    drop(other);
    let issued = wait_csr(&world.admin, &name, "issued", certificate).await;
    assert!(not_before(&issued) >= revoked);
    let (entries, _) = Reader::open(world.location()).await.unwrap().entries(0, 1_000).await.unwrap();
    let uid = entries.iter().rfind(|entry| entry.kind == "signed").unwrap().detail("uid");
    let of_request = entries.iter().filter(|entry| entry.detail("uid") == uid).map(|entry| entry.kind.as_str());
    let of_request: Vec<_> = of_request.collect();
    assert_eq!(of_request, ["intent", "abandoned", "intent", "signed"]);
}

/// Invariant I8.
#[tokio::test]
async fn a_time_that_cannot_be_read_denies() {
    let world = RevocationWorld::start().await;
    world.annotate(json!("yesterday")).await;
    let name = world.request().await;
    let (reason, _) = wait_csr(&world.admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "RegistrationUnreadable");
    assert_eq!(world.recorded().await, Vec::<[String; 4]>::new());
}

/// Whoever may write the addon, for example the agent of its cluster, must not keep it from being revoked.
#[tokio::test]
async fn an_addon_with_metadata_that_cannot_be_read_is_revoked() {
    let world = RevocationWorld::start().await;
    let carol = revoker(&world.hub, world.home.path()).await;
    let addons = objects::managed_cluster_addons(&world.admin, "spoke1").await;
    let path = format!("{}/telemetry", addons.resource_url());
    world.hub.spoil(&world.admin, &path).await;
    let revoked = world.revoke(&carol, &[]).await;
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    let object = objects::read_as_is(&world.admin, &path).await;
    assert!(object["metadata"]["annotations"]["addon-signer.io/revoke-before"].is_string(), "{object}");
}

#[tokio::test]
async fn what_certs_revoke_cannot_do_is_one_clear_sentence() {
    let world = RevocationWorld::start().await;
    let carol = revoker(&world.hub, world.home.path()).await;
    let home = world.home.path();
    let refused = async |more: &[&str], words: &str| {
        let refused = world.revoke(&carol, more).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
        assert!(refused.stderr.lines().count() == 1, "{}", refused.stderr);
    };
    refused(&["--before", "2100-01-01T00:00:00Z"], "--before 2100-01-01T00:00:00Z is in the future").await;
    world.annotate(json!("2026-01-02T00:00:00Z")).await;
    let words =
        "certificates from before 2026-01-02T00:00:00Z are already revoked; 2026-01-01T00:00:00Z would make some";
    refused(&["--before", "2026-01-01T00:00:00Z"], words).await;
    assert_eq!(world.annotation("addon-signer.io/revoke-before").await, "2026-01-02T00:00:00Z");
    let same = world.revoke(&carol, &["--before", "2026-01-02T00:00:00Z"]).await;
    assert_eq!(same.code, 0, "{}", same.stderr);

    let nothing = ["certs", "revoke", "--cluster", "spoke1", "--addon", "search", "--kubeconfig", &carol];
    let nothing = run(home, &nothing).await;
    assert_eq!(nothing.code, 1);
    assert!(
        nothing.stderr.contains("there is no ManagedClusterAddOn search in the namespace spoke1"),
        "{}",
        nothing.stderr
    );
    for wrong in [&["--before", "yesterday"][..], &["--cluster", "Bad_Name"], &["--before"]] {
        assert_eq!(world.revoke(&carol, wrong).await.code, 2, "{wrong:?}");
    }
    if world.hub.is_real() {
        let mallory = kubeconfig(&world.hub, home, "mallory", &[]);
        let forbidden = world.revoke(&mallory, &[]).await;
        assert_eq!(forbidden.code, 1);
        let words = "the addon telemetry on spoke1 cannot be read; the ClusterRole addon-signer-revoker allows it";
        assert!(forbidden.stderr.contains(words), "{}", forbidden.stderr);
        assert!(forbidden.stderr.contains("forbidden"), "{}", forbidden.stderr);
    }
}
