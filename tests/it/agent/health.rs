//! The agent keeps OCM's health Lease, and what it makes belongs to an object that goes with the addon.

use std::time::Duration;

use addon_signer_agent::health::HealthLease;
use addon_signer_agent::owner::OwnerName;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;

use super::parts::{AgentWorld, LIFE, Mood, NAMESPACE, SOON};
use test_kit::wait_until;

fn health(world: &AgentWorld, owner: Option<OwnerName>) -> HealthLease {
    HealthLease::new(world.admin.clone(), NAMESPACE, &"telemetry".parse().unwrap(), owner)
}

/// When the Lease was last renewed, in seconds of the Unix epoch.
async fn renewed(world: &AgentWorld) -> Option<i64> {
    let leases: Api<Lease> = Api::namespaced(world.admin.clone(), NAMESPACE);
    let spec = leases.get_opt("telemetry").await.unwrap()?.spec?;
    assert_eq!(spec.lease_duration_seconds, Some(60));
    Some(spec.renew_time?.0.as_second())
}

#[tokio::test]
async fn health_lease_is_renewed_only_while_certificate_is_valid() {
    let world = AgentWorld::start().await;
    let store = world.secret_store();
    let agent = world.agent(store).with_health(Some(health(&world, None)));
    let running = tokio::spawn(agent.run());
    let first = wait_until(SOON, "the Lease", async || renewed(&world).await).await;
    world.clock.advance(Duration::from_secs(60));
    wait_until(SOON, "a renewal", async || (renewed(&world).await? >= first + 60).then_some(())).await;
    world.mood(Mood::Ignore);
    world.clock.advance(LIFE * 2);
    let expired = world.clock.now();
    world.wait_for_requests(2).await; // the agent has seen that its certificate has expired
    assert!(renewed(&world).await.unwrap() < expired.unix());
    world.mood(Mood::Issue);
    wait_until(SOON, "a renewal", async || (renewed(&world).await? >= expired.unix()).then_some(())).await;
    running.abort();
}

#[tokio::test]
async fn secret_and_lease_are_made_with_their_owner_and_keep_it() {
    let world = AgentWorld::start().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin.clone(), NAMESPACE);
    let metadata = ObjectMeta { name: Some("telemetry-agent".to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    let uid = accounts.create(&PostParams::default(), &account).await.unwrap().metadata.uid.unwrap();
    let owner: OwnerName = "serviceaccount/telemetry-agent".parse().unwrap();
    let store = world.secret_store().owned_by(Some(owner.clone()));
    let mut agent = world.agent(store).with_health(Some(health(&world, Some(owner))));
    let secrets: Api<Secret> = Api::namespaced(world.admin.clone(), NAMESPACE);
    let leases: Api<Lease> = Api::namespaced(world.admin.clone(), NAMESPACE);
    for _ in 0..2 {
        agent.once().await.unwrap();
        let secret = secrets.get("telemetry-client-cert").await.unwrap().metadata;
        let lease = leases.get("telemetry").await.unwrap().metadata;
        for owners in [secret.owner_references, lease.owner_references] {
            let owners = owners.unwrap();
            let found: Vec<_> = owners.iter().map(|owner| (owner.kind.as_str(), owner.uid.as_str())).collect();
            assert_eq!(found, [("ServiceAccount", uid.as_str())]);
        }
        world.make_due();
    }
}

#[tokio::test]
async fn without_its_owner_the_secret_is_made_all_the_same() {
    let world = AgentWorld::start().await;
    let owner: OwnerName = "serviceaccount/nobody".parse().unwrap();
    world.agent(world.secret_store().owned_by(Some(owner))).once().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(world.admin.clone(), NAMESPACE);
    assert_eq!(secrets.get("telemetry-client-cert").await.unwrap().metadata.owner_references, None);
}
