//! An author makes more objects of a kind than may take effect.

use addon_signer_api::{AddOnRoute, AddOnSigner};
use addon_signer_core::oldest::{MOST_ROUTES, MOST_SIGNERS};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::hub::{mk_csr, mk_ready, submit};
use test_kit::hub::{RunningHub, TIMEOUT, apply_route, certificate, change_signer, wait_csr, wait_ready};
use test_kit::objects::create_namespace;
use test_kit::quick::pass;
use test_kit::wait_until;

const NAMESPACE: &str = "observability";

fn route(at: usize) -> Value {
    json!({
        "signer": "telemetry",
        "match": { "http": [{ "path": format!("/x/{at}") }] },
        "backend": { "address": "127.0.0.1:9" },
    })
}

fn name(at: usize) -> String {
    format!("r{at:03}")
}

/// The names of the routes in effect.
fn in_effect(running: &RunningHub) -> Vec<String> {
    let table = running.routes.borrow().clone();
    let mut names: Vec<String> = table.names().map(|route| route.name.clone()).collect();
    names.sort_unstable();
    names
}

async fn events_about(admin: &Client, name: &str) -> Vec<String> {
    let events = Api::<Event>::all(admin.clone()).list(&ListParams::default()).await.unwrap().items;
    let about =
        events.into_iter().filter(|event| event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name)));
    about.filter_map(|event| event.note).collect()
}

#[tokio::test]
async fn the_oldest_routes_of_a_namespace_stay_in_effect() {
    let (_hub, admin, running) = mk_ready().await;
    create_namespace(&admin, NAMESPACE).await;
    change_signer(&admin, json!({ "spec": { "gateway": { "routesFrom": { "namespaces": [NAMESPACE] } } } })).await;
    // Those of one second are in the order of their names.
    for at in 0..MOST_ROUTES + 2 {
        apply_route(&admin, NAMESPACE, &name(at), route(at)).await;
    }
    let oldest: Vec<String> = (0..MOST_ROUTES).map(name).collect();
    wait_until(TIMEOUT, "the oldest routes", async || (in_effect(&running) == oldest).then_some(())).await;
    let note = wait_until(TIMEOUT, "an event", async || events_about(&admin, NAMESPACE).await.pop()).await;
    let sentence = "The AddOnRoute r064 and younger ones take no effect: there are 64 older ones, which is the most.";
    assert_eq!(note, sentence);
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), NAMESPACE);
    assert!(routes.get(&name(MOST_ROUTES)).await.unwrap().status.is_none());
    routes.delete(&name(0), &DeleteParams::default()).await.unwrap();
    let next: Vec<String> = (1..=MOST_ROUTES).map(name).collect();
    let has_next = async || {
        pass(std::time::Duration::from_secs(5)).await; // the hub lists all of them only now and then
        (in_effect(&running) == next).then_some(())
    };
    wait_until(2 * TIMEOUT, "the next one to take effect", has_next).await;
}

#[tokio::test]
async fn the_oldest_signers_stay_in_effect() {
    let (hub, admin, _running) = mk_ready().await;
    let api: Api<AddOnSigner> = Api::all(admin.clone());
    for at in 1..=MOST_SIGNERS {
        // Refused, so that they cost no keys.
        let spec = json!({ "signerName": "example.com/telemetry", "addOns": [format!("a{at}")] });
        let object = json!({ "metadata": { "name": format!("s{at:03}") }, "spec": spec });
        let object = serde_json::from_value(json!({
            "apiVersion": "addon-signer.io/v1alpha1", "kind": "AddOnSigner",
            "metadata": object["metadata"], "spec": object["spec"],
        }));
        api.create(&PostParams::default(), &object.unwrap()).await.unwrap();
    }
    let last = format!("s{MOST_SIGNERS}");
    let note = wait_until(2 * TIMEOUT, "an event", async || events_about(&admin, &last).await.pop()).await;
    assert_eq!(note, "It takes no effect: there are 512 older AddOnSigners, which is the most.");
    let csr = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &csr, "issued", certificate).await;
    api.delete("s001", &DeleteParams::default()).await.unwrap();
    is_reported_again(&admin, &last).await;
    wait_ready(&admin, "telemetry", "True").await;
}

/// Waits until the hub says something of an AddOnSigner that took no effect before.
async fn is_reported_again(admin: &Client, name: &str) {
    let api: Api<AddOnSigner> = Api::all(admin.clone());
    wait_until(2 * TIMEOUT, "the next one to be read", async || api.get(name).await.unwrap().status.map(drop)).await;
}

/// Objects of 1.5 MiB exist, and nobody can write anything more into them.
#[tokio::test]
async fn a_status_that_cannot_be_written_is_an_event() {
    let (hub, admin, _running) = mk_ready().await;
    if hub.real_or_skip().is_none() {
        return;
    }
    create_namespace(&admin, NAMESPACE).await;
    // As large as etcd takes it: a status needs a kilobyte more.
    let owner = |length: usize| json!([{ "apiVersion": "v1", "kind": "Pod", "uid": "u", "name": "x".repeat(length) }]);
    let padded = async |create: &dyn Fn(Value) -> futures::future::BoxFuture<'static, bool>| {
        for length in (1_560_000..1_573_000).rev().step_by(700) {
            if create(owner(length)).await {
                return;
            }
        }
        panic!("none was accepted");
    };
    padded(&|owners| {
        let signers: Api<AddOnSigner> = Api::all(admin.clone());
        let spec = json!({ "signerName": "example.com/large", "addOns": ["large"] });
        let object = json!({
            "apiVersion": "addon-signer.io/v1alpha1", "kind": "AddOnSigner", "spec": spec,
            "metadata": { "name": "large", "ownerReferences": owners },
        });
        Box::pin(async move {
            signers.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.is_ok()
        })
    })
    .await;
    padded(&|owners| {
        let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), NAMESPACE);
        let object = json!({
            "apiVersion": "addon-signer.io/v1alpha1", "kind": "AddOnRoute", "spec": route(1),
            "metadata": { "name": "large", "ownerReferences": owners },
        });
        Box::pin(async move {
            routes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.is_ok()
        })
    })
    .await;
    for (about, begins) in [
        ("large", "The status cannot be written, so it may be out of date: "),
        (NAMESPACE, "The status of the AddOnRoute large cannot be written: "),
    ] {
        wait_until(TIMEOUT, &format!("an event about {about}"), async || {
            events_about(&admin, about).await.into_iter().find(|note| note.starts_with(begins))
        })
        .await;
    }
}
