//! Credentials that the user of a kubeconfig has elsewhere: a program prints them (`exec`), or a file has them
//! (`tokenFile`). kube would run the program twice, without a bound, and would send the line end of the file.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, stdin};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::timestamp::Timestamp;
use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};
use tracing::warn;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::process_group::Group;

/// The longest run of a program. Clouds answer within seconds, and a person at a terminal has time to log in.
const RUN: Duration = Duration::from_secs(60);
/// New credentials are fetched this long before the old ones expire, so that requests need not wait for them.
const AHEAD: Duration = Duration::from_secs(60);
/// The shortest time between two runs if a refused token causes the second.
const AGAIN: Duration = Duration::from_secs(10);
/// The largest output of a program, and the largest token file, in bytes.
const LARGEST: usize = 1 << 20;

/// Why there are no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {cause}")]
pub(crate) struct NoCredentials {
    field: String,
    cause: String,
}

/// Where credentials come from.
#[derive(Clone)]
pub(crate) enum Source {
    Program(Box<ExecConfig>),
    File(PathBuf),
}

/// The credentials of one user.
#[derive(Clone)]
pub(crate) struct Credentials {
    source: Source,
    /// The kubeconfig's field.
    field: String,
    bound: Duration,
    clock: Clock,
    now: Arc<parking_lot::Mutex<Login>>,
    /// Held while a program runs, with the end of the last run: requests that waited for that run share its result.
    turn: Arc<tokio::sync::Mutex<Option<End>>>,
}

/// When a run ended, and how.
type End = (Instant, Result<(), NoCredentials>);

/// What a program printed.
#[derive(Clone, Default)]
struct Login {
    header: Option<HeaderValue>,
    expires: Option<Timestamp>,
    identity: Option<Identity>,
}

/// A client certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// client-go's ExecCredential.
#[derive(Deserialize)]
struct Printed {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    expiration_timestamp: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Credentials {
    /// The credentials of a user, which is a field of the kubeconfig.
    pub(crate) fn new(source: Source, user: &str) -> Self {
        let name = match &source {
            Source::Program(_) => "exec",
            Source::File(_) => "tokenFile",
        };
        let (clock, now, turn) = Default::default();
        Self { source, field: format!("{user}.{name}"), bound: RUN, clock, now, turn }
    }

    /// Fetches them for a new client. A later client certificate is not used: that would need a new client.
    pub(crate) async fn begin(&self) -> Result<Option<Identity>, NoCredentials> {
        self.clone().fetch(Instant::now()).await?;
        Ok(self.now.lock().identity.take())
    }

    /// Adds the token to a request.
    pub(crate) async fn add<B>(self, mut request: Request<B>) -> Result<Request<B>, NoCredentials> {
        if self.remaining() <= AHEAD {
            // A caller that stops waiting does not stop the run, because the next caller would have to begin again.
            let fetching = tokio::spawn(self.clone().fetch(Instant::now()));
            if self.remaining().is_zero() {
                fetching.await.map_err(|_| self.fault("this process ends"))??;
            }
        }
        if let Some(header) = &self.now.lock().header {
            request.headers_mut().entry(AUTHORIZATION).or_insert_with(|| header.clone());
        }
        Ok(request)
    }

    /// The API server has refused the token, which may have been withdrawn before its end: the next request fetches
    /// another one, unless this one is new.
    pub(crate) fn refused(&self) {
        let is_new = |turn: &Option<End>| turn.as_ref().is_none_or(|(at, _)| at.elapsed() < AGAIN);
        // While the turn is taken, a program that runs is fetching another token already.
        if self.turn.try_lock().is_ok_and(|turn| !is_new(&turn)) {
            self.now.lock().expires = Some(self.clock.now());
        }
    }

    fn remaining(&self) -> Duration {
        self.now.lock().expires.map_or(Duration::MAX, |expires| self.clock.now().until(expires))
    }

    async fn fetch(self, asked: Instant) -> Result<(), NoCredentials> {
        let mut turn = self.turn.lock().await;
        if let Some((_, end)) = turn.as_ref().filter(|(at, _)| *at >= asked) {
            return end.clone();
        }
        let login = match &self.source {
            Source::Program(exec) => self.run(exec).await,
            Source::File(file) => self.read(file).await,
        };
        let end = login.map(|login| *self.now.lock() = login).inspect_err(|failure| warn!("{failure}"));
        *turn = Some((Instant::now(), end.clone()));
        end
    }

    fn fault(&self, cause: impl fmt::Display) -> NoCredentials {
        NoCredentials { field: self.field.clone(), cause: cause.to_string() }
    }

    /// As with kubectl, white space around the token does not count, and if the file was deleted the last token stays.
    async fn read(&self, file: &PathBuf) -> Result<Login, NoCredentials> {
        let expires = Some(self.clock.now().plus(2 * AHEAD)); // read every minute
        let text = match self.text(file).await {
            Ok(text) => text,
            Err(_) if self.now.lock().header.is_some() => return Ok(Login { expires, ..self.now.lock().clone() }),
            Err(error) => return Err(self.fault(format!("{} cannot be read: {error}", file.display()))),
        };
        // PowerShell may write a byte order mark.
        let token = text.trim_start_matches('\u{feff}').trim();
        if token.is_empty() {
            return Err(self.fault(format!("{} is empty", file.display())));
        }
        let header = Some(bearer(token).map_err(|cause| self.fault(cause))?);
        Ok(Login { header, expires, identity: None })
    }

    async fn text(&self, file: &PathBuf) -> std::io::Result<String> {
        let mut text = String::new();
        File::open(file).await?.take(LARGEST as u64).read_to_string(&mut text).await?;
        Ok(text)
    }

    async fn run(&self, exec: &ExecConfig) -> Result<Login, NoCredentials> {
        let program = exec.command.clone().unwrap_or_default();
        let fault = |cause: String| self.fault(format!("{} {cause}", program.escape_debug()));
        let is_interactive = exec.interactive_mode != Some(ExecInteractiveMode::Never) && stdin().is_terminal();
        let mut child = command(exec, &program, is_interactive).spawn().map_err(|error| {
            match (error.kind(), &exec.install_hint) {
                (ErrorKind::NotFound, Some(hint)) => fault(format!("does not exist; {}", hint.trim())),
                (ErrorKind::NotFound, None) => fault("does not exist".to_owned()),
                _ => fault(format!("cannot be run: {error}")),
            }
        })?;
        let group = (!is_interactive).then(|| Group::of(&child));
        let ended = timeout(self.bound, output(&mut child, group)).await;
        let late = || fault(format!("did not end and close its output within {} s", self.bound.as_secs()));
        let ended = ended.map_err(|_| late())?;
        let (status, output) = ended.map_err(|error| fault(format!("cannot be read: {error}")))?;
        if output.len() > LARGEST {
            return Err(fault(format!("printed more than {LARGEST} bytes")));
        }
        if !status.success() {
            return Err(fault(format!("failed ({status})")));
        }
        if output.trim_ascii().is_empty() {
            return Err(fault("printed nothing".to_owned()));
        }
        let printed: Printed =
            serde_saphyr::from_slice(&output).map_err(|_| fault("printed no ExecCredential".to_owned()))?;
        login(printed.status).map_err(|cause| fault(cause.to_owned()))
    }
}

/// What a program prints, or the beginning of it if that is too much; then this does not wait for its end. A program
/// that takes too long or prints too much is killed with its group.
async fn output(child: &mut Child, mut group: Option<Group>) -> std::io::Result<(ExitStatus, Zeroizing<Vec<u8>>)> {
    let mut output = Zeroizing::new(Vec::new());
    if let Some(stdout) = child.stdout.take() {
        stdout.take(LARGEST as u64 + 1).read_to_end(&mut output).await?;
    }
    if output.len() > LARGEST {
        group.take(); // kills it
        child.start_kill()?;
    }
    let status = child.wait().await?;
    group.iter_mut().for_each(Group::has_ended);
    Ok((status, output))
}

/// The program. It has our standard error, where it reports what is wrong; its output is the credential. It leads a
/// process group, unless it may ask at the terminal, which only our own group may read.
fn command(exec: &ExecConfig, program: &str, is_interactive: bool) -> Command {
    let spec = match exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
        Some(cluster) => serde_json::json!({ "interactive": is_interactive, "cluster": cluster }),
        None => serde_json::json!({ "interactive": is_interactive }),
    };
    let info = serde_json::json!({ "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|one| Some((one.get("name")?, one.get("value")?)));
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten()).envs(variables).env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    if !is_interactive {
        command.process_group(0);
    }
    command
}

fn login(status: Option<Status>) -> Result<Login, &'static str> {
    let status = status.ok_or("printed an ExecCredential without a status")?;
    let expires = status.expiration_timestamp.as_deref().map(Timestamp::from_rfc3339);
    if expires == Some(None) {
        return Err("printed an expirationTimestamp that is no time in RFC 3339");
    }
    let set = |text: Option<String>| text.filter(|text| !text.is_empty());
    let header = set(status.token).map(|token| bearer(&token)).transpose();
    let header = header.map_err(|_| "printed a token with a character that no header may have")?;
    let identity = match (set(status.client_certificate_data), set(status.client_key_data)) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) if header.is_none() => return Err("printed neither a token nor a client certificate"),
        (None, None) => None,
        _ => return Err("printed a client certificate or its key, and not both"),
    };
    // Only a token can be renewed.
    let expires = expires.flatten().filter(|_| header.is_some());
    Ok(Login { header, expires, identity })
}

/// kube panics at a token that no header may have.
pub(crate) fn check_token(token: &str) -> Result<(), &'static str> {
    bearer(token).map(drop)
}

fn bearer(token: &str) -> Result<HeaderValue, &'static str> {
    let refused = "the token has a character that no header may have, such as the line break at its end";
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| refused)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests;
