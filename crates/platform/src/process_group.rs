//! The process group of a command, so that its children end with it.

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::process::Child;

/// The process group of a command that is running. Dropping it kills the group.
#[derive(Debug)]
pub struct Group(Option<Pid>);

impl Group {
    /// The group that this child leads.
    pub fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// The command has ended by itself, and was waited for. Processes that it left running stay.
    pub fn has_ended(&mut self) {
        self.0 = None;
    }

    /// Kills the group, once.
    pub fn kill(&mut self) {
        if let Some(pid) = self.0.take() {
            kill_process_group(pid, Signal::KILL).ok(); // fails only if every process of the group has ended
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The groups of earlier commands. In a container the agent is the first process, so the children of a command that has
/// ended become its own, and stay as zombies until it waits for them.
#[derive(Debug, Default)]
pub struct Groups(Vec<Pid>);

impl Groups {
    /// Has the group reaped later.
    pub fn remember(&mut self, group: &Group) {
        self.0.extend(group.0);
    }

    /// Waits for all processes of these groups that have ended, and forgets groups without a child of ours. The
    /// children that lead them were waited for before.
    pub fn reap(&mut self) {
        self.0.retain(|group| {
            loop {
                match waitpgid(*group, WaitOptions::NOHANG) {
                    Ok(Some(_)) => {}
                    Ok(None) => return true,
                    Err(_) => return false, // ECHILD
                }
            }
        });
    }
}
