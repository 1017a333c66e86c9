//! An AddOnSigner, or the Secret of its lineage, is deleted in the middle of a rotation. Nobody makes other authorities
//! in place of those that there were, and once the object is back the rotation goes on where it was.

use std::collections::{BTreeMap, BTreeSet};

use addon_signer_api::AddOnSigner;
use addon_signer_core::names::ANNOTATION_ROTATE;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, wait_ready};
use test_kit::wait_until;

use super::kit::issue;
use super::rotating::Rotating;

/// What of a lineage is stored.
#[derive(Debug, PartialEq)]
struct Stored {
    secret: BTreeMap<String, ByteString>,
    anchors: String,
}

impl Rotating {
    async fn stored(&self) -> Stored {
        Stored { secret: self.lineage.data().await, anchors: self.lineage.bundle().await.unwrap().pem() }
    }

    fn signers(&self) -> Api<AddOnSigner> {
        Api::all(self.admin.clone())
    }

    /// Deletes the AddOnSigner; returns it as a file would have it, with what was asked for.
    async fn delete_signer(&self) -> AddOnSigner {
        let saved = self.signers().get("telemetry").await.unwrap();
        assert_eq!(saved.metadata.annotations.as_ref().unwrap()[ANNOTATION_ROTATE], "r1");
        self.signers().delete("telemetry", &Default::default()).await.unwrap();
        let mut again = AddOnSigner::new("telemetry", saved.spec);
        again.metadata.annotations = saved.metadata.annotations;
        again
    }

    /// Waits until the gateway is told to trust these authorities, and no others.
    async fn wait_trusted(&self, ids: &[String]) {
        wait_until(TIMEOUT, &format!("the gateway to be told to trust {ids:?}"), async || {
            let trust = self.running.trust.borrow().clone();
            let reported = trust.signers.iter().flat_map(|signer| signer.client_anchors.authorities());
            let reported: BTreeSet<_> = reported.map(|authority| authority.id().as_str()).collect();
            reported.into_iter().eq(BTreeSet::from_iter(ids)).then_some(())
        })
        .await;
    }

    /// Kills the hub, and starts another one whose gateway trusts nothing yet.
    async fn restart(&mut self) {
        let options = RunningHubOptions { follow: false, ..RunningHubOptions::default() };
        self.running = RunningHub::start_with(&self.hub, options).await;
        self.running.leads().await;
    }

    /// Ends the rotation and makes sure that it was the only one.
    async fn finish(&mut self) {
        let ids = self.ids.clone();
        self.reach(&["Active", "Old"]).await;
        assert_eq!(self.ids, ids, "the rotation that was under way");
        self.lineage.reconcile().await;
        assert_eq!(self.lineage.wait(&["Active", "Old"]).await, ids, "the request is not done again");
        let request = self.submit().await;
        self.assert_goes_on(&request).await;
    }
}

/// The old hub runs while the AddOnSigner is gone, or another one starts meanwhile.
async fn signer_comes_back(states: &[&str], is_restarted: bool) {
    let mut world = Rotating::start().await;
    world.reach(states).await;
    let before = world.stored().await;
    let again = world.delete_signer().await;
    world.wait_trusted(&[]).await; // the gateway refuses all of its certificates
    let request = world.submit().await;
    if is_restarted {
        world.restart().await;
        world.wait_trusted(&[]).await;
    }
    world.assert_unanswered(&request).await;
    world.signers().create(&PostParams::default(), &again).await.unwrap();
    world.wait_trusted(&world.ids).await; // it admits them again
    wait_ready(&world.admin, "telemetry", "True").await;
    world.assert_goes_on(&request).await;
    let after = world.stored().await;
    assert_eq!(after.anchors, before.anchors);
    assert!(before.secret.keys().eq(after.secret.keys()), "no key has come or gone");
    world.finish().await;
}

#[tokio::test]
async fn signer_deleted_while_next_waits_goes_on_when_it_is_back() {
    signer_comes_back(&["Next", "Active"], false).await;
}

#[tokio::test]
async fn signer_deleted_after_activation_goes_on_when_it_is_back() {
    signer_comes_back(&["Active", "Old"], true).await;
}

#[tokio::test]
async fn secret_deleted_with_its_signer_is_not_made_anew() {
    let mut world = Rotating::start().await;
    world.reach(&["Next", "Active"]).await;
    let secrets: Api<Secret> = world.lineage.secrets.clone();
    let backup = secrets.get(world.lineage.secret).await.unwrap();
    let again = world.delete_signer().await;
    world.wait_trusted(&[]).await;
    secrets.delete(world.lineage.secret, &Default::default()).await.unwrap();
    world.signers().create(&PostParams::default(), &again).await.unwrap();
    let (reason, message) = wait_ready(&world.admin, "telemetry", "False").await;
    assert_eq!(reason, "AuthorityMissing", "the anchors show that it existed: {message}");
    create(&secrets, backup).await;
    wait_ready(&world.admin, "telemetry", "True").await;
    world.finish().await;
}

#[tokio::test]
async fn secret_deleted_in_any_step_is_missed_and_not_made_anew() {
    let mut world = Rotating::start().await;
    while world.step().await {
        issue(&world.hub, &world.admin).await;
        let secrets: Api<Secret> = world.lineage.secrets.clone();
        let backup = secrets.get(world.lineage.secret).await.unwrap();
        secrets.delete(world.lineage.secret, &Default::default()).await.unwrap();
        let (reason, message) = wait_ready(&world.admin, "telemetry", "False").await;
        assert_eq!(reason, "AuthorityMissing", "{message}");
        world.wait_trusted(&world.ids).await; // as before
        let request = world.submit().await;
        world.assert_unanswered(&request).await;
        create(&secrets, backup).await; // it fails if another one was made
        wait_ready(&world.admin, "telemetry", "True").await;
        world.assert_goes_on(&request).await;
    }
}

/// Creates a Secret from its backup.
async fn create(secrets: &Api<Secret>, mut backup: Secret) {
    backup.metadata.resource_version = None;
    backup.metadata.uid = None;
    secrets.create(&PostParams::default(), &backup).await.unwrap();
}
