//! A signer is killed by SIGKILL wherever a step of a lineage persists something: no request and no renewal of an
//! eligible agent fails, and each step is taken once, with one result (invariants I5 to I7). The gateway is not a part
//! of the signer and lives on. `just soak` kills at all boundaries, some minutes; otherwise there are ten kills.

use tokio::time::timeout;

mod agents;
mod history;
mod steps;
mod world;

use steps::{Object, Step};
use test_kit::gate::Moment;
use test_kit::hub::TIMEOUT;
use test_kit::soak::soak;
use test_kit::wait::wait_or_explain;
use world::{KilledWorld, Source};

/// Where a signer is killed: at which moment of which write of which step.
type Kill = (Step, Object, Moment);

fn all() -> Vec<Kill> {
    let objects = Step::ALL.into_iter().flat_map(|step| step.objects().iter().map(move |object| (step, *object)));
    let moments = |(step, object)| [Moment::Before, Moment::After, Moment::Late].map(|moment| (step, object, moment));
    objects.flat_map(moments).collect()
}

async fn kill_at((step, object, moment): Kill, world: &mut KilledWorld) {
    eprintln!("{step:?} {object:?} {moment:?}"); // shown when the test fails
    world.rest().await;
    world.history.begin_round();
    let paused = if step.pauses() { Some(world.agents.pause_renewals().await) } else { None };
    step.arrange(world).await;
    let before = world.view().await;
    let known = before.clone();
    world.gate.stop_at(moment, move |written| object.read(written).is_some_and(|now| step.is_taken(&known, &now)));
    step.ask(world, &before).await;
    timeout(TIMEOUT, world.gate.stopped()).await.expect("the step is taken");
    world.kill().await;

    step.complete(world).await;
    let expected = step.history(world.source());
    let reported = || world.history.reported();
    let is_done = async || (reported() == expected).then_some(());
    wait_or_explain(TIMEOUT, "all steps to be taken", is_done, || format!("{:?}", reported())).await;
    world.settled().await;
    if moment == Moment::Late {
        let status = world.gate.deliver().await;
        assert!(status.is_client_error(), "the write of the signer that was killed: {status}");
        world.settled().await;
    }
    assert_eq!(reported(), expected);
    world.history.assert_followed();
    world.agents.assert_served();
    drop(paused);
}

async fn killed(source: Source, few: &[Kill]) {
    let mut world = KilledWorld::start(source).await;
    let kills = soak(all(), few.to_vec());
    let mut went_back = Vec::new();
    for kill in &kills {
        kill_at(*kill, &mut world).await;
        if kill.0 == Step::RollBackActive {
            went_back.push(world.view().await.id_of("Active").unwrap().to_owned());
        }
    }
    world.rest().await;
    let reported = world.finish(|id| went_back.iter().any(|it| it == id)).await;
    println!("{} kills; {reported}", kills.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_in_a_rotation_repeat_nothing_and_fail_nobody() {
    let few = [
        (Step::Prepare, Object::Secret, Moment::After),
        (Step::Activate, Object::Secret, Moment::Late),
        (Step::Finish, Object::Anchors, Moment::Before),
        (Step::RollBackActive, Object::Secret, Moment::After),
        (Step::TaintNext, Object::Secret, Moment::After),
        (Step::RevokeActive, Object::Secret, Moment::After),
    ];
    killed(Source::Made, &few).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_a_line_from_above_repeat_nothing() {
    let few = [
        (Step::Prepare, Object::Anchors, Moment::Late),
        (Step::Activate, Object::Status, Moment::After),
        (Step::TaintActive, Object::Secret, Moment::After),
        (Step::RevokeOld, Object::Status, Moment::Before),
    ];
    killed(Source::Company, &few).await;
}
