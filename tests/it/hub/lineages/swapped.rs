//! Somebody puts the content of another lineage's Secret into a lineage's, in any step of a rotation: each lineage
//! whose Secret has authorities of another says so and signs nothing until it has its own again.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use test_kit::hub::{TIMEOUT, create_signer, wait_ready};
use test_kit::{accept_cluster, install_addon, wait_until};

use super::kit::OnServer;
use super::rotating::Rotating;
use super::serving::report;
use crate::hub::signers::allow;

const TELEMETRY: &str = "telemetry-client-authorities";
const SEARCH: &str = "search-client-authorities";
const SERVING: &str = "addon-signer-serving-authorities";

/// What somebody does to the Secret of the signer telemetry.
struct Mixup {
    /// Whose content comes into it.
    from: &'static str,
    /// Whether its own goes there in return.
    is_exchange: bool,
    /// Whether annotations and labels go with the data.
    is_whole: bool,
}

const MIXUPS: [Mixup; 7] = [
    Mixup { from: SEARCH, is_exchange: true, is_whole: false },
    Mixup { from: SERVING, is_exchange: true, is_whole: true },
    Mixup { from: SERVING, is_exchange: false, is_whole: true },
    Mixup { from: SEARCH, is_exchange: true, is_whole: true },
    Mixup { from: SEARCH, is_exchange: false, is_whole: false },
    Mixup { from: SEARCH, is_exchange: false, is_whole: true },
    Mixup { from: SERVING, is_exchange: false, is_whole: false },
];

fn secrets(world: &Rotating) -> Api<Secret> {
    Api::namespaced(world.admin.clone(), "addon-signer")
}

/// Puts the content of one Secret into another.
async fn put(world: &Rotating, into: &str, content: &Secret, is_whole: bool) {
    let secrets = secrets(world);
    let mut there = secrets.get(into).await.unwrap();
    there.data = content.data.clone();
    if is_whole {
        there.metadata.annotations = content.metadata.annotations.clone();
        there.metadata.labels = content.metadata.labels.clone();
    }
    secrets.replace(into, &PostParams::default(), &there).await.unwrap();
}

/// What a lineage is said to lack: its AddOnSigner says it, or the report of the gateway's lineage.
async fn problem(world: &Rotating, secret: &str) -> String {
    if secret == SERVING {
        let lineage = OnServer::serving(&world.admin);
        let problem = async || Some(report(&lineage).await["problem"].as_str()?.to_owned());
        return wait_until(TIMEOUT, "the report to name a problem", problem).await;
    }
    let signer = secret.strip_suffix("-client-authorities").unwrap();
    let (reason, message) = wait_ready(&world.admin, signer, "False").await;
    assert_eq!(reason, "AuthorityUnreadable", "{message}");
    message
}

/// Waits until a lineage has its own authorities again.
async fn is_back(world: &Rotating, secret: &str) {
    if secret == SERVING {
        let lineage = OnServer::serving(&world.admin);
        let is_good = async || report(&lineage).await.get("problem").is_none().then_some(());
        return wait_until(TIMEOUT, "the report to name no problem", is_good).await;
    }
    wait_ready(&world.admin, secret.strip_suffix("-client-authorities").unwrap(), "True").await;
}

/// Whose authorities the Secret has.
fn owner(secret: &str) -> &'static str {
    match secret {
        SERVING => "(serving)",
        SEARCH => "example.com/search",
        _ => "example.com/telemetry",
    }
}

async fn mix_up(world: &Rotating, Mixup { from, is_exchange, is_whole }: &Mixup) {
    let secrets = secrets(world);
    let (own, other) = (secrets.get(TELEMETRY).await.unwrap(), secrets.get(from).await.unwrap());
    put(world, TELEMETRY, &other, *is_whole).await;
    if *is_exchange {
        put(world, from, &own, *is_whole).await;
    }
    for (secret, theirs) in [(TELEMETRY, *from), (*from, TELEMETRY)].iter().take(1 + usize::from(*is_exchange)) {
        let sentence = format!("the Secret {secret} has the authorities of {}; restore its own", owner(theirs));
        let problem = problem(world, secret).await;
        assert!(problem.starts_with(&sentence), "{problem}");
    }
    let request = world.submit().await;
    world.assert_unanswered(&request).await;
    assert_eq!(secrets.get(TELEMETRY).await.unwrap().data, other.data, "nothing was written over it");
    put(world, TELEMETRY, &own, true).await;
    put(world, from, &other, true).await;
    is_back(world, from).await;
    is_back(world, TELEMETRY).await;
    world.assert_goes_on(&request).await;
}

#[tokio::test]
async fn authorities_of_another_line_sign_nothing_in_any_step() {
    let mut world = Rotating::start().await;
    allow(&world.hub, &world.admin, "example.com/search").await;
    accept_cluster(&world.admin, "spoke2").await;
    install_addon(&world.admin, "spoke2", "search").await;
    create_signer(&world.admin, "search", json!({ "signerName": "example.com/search", "addOns": ["search"] })).await;
    wait_ready(&world.admin, "search", "True").await;
    while world.step().await {
        let mixups = if world.states == ["Active"] { &MIXUPS[..] } else { &MIXUPS[..2] };
        for mixup in mixups {
            mix_up(&world, mixup).await;
        }
    }
}
