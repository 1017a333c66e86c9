//! Credentials that the user of a kubeconfig has elsewhere: a program prints them (`exec`), or a file has them
//! (`tokenFile`). kube would run the program twice, without a bound, and would send the line end of the file.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, stdin};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::timestamp::Timestamp;
use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::clock::Clock;

/// The longest run of a program. Clouds answer within seconds, and a person at a terminal has time to log in.
const RUN: Duration = Duration::from_secs(60);
/// New credentials are fetched this long before the old ones expire, so that calls need not wait for them.
const AHEAD: Duration = Duration::from_secs(60);

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
    /// Of the kubeconfig.
    field: String,
    bound: Duration,
    clock: Clock,
    now: Arc<parking_lot::Mutex<Login>>,
    /// Held while a program runs, with the end of the last run: whoever waited for that run shares it.
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
    /// Those of a user, which is a field of the kubeconfig.
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

    /// Adds the token to a call.
    pub(crate) async fn add<B>(self, mut request: Request<B>) -> Result<Request<B>, NoCredentials> {
        if self.remaining() <= AHEAD {
            // A caller that gives up does not stop the run: the next one would begin from the start.
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

    /// As for kubectl, white space around the token is none of it, and a file that has gone leaves the last token.
    async fn read(&self, file: &PathBuf) -> Result<Login, NoCredentials> {
        let expires = Some(self.clock.now().plus(2 * AHEAD)); // read every minute
        let text = match tokio::fs::read_to_string(file).await {
            Ok(text) => text,
            Err(_) if self.now.lock().header.is_some() => return Ok(Login { expires, ..self.now.lock().clone() }),
            Err(error) => return Err(self.fault(format!("{} cannot be read: {error}", file.display()))),
        };
        let header = Some(bearer(text.trim()).map_err(|cause| self.fault(cause))?);
        Ok(Login { header, expires, identity: None })
    }

    async fn run(&self, exec: &ExecConfig) -> Result<Login, NoCredentials> {
        let program = exec.command.clone().unwrap_or_default();
        let fault = |cause: String| self.fault(format!("{} {cause}", program.escape_debug()));
        let child = command(exec, &program).spawn().map_err(|error| match (error.kind(), &exec.install_hint) {
            (ErrorKind::NotFound, Some(hint)) => fault(format!("does not exist; {}", hint.trim())),
            (ErrorKind::NotFound, None) => fault("does not exist".to_owned()),
            _ => fault(format!("cannot be run: {error}")),
        })?;
        let ended = timeout(self.bound, child.wait_with_output()).await;
        let ended = ended.map_err(|_| fault(format!("gave no answer within {} s", self.bound.as_secs())))?;
        let output = ended.map_err(|error| fault(format!("cannot be read: {error}")))?;
        if !output.status.success() {
            return Err(fault(format!("failed ({})", output.status)));
        }
        let printed: Printed =
            serde_saphyr::from_slice(&output.stdout).map_err(|_| fault("printed no ExecCredential".to_owned()))?;
        login(printed.status).map_err(|cause| fault(cause.to_owned()))
    }
}

/// The program, with our standard error, on which it says what is wrong. Its output is the credential.
fn command(exec: &ExecConfig, program: &str) -> Command {
    let is_interactive = exec.interactive_mode != Some(ExecInteractiveMode::Never) && stdin().is_terminal();
    let spec = match exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
        Some(cluster) => serde_json::json!({ "interactive": is_interactive, "cluster": cluster }),
        None => serde_json::json!({ "interactive": is_interactive }),
    };
    let told = serde_json::json!({ "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|one| Some((one.get("name")?, one.get("value")?)));
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten()).envs(variables).env("KUBERNETES_EXEC_INFO", told.to_string());
    command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
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
mod tests {
    use super::*;

    /// A shell that runs this, and marks each run in the file `$MARKS`.
    fn shell(script: &str, marks: &std::path::Path) -> Credentials {
        let exec = ExecConfig {
            command: Some("sh".to_owned()),
            args: Some(vec!["-c".to_owned(), format!("echo ran >> {}; {script}", marks.display())]),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        };
        Credentials::new(Source::Program(Box::new(exec)), "users.ann")
    }

    fn printing(status: &str) -> String {
        format!("echo '{{\"kind\": \"ExecCredential\", \"status\": {{{status}}}}}'")
    }

    /// `status` of a token that expires in ten minutes.
    fn token(token: &str) -> String {
        let expires = Clock::default().now().plus(Duration::from_secs(600));
        format!("\"token\": \"{token}\", \"expirationTimestamp\": \"{expires}\"")
    }

    async fn sent(credentials: &Credentials) -> Result<String, String> {
        let request = credentials.clone().add(Request::new(())).await.map_err(|error| error.to_string())?;
        Ok(request.headers().get(AUTHORIZATION).unwrap().to_str().unwrap().to_owned())
    }

    fn runs(marks: &std::path::Path) -> usize {
        std::fs::read_to_string(marks).unwrap().lines().count()
    }

    #[tokio::test]
    async fn a_program_runs_once_until_its_token_expires() {
        let directory = tempfile::tempdir().unwrap();
        let marks = directory.path().join("marks");
        let next = format!("n=$(wc -l < {}); {}", marks.display(), printing(&token("t'$n'")));
        let credentials = shell(&next, &marks);
        assert!(credentials.begin().await.unwrap().is_none());
        for _ in 0..3 {
            assert_eq!(sent(&credentials).await.unwrap(), "Bearer t1");
        }
        tokio::task::yield_now().await;
        drop(credentials.turn.lock().await); // after any other run
        assert_eq!(runs(&marks), 1);
        credentials.clock.advance(Duration::from_secs(570));
        assert_eq!(sent(&credentials).await.unwrap(), "Bearer t1", "it is good for 30 s, and nobody waits");
        credentials.clone().fetch(Instant::now()).await.unwrap(); // in turn after that one
        credentials.clock.advance(Duration::from_secs(60));
        let (one, two) = tokio::join!(sent(&credentials), sent(&credentials));
        assert_eq!(one, two, "they share a run");
        assert_ne!(one.unwrap(), "Bearer t1");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_ended_and_whoever_waits_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let marks = directory.path().join("marks");
        let credentials = Credentials { bound: Duration::from_millis(200), ..shell("exec sleep 600", &marks) };
        credentials.now.lock().expires = Some(credentials.clock.now());
        let told = Err("users.ann.exec: sh gave no answer within 0 s".to_owned());
        let all = tokio::join!(sent(&credentials), sent(&credentials), sent(&credentials));
        assert_eq!(all, (told.clone(), told.clone(), told));
        assert_eq!(runs(&marks), 1, "they wait for one run");
    }

    #[tokio::test]
    async fn a_program_without_credentials_is_named_with_its_field() {
        let marks = std::path::Path::new("/dev/null");
        let certificate = "\"clientCertificateData\": \"c\"";
        for (script, expected) in [
            (printing(""), "printed neither a token nor a client certificate"),
            (printing("\"token\": \"\""), "printed neither a token nor a client certificate"),
            (printing(certificate), "printed a client certificate or its key, and not both"),
            (printing("\"token\": \"s3cr3t\\u0007\""), "printed a token with a character that no header may have"),
            (printing("\"token\": \"a\", \"expirationTimestamp\": \"soon\""), "printed an expirationTimestamp that is"),
            ("echo '{}'".to_owned(), "printed an ExecCredential without a status"),
            ("echo s3cr3t".to_owned(), "printed no ExecCredential"),
            ("echo s3cr3t; exit 3".to_owned(), "failed (exit status: 3)"),
        ] {
            let told = shell(&script, marks).begin().await.err().unwrap().to_string();
            assert!(told.starts_with(&format!("users.ann.exec: sh {expected}")), "{script}: {told}");
        }
        let both = shell(&printing(&format!("{certificate}, \"clientKeyData\": \"k\"")), marks);
        let identity = both.begin().await.unwrap().unwrap();
        assert_eq!((&*identity.certificate, &*identity.key), ("c", "k"));
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_named_with_its_hint() {
        for (install_hint, expected) in [(Some("Get it at x.".to_owned()), "; Get it at x."), (None, "")] {
            let exec = ExecConfig { command: Some("no-such".to_owned()), install_hint, ..ExecConfig::default() };
            let credentials = Credentials::new(Source::Program(Box::new(exec)), "users.ann");
            let told = credentials.begin().await.err().unwrap().to_string();
            assert_eq!(told, format!("users.ann.exec: no-such does not exist{expected}"));
        }
    }

    #[tokio::test]
    async fn a_token_file_is_trimmed_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, " one\r\n").unwrap();
        let credentials = Credentials::new(Source::File(file.clone()), "users.ann");
        credentials.begin().await.unwrap();
        assert_eq!(sent(&credentials).await.unwrap(), "Bearer one");
        std::fs::write(&file, "two\n").unwrap();
        credentials.clock.advance(Duration::from_secs(180));
        assert_eq!(sent(&credentials).await.unwrap(), "Bearer two");
        std::fs::remove_file(&file).unwrap();
        credentials.clock.advance(Duration::from_secs(180));
        assert_eq!(sent(&credentials).await.unwrap(), "Bearer two", "the last one stays");
    }
}
