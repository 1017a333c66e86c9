//! Time that passes quickly. What runs in a test's own runtime, the hub and the stand-in, takes its pauses from tokio's
//! clock, so a test need not sit through them. A program, another thread and a real server have the machine's clock
//! and get time to answer: each step is short, and no deadline of seconds passes within one turn of the runtime.

use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{advance, pause, resume, sleep};

use crate::needed::real_parts;

/// How much faster.
const FACTOR: u32 = 10;
/// How long time passes as usual between two steps.
const TURN: Duration = Duration::from_millis(5);

/// Lets this much time pass for what runs in this test's runtime. On a real API server, whose time cannot pass faster,
/// and in a runtime of several threads it takes as long as it says.
pub async fn pass(time: Duration) {
    if !can_be_quick() {
        return sleep(time).await;
    }
    let step = TURN * FACTOR;
    let mut passed = Duration::ZERO;
    while passed < time {
        sleep(TURN).await;
        skip(step - TURN);
        passed += step;
    }
}

/// Lets time pass quickly while the machine's clock advances by this much.
pub(crate) async fn pass_during(real: Duration) {
    pass(if can_be_quick() { real * FACTOR } else { real }).await;
}

fn can_be_quick() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread && real_parts().is_none()
}

/// Moves tokio's clock. Without a point at which another task could run, so time never stands still for anybody.
fn skip(by: Duration) {
    pause();
    let moved = advance(by).now_or_never(); // it has moved the clock before it yields
    debug_assert!(moved.is_none(), "tokio yields after it has moved the clock");
    resume();
}
