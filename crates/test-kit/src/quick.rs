//! Time that passes quickly. What runs in a test's own runtime, the hub and the stand-in, takes its pauses from tokio's
//! clock, so a test need not sit through them. Programs, other threads and real servers have the machine's clock: they
//! see deadlines of the runtime expire ten times as early. Where that matters, a test calls [`as_usual`].

use std::cell::Cell;
use std::env;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{advance, pause, resume, sleep};

use crate::needed::real_parts;

/// How much faster.
const FACTOR: u32 = 10;
/// How long time passes as usual between two steps.
const TURN: Duration = Duration::from_millis(5);
/// A pause of at most this is not shorter for other threads and programs, so that what must not happen could.
const FLOOR: Duration = Duration::from_millis(1_500);

thread_local! {
    /// When this thread's runtime made its last step: waits that run at the same time do not make it faster still.
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    static AS_USUAL: Cell<bool> = const { Cell::new(false) };
}

/// From here on, time passes as usual for this test.
pub fn as_usual() {
    AS_USUAL.set(true);
}

/// Lets this much time pass for what runs in this test's runtime. On real parts, whose time cannot pass faster, and in
/// a runtime of several threads it takes as long as it says.
pub async fn pass(time: Duration) {
    if !can_be_quick() {
        return sleep(time).await;
    }
    let (began, quick) = (Instant::now(), tokio::time::Instant::now());
    while quick.elapsed() < time || began.elapsed() < FLOOR.min(time) {
        step().await;
    }
}

/// Lets time pass quickly while the machine's clock advances by this much.
pub(crate) async fn pass_during(real: Duration) {
    if !can_be_quick() {
        return sleep(real).await;
    }
    let began = Instant::now();
    while began.elapsed() < real {
        step().await;
    }
}

/// How much time an idle machine lets pass for what runs in this test's runtime while its own clock advances by this
/// much; half of what it can.
pub(crate) fn passes_in(real: Duration) -> Duration {
    if can_be_quick() { real * FACTOR / 2 } else { real }
}

/// Lets time pass as usual for a turn and then skips what the factor says, unless another wait has just done that.
async fn step() {
    sleep(TURN).await;
    if LAST.get().is_none_or(|last| last.elapsed() >= TURN) {
        LAST.set(Some(Instant::now()));
        skip(TURN * (FACTOR - 1));
    } else {
        tokio::task::yield_now().await; // its step has ended this one's sleep
    }
}

fn can_be_quick() -> bool {
    let is_real =
        real_parts().is_some() || env::var_os("ADDON_SIGNER_POSTGRES").is_some_and(|programs| !programs.is_empty());
    !is_real && !AS_USUAL.get() && Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// Moves tokio's clock. Without a point at which another task could run, so time never stands still for anybody.
fn skip(by: Duration) {
    pause();
    let moved = advance(by).now_or_never(); // it has moved the clock before it yields
    debug_assert!(moved.is_none(), "tokio yields after it has moved the clock");
    resume();
}
