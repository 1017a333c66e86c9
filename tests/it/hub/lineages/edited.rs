//! Somebody edits the Secret of a lineage in the middle of a rotation. What cannot be read is named, nothing is written
//! over it, and nothing is signed meanwhile; with what can be read the lineage goes on.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::Value;
use test_kit::log;

use super::kit::rotate;
use super::rotating::Rotating;

type Data = BTreeMap<String, ByteString>;

/// Data with another `line.json`.
fn with_lineage(data: &Data, change: impl FnOnce(&mut Vec<Value>)) -> Data {
    let mut lineage: Value = serde_json::from_slice(&data["line.json"].0).unwrap();
    change(lineage["authorities"].as_array_mut().unwrap());
    let mut data = data.clone();
    data.insert("line.json".to_owned(), ByteString(lineage.to_string().into_bytes()));
    data
}

/// Takes an authority out of the Secret as if it had never been there, and waits until the lineage has no such anchor.
async fn take_out(world: &mut Rotating, state: &str) -> String {
    let at = world.states.iter().position(|it| *it == state).unwrap();
    let id = world.ids.remove(at);
    let mut data =
        with_lineage(&world.lineage.data().await, |authorities| authorities.retain(|it| it["id"] != id.as_str()));
    data.retain(|name, _| !name.starts_with(&id));
    world.lineage.set_data(data).await;
    world.states = &["Active"];
    world.lineage.wait_bundle(&world.ids).await;
    id
}

#[tokio::test]
async fn an_authority_that_is_edited_away_is_said_and_not_missed() {
    let (log, _guard) = log::capture("error");
    for state in ["Next", "Old"] {
        let mut world = Rotating::start().await;
        world.reach(if state == "Next" { &["Next", "Active"] } else { &["Active", "Old"] }).await;
        let gone = take_out(&mut world, state).await;
        let says =
            |lineage: &str| lineage.contains("The authorities are older than the ledger") && lineage.contains(&gone);
        assert!(log.text().lines().any(says), "{}", log.text());
        let request = world.submit().await;
        world.assert_goes_on(&request).await;
        world.lineage.reconcile().await;
        assert_eq!(world.lineage.wait(&["Active"]).await, world.ids, "the request for the rotation was handled");
        rotate(&world.admin, "r2").await;
        let ids = world.lineage.wait(&["Next", "Active"]).await;
        assert!(!ids.contains(&gone) && ids[1] == world.ids[0], "{ids:?}");
    }
}
