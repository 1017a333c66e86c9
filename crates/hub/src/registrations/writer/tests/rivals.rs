//! Another program reverts what the hub writes: the hub writes rarely and reports the addon until that ends.

use super::*;

/// The status of an addon that a hub has reported.
fn mk_left() -> Value {
    json!({ "conditions": [{ "type": "addon-signer.io/Registered", "status": "False", "reason": "TakenAway" }] })
}

/// The hub's writes to an addon that this rival reverts, in the first hour and in the first day.
async fn writes_beside(rival: Manner, status: &Value) -> (usize, usize) {
    let world = World::start(&[("c1", rival), ("c2", Manner::Good)], status);
    world.know();
    pass(24 * 3600).await;
    assert!(world.server.writes_of("c2").len() <= 2, "a rival on one cluster is none on another");
    let writes = world.server.writes_of("c1");
    (writes.iter().filter(|second| **second < 3600).count(), writes.len())
}

/// OCM's agent makes and deletes a Secret at each write.
#[tokio::test(start_paused = true)]
async fn beside_a_rival_the_hub_writes_rarely() {
    for (rival, status, an_hour, a_day) in [
        (Manner::Rival, json!({}), 6, 12),
        (Manner::RivalOfConditions, json!({}), 6, 12),
        (Manner::SlowRival, json!({}), 8, 16),
        (Manner::Rival, mk_left(), 2, 8),
        (Manner::RivalOfConditions, mk_left(), 2, 8),
        (Manner::SlowRival, mk_left(), 4, 12),
        (Manner::Liar, mk_left(), 60, 24 * 60),
    ] {
        let (in_an_hour, in_a_day) = writes_beside(rival, &status).await;
        assert!(in_an_hour <= an_hour, "{rival:?} {status}: {in_an_hour}");
        assert!((8..=a_day).contains(&in_a_day), "{rival:?} {status}: {in_a_day}");
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_from_a_minute_to_six_hours() {
    let world = World::start(&[("c1", Manner::Rival)], &json!({}));
    world.know();
    pass(24 * 3600).await;
    let writes = world.server.writes_of("c1");
    let pauses: Vec<u64> = writes.windows(2).map(|pair| (pair[1] - pair[0]) / 60).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360], "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_lost_once_comes_back_without_a_report() {
    let world = World::start(&[("c1", Manner::Good)], &json!({}));
    world.know();
    for lost_after in [30, 3600] {
        pass(lost_after).await;
        world.server.set(AddOnApi::V1Alpha1, "c1", json!({ "registrations": [] })).await;
        pass(70).await;
        assert_eq!(world.status()["registrations"][0]["signerName"], "example.com/telemetry");
        assert!(!is_left(&world.status()), "{}", world.status());
        assert_eq!(world.left(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn settings_that_flap_cause_at_most_ten_writes_a_minute() {
    let world = World::start(&[("c1", Manner::Rival)], &json!({}));
    world.know();
    for second in 0..60 {
        world.signers.send_replace(Some(mk_signers(&format!("unit{second}"))));
        pass(1).await;
    }
    let writes = world.server.writes_of("c1");
    assert!((2..=10).contains(&writes.len()), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_by_people_reaches_what_is_left_once() {
    let world = World::start(&[("c1", Manner::Rival)], &json!({}));
    world.know();
    pass(300).await;
    let before = world.server.writes_of("c1").len();
    world.signers.send_replace(Some(mk_signers("other")));
    pass(700).await;
    assert_eq!(world.server.writes_of("c1").len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_stays_left_when_the_hub_restarts() {
    let world = World::start(&[("c1", Manner::Rival)], &json!({}));
    world.know();
    pass(300).await;
    assert_eq!(world.left(), 1);
    let world = World::start(&[("c1", Manner::Rival)], &world.status());
    world.know();
    pass(590).await;
    assert_eq!((world.left(), world.server.writes_of("c1").len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_stays_for_a_minute_is_no_longer_left() {
    let world = World::start(&[("c1", Manner::Rival)], &json!({}));
    world.know();
    pass(300).await;
    assert_eq!(world.left(), 1);
    world.server.manners.lock().unwrap().insert("c1".to_owned(), Manner::Good);
    pass(500).await;
    assert_eq!(world.left(), 0);
    assert!(!is_left(&world.status()), "{}", world.status());
    assert_eq!(world.status()["registrations"][0]["signerName"], "example.com/telemetry");
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_forgotten_also_when_only_a_list_shows_it() {
    let world = World::start(&[("c1", Manner::Rival), ("c2", Manner::Rival)], &json!({}));
    world.know();
    pass(120).await;
    assert_eq!(world.left(), 2);
    world.server.addons.lock().unwrap().clear();
    let gone = ocm::addon_key(&Server::object("c1", &json!({}))).unwrap();
    world.server.seen.send(SeenAddOn::Deleted(gone)).await.unwrap();
    pass(20).await;
    assert_eq!(world.left(), 1);
    world.all_again.notify_one();
    pass(40).await;
    assert_eq!(world.left(), 0);
}

#[tokio::test(start_paused = true)]
async fn restarted_hub_reports_nothing_before_seeing_all_addons() {
    let world = World::start(&[("c1", Manner::Good)], &mk_left());
    pass(60).await;
    assert!(world.report.borrow().is_none());
    world.know();
    pass(20).await;
    assert_eq!(world.left(), 1);
    assert!(world.server.writes.lock().unwrap().is_empty());
    pass(700).await;
    // The hub writes the entry, the entry stays, and the hub takes the condition away.
    assert_eq!((world.server.writes_of("c1").len(), world.left()), (2, 0));
    assert!(!is_left(&world.status()), "{}", world.status());
    assert_eq!(world.status()["registrations"][0]["signerName"], "example.com/telemetry");
}
