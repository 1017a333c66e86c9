//! A client of Vault: it logs in by the token of a ServiceAccount, and lets a PKI secrets engine sign authorities.
//! Source: Vault's HTTP API, "Kubernetes auth method" and "PKI secrets engine".

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use addon_signer_core::encoding::pem;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::backoff::Pauses;
use addon_signer_platform::connection::{connect, never_connected};
use addon_signer_platform::errors::explain;

/// The longest time of one call. A line does nothing else meanwhile. Shorter than the client's own bounds.
const ANSWER: Duration = Duration::from_secs(4);
/// Larger than any chain of certificates.
const LARGEST_ANSWER: usize = 256 * 1024;
/// How much of an error's text people are shown.
const LONGEST_ERROR: usize = 300;
/// How long nobody asks after a call of which nobody knows whether Vault has signed: Vault would sign again and again.
const UNCERTAIN: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3_600)];
/// The header with the token of a session.
const TOKEN: &str = "x-vault-token";

/// How the hub reaches Vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultOptions {
    /// `https://HOST[:PORT]`.
    pub address: Uri,
    /// The file with the CA certificates, in PEM, that verify Vault's certificate.
    pub ca: PathBuf,
    /// The role of the Kubernetes auth method.
    pub role: String,
    /// Where that auth method is mounted.
    pub auth: String,
    /// The file with the token of the hub's ServiceAccount.
    pub token: PathBuf,
}

/// A Vault, with the session that the hub has there.
#[derive(Debug)]
pub struct Vault {
    options: VaultOptions,
    session: Mutex<Option<Session>>,
    /// The pauses of each engine after calls of which nobody knows what they did.
    pauses: Mutex<BTreeMap<String, Pause>>,
}

/// The pauses of an engine.
#[derive(Debug)]
struct Pause {
    pauses: Pauses,
    until: Instant,
    /// The same for people. The clock may be moved meanwhile.
    said: Timestamp,
}

/// The token of a session. Whoever has it may do what the hub may do there.
#[derive(Clone)]
struct Session(Zeroizing<String>);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session(private)")
    }
}

/// An answer that is no success: what Vault says, without a period.
enum Failed {
    /// 403: the session has ended, or has no right to the call.
    Forbidden(String),
    /// There was no answer, or one that cannot be read: Vault may have done it.
    Uncertain(String),
    Other(String),
}

impl Failed {
    fn said(self) -> String {
        match self {
            Self::Forbidden(said) | Self::Uncertain(said) | Self::Other(said) => said,
        }
    }
}

impl From<String> for Failed {
    fn from(said: String) -> Self {
        Self::Other(said)
    }
}

#[derive(Deserialize)]
struct Login {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    client_token: String,
}

#[derive(Deserialize)]
struct Signed {
    data: Chain,
}

/// Certificates in PEM. The chain begins with the new certificate, and is missing or empty if the engine has none.
#[derive(Deserialize)]
struct Chain {
    certificate: String,
    #[serde(default)]
    ca_chain: Vec<String>,
    issuing_ca: String,
}

impl Vault {
    /// A Vault in which the hub has no session yet.
    #[must_use]
    pub fn new(options: VaultOptions) -> Self {
        Self { options, session: Mutex::new(None), pauses: Mutex::default() }
    }

    /// The URL of the PKI secrets engine at this path.
    pub(super) fn engine(&self, path: &str) -> String {
        format!("{}v1/{path}", self.options.address)
    }

    /// Lets the engine at `path` sign this request as a CA below which there is no other, and returns the chain from
    /// the new certificate up to the engine's CA, in PEM.
    ///
    /// # Errors
    /// Why there is none: a part of a sentence.
    pub(super) async fn sign(
        &self,
        path: &str,
        request: &str,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<String, String> {
        let client = self.client().await?;
        let wish = json!({
            "csr": request,
            "use_csr_values": true,
            "max_path_length": 0,
            "ttl": format!("{}s", lifetime.as_secs()),
        });
        if let Some(Pause { said, .. }) = self.pauses.lock().get(path).filter(|pause| pause.until > Instant::now()) {
            return Err(format!("it is not asked before {said}, because it did not answer the last time"));
        }
        let sign = format!("/v1/{path}/root/sign-intermediate");
        let signed = match self.call_in_session(&client, &sign, &wish).await {
            Ok(answer) => chain(&answer).map_err(Failed::Uncertain),
            Err(failed) => Err(failed),
        };
        match &signed {
            Ok(_) => drop(self.pauses.lock().remove(path)),
            Err(Failed::Uncertain(_)) => self.pause(path, now),
            Err(_) => {}
        }
        signed.map_err(Failed::said)
    }

    fn pause(&self, path: &str, now: Timestamp) {
        let mut all = self.pauses.lock();
        let [shortest, longest] = UNCERTAIN;
        let mut pauses = all.remove(path).map_or_else(|| Pauses::new(shortest, longest), |pause| pause.pauses);
        let pause = pauses.after_failure();
        all.insert(path.to_owned(), Pause { pauses, until: Instant::now() + pause, said: now.plus(pause) });
    }

    /// Writes with the token of a session, and with that of a new one if the session has ended.
    async fn call_in_session(&self, client: &Client, path: &str, body: &Value) -> Result<Bytes, Failed> {
        let session = self.session.lock().clone();
        if let Some(Session(token)) = session {
            match call(client, path, Some(&token), body).await {
                Err(Failed::Forbidden(_)) => {} // perhaps it has only expired
                answer => return answer,
            }
        }
        let Session(token) = Session(self.login(client).await?);
        *self.session.lock() = Some(Session(token.clone()));
        call(client, path, Some(&token), body).await
    }

    /// A new session.
    async fn login(&self, client: &Client) -> Result<Zeroizing<String>, String> {
        let VaultOptions { role, auth, token, .. } = &self.options;
        let jwt = Zeroizing::new(String::from_utf8_lossy(&read(token).await?).trim().to_owned());
        let login = json!({ "role": role, "jwt": *jwt });
        let answer = call(client, &format!("/v1/auth/{auth}/login"), None, &login).await;
        let answer = answer.map_err(|failed| format!("the login as the role {role} failed: {}", failed.said()))?;
        let login: Login = serde_json::from_slice(&answer).map_err(|_| "its answer to a login has no token")?;
        Ok(Zeroizing::new(login.auth.client_token))
    }

    /// Files are read anew each time, because they are replaced while the hub runs.
    async fn client(&self) -> Result<Client, String> {
        let ca = &self.options.ca;
        let roots = pem::certificates(&read(ca).await?).map_err(|error| format!("{}: {error}", ca.display()))?;
        let mut config = Config::new(self.options.address.clone());
        config.root_cert = Some(roots.into_iter().map(|root| root.to_vec()).collect());
        connect(config).map_err(|error| explain(&error))
    }
}

async fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let content = tokio::fs::read(file).await.map(Zeroizing::new);
    content.map_err(|error| format!("{} cannot be read: {error}", file.display()))
}

/// Writes to a path of Vault.
async fn call(client: &Client, path: &str, token: Option<&str>, body: &Value) -> Result<Bytes, Failed> {
    let secret = body.get("jwt").and_then(Value::as_str).or(token).unwrap_or_default();
    let body = Body::from(body.to_string().into_bytes());
    let mut request = Request::builder().method(Method::POST).uri(path).header(CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        let mut token = HeaderValue::from_str(token).map_err(|_| "the token that it gave is no header".to_owned())?;
        token.set_sensitive(true);
        request = request.header(TOKEN, token);
    }
    let request = request.body(body).map_err(|error| error.to_string())?;
    let answered = async {
        let (head, body) = client.send(request).await.map_err(|error| unanswered(&error))?.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER).collect().await;
        Ok::<_, Failed>((head.status, body.map_err(|error| Failed::Uncertain(explain(&*error)))?.to_bytes()))
    };
    let late = |_| Failed::Uncertain(format!("no answer within {} seconds", ANSWER.as_secs()));
    let (status, body) = timeout(ANSWER, answered).await.map_err(late)??;
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::FORBIDDEN => Err(Failed::Forbidden(said(status, &body, secret))),
        status => Err(Failed::Other(said(status, &body, secret))),
    }
}

/// Why there was no answer. Without a connection Vault has done nothing.
fn unanswered(error: &kube::Error) -> Failed {
    let said = explain(error);
    if never_connected(error) { Failed::Other(said) } else { Failed::Uncertain(said) }
}

/// What Vault says of an error, on one line; nothing of it if that contains what was secret in the request.
fn said(status: StatusCode, body: &[u8], secret: &str) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<String>,
    }
    let errors = serde_json::from_slice(body).map_or_else(|_| Vec::new(), |Errors { errors }| errors);
    let text = errors.join("; ");
    let is_echo = !secret.is_empty() && text.contains(secret);
    let words = text.split_whitespace().filter(|_| !is_echo).collect::<Vec<_>>().join(" ");
    let shown: String = words.chars().filter(|it| !it.is_control()).take(LONGEST_ERROR).collect();
    if shown.is_empty() { format!("it answered {status}") } else { format!("{shown} ({})", status.as_u16()) }
}

/// The chain in an answer.
fn chain(answer: &[u8]) -> Result<String, String> {
    let signed: Signed = serde_json::from_slice(answer).map_err(|_| "its answer has no certificate")?;
    let Chain { certificate, ca_chain, issuing_ca } = signed.data;
    let above = if ca_chain.is_empty() { vec![issuing_ca] } else { ca_chain };
    let above = above.iter().filter(|above| above.trim() != certificate.trim());
    Ok(above.fold(certificate.trim().to_owned(), |chain, above| format!("{chain}\n{}", above.trim())) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_each_certificate_once() {
        let read = |data: Value| chain(json!({ "data": data }).to_string().as_bytes());
        let engine = json!({ "certificate": "A\n", "ca_chain": ["A", "B", "C\n"], "issuing_ca": "B" });
        assert_eq!(read(engine).unwrap(), "A\nB\nC\n");
        assert_eq!(read(json!({ "certificate": "A", "issuing_ca": "B" })).unwrap(), "A\nB\n");
        assert_eq!(read(json!({ "issuing_ca": "B" })).unwrap_err(), "its answer has no certificate");
    }

    #[test]
    fn errors_are_one_line_of_bounded_length() {
        let errors =
            |text: &str| said(StatusCode::BAD_REQUEST, json!({ "errors": [text] }).to_string().as_bytes(), "hvs.token");
        assert_eq!(errors("1 error\n\t* permission \u{7}denied"), "1 error * permission denied (400)");
        assert_eq!(errors(&"é".repeat(1_000)).chars().count(), LONGEST_ERROR + " (400)".len());
        assert_eq!(said(StatusCode::BAD_GATEWAY, b"<html>", ""), "it answered 502 Bad Gateway");
        assert_eq!(errors("X-Vault-Token: hvs.token"), "it answered 400 Bad Request");
    }
}
