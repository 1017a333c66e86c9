//! An Old authority of a client line goes as soon as nobody needs it, and no sooner.

use std::net::IpAddr;
use std::time::Duration;

use addon_signer::ledger::CertificateUse;
use addon_signer_core::ca::bundle::Purpose;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::{Hash, Tip};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::sighting::Sighting;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use ring::rand::SystemRandom;
use rustls_pki_types::CertificateDer;
use serde_json::json;

use super::kit::{OnServer, issue, issue_to, rotate};
use crate::hub::mk_ready;
use crate::support::hub::{PATIENCE, RunningHub, RunningHubOptions};
use crate::support::{TestHub, accept_cluster, install_addon, wait_until};

const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than between two looks at the ledger.
const LOOK: Duration = Duration::from_secs(61);
/// After the end of every certificate, and after the end that is reserved for further ones.
const PAST_ALL_LEAVES: Duration = Duration::from_secs(28 * 3_600);

/// A hub whose line has just been rotated, and on which the agent on spoke1 had a certificate before.
struct RotatedHub {
    hub: TestHub,
    admin: Client,
    running: RunningHub,
    line: OnServer,
    /// Active and Old.
    ids: Vec<String>,
}

impl RotatedHub {
    async fn start() -> Self {
        let (hub, admin, running) = mk_ready().await;
        issue(&hub, &admin).await;
        Self::rotate(hub, admin, running).await
    }

    async fn rotate(hub: TestHub, admin: Client, running: RunningHub) -> Self {
        let line = OnServer::client(&admin);
        rotate(&admin, "r1").await;
        let ids = line.wait(&["Active", "Old"]).await;
        wait_until(PATIENCE, "a checkpoint", async || line.maps.get_opt("addon-signer-ledger").await.unwrap()).await;
        Self { hub, admin, running, line, ids }
    }

    /// Changes a key of the ConfigMap with the ledger's checkpoints, as an administrator.
    async fn set_checkpoint(&self, key: &str, value: Option<&str>) {
        let change = Patch::Merge(json!({"data": {key: value}}));
        self.line.maps.patch("addon-signer-ledger", &PatchParams::default(), &change).await.unwrap();
    }

    /// The agent gets a certificate by the authority that signs now, and calls with it.
    async fn change_over(&self, cluster: &str) -> CertificateDer<'static> {
        let leaf = issue_to(&self.hub, &self.admin, cluster).await;
        self.call(&leaf).await;
        leaf
    }

    /// The gateway lets a call in with this certificate.
    async fn call(&self, leaf: &CertificateDer<'_>) {
        let now = self.running.clock.now();
        let trust = self.running.trust.borrow().clone();
        assert!(trust.signers[0].client_anchors.verify(leaf, Purpose::Client, now).is_ok(), "the call fails");
        let serial = Serial::of(leaf).unwrap();
        self.running
            .ledger
            .seen(vec![CertificateUse { serial, at: now, from: "10.0.0.1".to_owned(), holds: None }])
            .await;
    }

    /// Lets time pass, and waits until the status says this of what the rotation waits for.
    async fn wait_after(&self, time: Duration, what: &str) {
        let late = self.running.clock.now().plus(HOUR);
        let is_noted = async || self.running.ledger.open_rows(0, late).await.unwrap().is_empty().then_some(());
        wait_until(PATIENCE, "all uses and publications to be noted", is_noted).await;
        self.running.clock.advance(time);
        self.line.poke().await;
        wait_until(PATIENCE, what, async || {
            let waiting = self.line.status().await.rotation?.waiting_for?;
            waiting.contains(what).then_some(())
        })
        .await;
        assert_eq!(self.line.wait(&["Active", "Old"]).await, self.ids);
    }

    async fn wait_gone(&self, time: Duration) {
        self.running.clock.advance(time);
        self.line.poke().await;
        assert_eq!(self.line.wait(&["Active"]).await, self.ids[..1]);
        self.line.wait_bundle(&self.ids[..1]).await;
    }
}

#[tokio::test]
async fn an_old_client_authority_goes_when_every_agent_was_seen_with_a_new_certificate() {
    let (hub, admin, running) = mk_ready().await;
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    issue_to(&hub, &admin, "spoke1").await;
    let old = issue_to(&hub, &admin, "spoke2").await;
    let world = RotatedHub::rotate(hub, admin, running).await;
    world.wait_after(LOOK, "2 of 2 agents to change over").await;
    let first = world.change_over("spoke1").await;
    world.call(&old).await;
    world.wait_after(LOOK, "1 of 2 agents to change over: spoke2/telemetry/telemetry (in use)").await;
    let unused = issue_to(&world.hub, &world.admin, "spoke2").await;
    world.wait_after(2 * HOUR, "1 of 2 agents to change over: spoke2/telemetry/telemetry (last seen ").await;
    world.call(&unused).await;
    world.wait_after(LOOK, "an hour in which nobody needs it").await;
    world.wait_gone(HOUR).await;
    let trusted = async || {
        let trust = world.running.trust.borrow().clone();
        (trust.signers[0].client_anchors.authorities().len() == 1).then_some(())
    };
    wait_until(PATIENCE, "the gateway to be told", trusted).await;
    let now = world.running.clock.now();
    let bundle = world.line.bundle().await.unwrap();
    for leaf in [&first, &unused] {
        assert!(bundle.verify(leaf, Purpose::Client, now).is_ok());
        world.call(leaf).await;
    }
    wait_until(PATIENCE, "the ledger to know", async || {
        let known = world.running.ledger.latest("authority").await.unwrap();
        (known[&format!("telemetry/{}", world.ids[1])] == "removed").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_second_copy_that_calls_with_the_old_key_holds_the_old_authority() {
    let (hub, admin, running) = mk_ready().await;
    let old = issue(&hub, &admin).await;
    let world = RotatedHub::rotate(hub, admin, running).await;
    world.change_over("spoke1").await;
    world.wait_after(LOOK, "an hour in which nobody needs it").await;
    world.running.clock.advance(HOUR / 2);
    world.call(&old).await;
    world.wait_after(HOUR / 2, "1 of 1 agents to change over: spoke1/telemetry/telemetry (in use)").await;
    world.wait_after(LOOK, "(in use)").await;
    world.wait_after(HOUR / 2, "an hour in which nobody needs it").await;
    world.wait_gone(HOUR).await;
}

#[tokio::test]
async fn a_certificate_that_the_ledger_lacks_holds_the_old_authority_while_it_is_in_use() {
    let world = RotatedHub::start().await;
    world.change_over("spoke1").await;
    let identity = PeerIdentity {
        cluster: "spoke1".parse().unwrap(),
        addon: "telemetry".parse().unwrap(),
        agent: "telemetry".parse().unwrap(),
    };
    let issuer = world.ids[1].as_str().into();
    let unknown = Sighting {
        holds: None,
        serial: Serial::from_hex(&format!("{:040x}", 1)).unwrap(),
        issuer,
        identity,
        at: world.running.clock.now(),
        from: IpAddr::from([10, 0, 0, 1]),
    };
    let issuer = unknown.issuer.clone();
    drop(world.running.seen.open(unknown));
    wait_until(PATIENCE, "the hub to drain it", async || world.running.seen.last_use(&issuer).map(drop)).await;
    world.wait_after(LOOK, "an hour in which nobody uses it").await;
    world.wait_after(HOUR, "an hour in which nobody needs it").await;
    world.wait_gone(HOUR).await;
}

#[tokio::test]
async fn an_authority_that_the_ledger_does_not_cover_goes_when_its_last_leaf_has_expired() {
    let (hub, admin, first) = mk_ready().await;
    issue(&hub, &admin).await;
    drop(first);
    // Another ledger, and no checkpoint of the first one: only the Secret knows that there was one.
    let maps = OnServer::client(&admin).maps;
    if maps.get_opt("addon-signer-ledger").await.unwrap().is_some() {
        maps.delete("addon-signer-ledger", &DeleteParams::default()).await.unwrap();
    }
    let running = RunningHub::start_with(&hub, RunningHubOptions::default()).await;
    issue(&hub, &admin).await;
    let world = RotatedHub::rotate(hub, admin, running).await;
    world.change_over("spoke1").await;
    for _ in 0..2 {
        world.wait_after(2 * HOUR, "because the ledger may lack certificates of it").await;
    }
    world.wait_gone(PAST_ALL_LEAVES).await;
}

#[tokio::test]
async fn a_ledger_that_has_lost_entries_drops_no_authority_early() {
    let world = RotatedHub::start().await;
    world.change_over("spoke1").await;
    world.wait_after(LOOK, "an hour in which nobody needs it").await;
    let published = world.line.maps.get("addon-signer-ledger").await.unwrap().data.unwrap()["head.json"].clone();
    let head = Checkpoint::read(&published).unwrap();
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
    let tip = Tip { seq: head.seq, hash: Hash::of("another entry"), time: world.running.clock.now() };
    let lost = Checkpoint::sign(&head.ledger, tip, world.running.clock.now(), &key, &rng).unwrap();
    // The hub finds neither the entry of the last checkpoint, nor a ledger that no checkpoint contradicted.
    for (name, text, restored) in
        [("head.json", lost.json().as_str(), Some(published.as_str())), ("contradicted-head.json", "{}", None)]
    {
        world.set_checkpoint(name, Some(text)).await;
        world.running.clock.advance(HOUR);
        world.line.look().await;
        world.wait_after(Duration::ZERO, "because the ledger may lack certificates of it").await;
        world.set_checkpoint(name, restored).await;
    }
    world.wait_gone(LOOK).await;
}
