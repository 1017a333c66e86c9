//! The command of `--on-renew`, for a program that must know when its certificate or the anchors have changed.

use std::convert::Infallible;
use std::future::pending;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::probe::Probe;
use crate::retry::Backoff;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_platform::process_group::{Group, Groups};

/// The pause after the first failure. It is short, because the program may just be starting.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause: if no program loads the new certificate, there is an outage when the old one expires.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long the last line may still come after the command has ended: processes that it left running may hold the pipe
/// forever.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What the command gets of the agent's environment, where a proxy's variable may have a password.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "XDG_RUNTIME_DIR"]; // the last one is for `systemctl --user`

/// The text is not a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    /// There is no program in it.
    #[error("it names no program; write a program and its arguments, such as \"systemctl reload nginx\"")]
    Empty,
    /// It cannot be split into words.
    #[error("a quotation mark is not closed, or nothing follows a backslash; quote as in a shell")]
    Unbalanced,
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    program: String,
    arguments: Vec<String>,
}

impl FromStr for CommandLine {
    type Err = CommandLineError;

    fn from_str(text: &str) -> Result<Self, CommandLineError> {
        let mut words = shlex::split(text).ok_or(CommandLineError::Unbalanced)?.into_iter();
        let program = words.next().filter(|program| !program.is_empty()).ok_or(CommandLineError::Empty)?;
        Ok(Self { program, arguments: words.collect() })
    }
}

/// Why the command did not do its work. Its arguments are not named, because they may contain a password.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The operating system cannot run it.
    #[error("{0:?} cannot be run: {1}; is it where the agent runs, and on its PATH?")]
    NotRun(String, std::io::Error),
    /// It ended, but not with exit code 0.
    #[error("{program:?} ended with {status}{output}")]
    Failed {
        /// The program.
        program: String,
        /// `exit code 1` or `signal 9`.
        status: String,
        /// The last line on its standard error, with words before it; may be empty.
        output: String,
    },
    /// It ran for too long.
    #[error("{program:?} did not end within {} s and was killed{output}; see --on-renew-timeout", .limit.as_secs())]
    TimedOut {
        /// The program.
        program: String,
        /// How long it had.
        limit: Duration,
        /// The last line on its standard error, with words before it; may be empty.
        output: String,
    },
}

/// Runs the command.
#[derive(Debug)]
pub struct OnRenew {
    command: CommandLine,
    limit: Duration,
    identity: PeerIdentity,
    directory: Option<PathBuf>,
    first_pause: Duration,
    groups: Groups,
}

impl OnRenew {
    /// The command, how long it may run, and what its environment tells it: the certificate's identity, and the
    /// directory of the files, if there is one.
    pub fn new(command: CommandLine, limit: Duration, identity: PeerIdentity, directory: Option<PathBuf>) -> Self {
        Self { command, limit, identity, directory, first_pause: FIRST_PAUSE, groups: Groups::default() }
    }

    /// The same with another pause after the first failure.
    #[must_use]
    pub fn with_first_pause(self, first_pause: Duration) -> Self {
        Self { first_pause, ..self }
    }

    /// Runs the command once. Dropping the future kills it.
    pub async fn run(&mut self) -> Result<(), CommandError> {
        self.groups.reap();
        let not_run = |error| CommandError::NotRun(self.command.program.clone(), error);
        let mut child = self.prepare().spawn().map_err(not_run)?;
        let mut group = Group::of(&child);
        self.groups.remember(&group);
        let mut last_line = LastLine::default();
        let stderr = child.stderr.take();
        let waiting = async {
            let ended = timeout(self.limit, child.wait()).await;
            if let Ok(Ok(_)) = ended {
                group.has_ended(); // from now on another group may have its number
            } else {
                group.kill();
                child.wait().await.map_err(not_run)?;
            }
            ended.map_or(Ok(None), |status| status.map(Some)).map_err(not_run)
        };
        let status = while_reading(waiting, last_line.read(stderr)).await?;
        self.judge(status, &last_line)
    }

    /// The command gets no shell and no standard input, its standard output is discarded, and it has a process group of
    /// its own.
    fn prepare(&self) -> Command {
        let mut command = Command::new(&self.command.program);
        command.args(&self.command.arguments).env_clear().process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.envs(PASSED_ON.into_iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value))));
        command.env("ADDON_SIGNER_CLUSTER", self.identity.cluster.as_str());
        command.env("ADDON_SIGNER_ADDON", self.identity.addon.as_str());
        command.envs(self.directory.iter().map(|path| ("ADDON_SIGNER_OUTPUT_DIR", path)));
        command
    }

    /// `None` stands for a command that was killed because it ran for too long.
    fn judge(&self, status: Option<ExitStatus>, last_line: &LastLine) -> Result<(), CommandError> {
        let (program, output) = (self.command.program.clone(), last_line.output());
        let Some(status) = status else {
            return Err(CommandError::TimedOut { program, limit: self.limit, output });
        };
        let status = match (status.code(), status.signal()) {
            (Some(0), _) => return Ok(()),
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        Err(CommandError::Failed { program, status, output })
    }

    /// Runs the command after each change, and again while it fails, forever.
    pub(crate) async fn follow<T>(mut self, mut changes: watch::Receiver<T>, probe: Probe) -> Infallible {
        while changes.changed().await.is_ok() {
            self.tell(&mut changes, &probe).await;
        }
        pending().await // nothing will change any more
    }

    /// Runs the command until it succeeds. A newer change ends the pause after a failure, and begins a new series.
    async fn tell<T>(&mut self, changes: &mut watch::Receiver<T>, probe: &Probe) {
        let mut backoff = Backoff::new(self.first_pause, LONGEST_PAUSE);
        while let Err(error) = self.run().await {
            probe.count_failure();
            let pause = backoff.after_failure();
            warn!(id = %self.identity, %error, retry_in = ?pause, "The command of --on-renew failed");
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = changes.changed() => backoff = Backoff::new(self.first_pause, LONGEST_PAUSE),
            }
        }
        info!(id = %self.identity, "Ran the command of --on-renew");
    }
}

/// Waits, and reads meanwhile and a little longer.
async fn while_reading<T>(waiting: impl Future<Output = T>, reading: impl Future<Output = ()>) -> T {
    match select(pin!(waiting), pin!(reading)).await {
        Either::Left((value, rest)) => {
            let _ = timeout(LAST_WORDS, rest).await; // what has not come by then is not waited for
            value
        }
        Either::Right(((), waiting)) => waiting.await,
    }
}

/// How many bytes are kept of what a command writes.
const KEPT: usize = 2048;
/// How many characters a message has of the last line.
const SHOWN: usize = 256;

/// The end of what a command has written.
#[derive(Debug, Default)]
pub(super) struct LastLine(Vec<u8>);

impl LastLine {
    /// Reads to the end, so that the command never blocks on a full pipe.
    pub(super) async fn read(&mut self, source: Option<impl AsyncRead + Unpin>) {
        let Some(mut source) = source else { return };
        let mut chunk = [0; 512];
        // After an error, what was read before is still worth showing.
        while let Ok(count @ 1..) = source.read(&mut chunk).await {
            self.0.extend(chunk.iter().take(count));
            self.0.drain(..self.0.len().saturating_sub(KEPT));
        }
    }

    /// The line with words before it; empty if there is none. Harmful characters in it are replaced.
    pub(super) fn output(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let Some(line) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else { return String::new() };
        let shown = line.chars().map(|c| if is_harmless(c) { c } else { '?' }).take(SHOWN);
        let rest = if line.chars().count() > SHOWN { "…" } else { "" };
        format!(", after it said: {}{rest}", shown.collect::<String>())
    }
}

/// Not a character that controls a terminal, breaks lines, or changes the direction or the order of others.
fn is_harmless(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
