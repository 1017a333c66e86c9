//! Somebody edits the Secret of a lineage in the middle of a rotation. What cannot be read is named, nothing is written
//! over it, and nothing is signed meanwhile; with what can be read the lineage goes on.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use test_kit::hub::wait_ready;
use test_kit::log;

use super::kit::rotate;
use super::rotating::Rotating;

type Data = BTreeMap<String, ByteString>;

/// What somebody has done to a Secret, and what the message must name.
struct Edit {
    what: &'static str,
    names: String,
    data: Data,
}

/// Data with another `line.json`.
fn with_lineage(data: &Data, change: impl FnOnce(&mut Vec<Value>)) -> Data {
    let mut lineage: Value = serde_json::from_slice(&data["line.json"].0).unwrap();
    change(lineage["authorities"].as_array_mut().unwrap());
    let mut data = data.clone();
    data.insert("line.json".to_owned(), ByteString(lineage.to_string().into_bytes()));
    data
}

/// The edits of a Secret with two authorities after which it cannot be read.
fn edits(good: &Data, ids: &[String], states: &[&str]) -> Vec<Edit> {
    let [crts, keys] = ["crt", "key"].map(|kind| [0, 1].map(|at| format!("{}.{kind}", ids[at])));
    let active = states.iter().position(|state| *state == "Active").unwrap();
    let without = |what, name: &String| {
        let mut data = good.clone();
        data.remove(name);
        Edit { what, names: name.clone(), data }
    };
    let exchanged = |what, names: &[String; 2], named: &String| {
        let mut data = good.clone();
        data.insert(names[0].clone(), good[&names[1]].clone());
        data.insert(names[1].clone(), good[&names[0]].clone());
        Edit { what, names: named.clone(), data }
    };
    let states_of = |what, change: fn(&mut Vec<Value>)| Edit {
        what,
        names: "line.json".to_owned(),
        data: with_lineage(good, change),
    };
    let mut edits = vec![
        exchanged("the keys", &keys, &keys[active]),
        exchanged("the certificates", &crts, &crts[0]),
        without("no first certificate", &crts[0]),
        without("no second certificate", &crts[1]),
        without("no key of the Active", &keys[active]),
        states_of("two Active", |authorities| authorities.iter_mut().for_each(|it| it["state"] = json!("Active"))),
        states_of("no Active", |authorities| authorities.iter_mut().for_each(|it| it["state"] = json!("Old"))),
        states_of("one twice", |authorities| authorities[1]["id"] = authorities[0]["id"].clone()),
    ];
    if states.contains(&"Next") {
        edits.push(without("no key of the Next", &keys[0])); // that of an Old is needed only for a rollback
    }
    edits
}

#[tokio::test]
async fn an_edited_secret_is_named_in_any_step_and_signs_nothing() {
    let mut world = Rotating::start().await;
    while world.step().await {
        if world.ids.len() < 2 {
            continue; // see `every_damage_is_named_and_nothing_is_overwritten`
        }
        let good = world.lineage.data().await;
        for edit in edits(&good, &world.ids, world.states) {
            println!("{}", edit.what); // shown when the test fails
            world.lineage.set_data(edit.data.clone()).await;
            let (reason, message) = wait_ready(&world.admin, "telemetry", "False").await;
            assert_eq!((reason.as_str(), message.contains(&edit.names)), ("AuthorityUnreadable", true), "{message}");
            let request = world.submit().await;
            world.assert_unanswered(&request).await;
            assert_eq!(world.lineage.data().await, edit.data, "written over");
            world.lineage.set_data(good.clone()).await;
            wait_ready(&world.admin, "telemetry", "True").await;
            world.assert_goes_on(&request).await;
        }
    }
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
        world.lineage.look().await;
        assert_eq!(world.lineage.wait(&["Active"]).await, world.ids, "the request for the rotation was handled");
        rotate(&world.admin, "r2").await;
        let ids = world.lineage.wait(&["Next", "Active"]).await;
        assert!(!ids.contains(&gone) && ids[1] == world.ids[0], "{ids:?}");
    }
}
