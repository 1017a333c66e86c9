//! Asks the inventory that the hub serves through the Kubernetes API. This needs only the caller's kubeconfig.

use kube::Client;
use kube::core::Status;
use serde::de::DeserializeOwned;

use crate::inventory::{API_SERVICE, BASE, GROUP};

/// Why the inventory did not answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// Kubernetes' RBAC does not allow it.
    #[error(
        "your account may not {verb} {resource} of {GROUP}: ask for the ClusterRole addon-signer-ledger-reader, which \
         the chart has with inventory.enabled"
    )]
    Forbidden {
        /// `get` or `list`.
        verb: &'static str,
        /// `certificates` or `entries`.
        resource: String,
    },
    /// The API server does not know the caller.
    #[error("the API server does not know who you are: the credentials of the kubeconfig are missing or expired")]
    Unauthorized,
    /// The hub answered that no object has this name.
    #[error("{0}")]
    NotFound(String),
    /// The API server does not know the API, or cannot reach the hub, or the hub cannot answer at present.
    #[error("the hub does not serve its inventory: {0}")]
    NotServed(String),
    /// Anything else.
    #[error("the inventory cannot be read: {}", addon_signer_platform::errors::explain(.0))]
    Api(#[source] kube::Error),
    /// The path of the request is not valid.
    #[error("the question cannot be sent: {0}")]
    Question(#[from] axum::http::Error),
}

/// Asks `GET /apis/ledger.addon-signer.io/v1alpha1/<question>`: a resource, optionally a name, and a percent-encoded
/// query (`certificates?limit=500`).
///
/// # Errors
/// [`QuestionError`], one sentence each.
pub async fn ask<T: DeserializeOwned>(client: &Client, question: &str) -> Result<T, QuestionError> {
    let request = axum::http::Request::get(format!("{BASE}/{question}")).body(Vec::new())?;
    match client.request(request).await {
        Ok(answer) => Ok(answer),
        // The API server asks about rights before it notices that it does not serve this API.
        Err(kube::Error::Api(status)) if status.code == 403 && !is_served(client).await? => Err(not_installed()),
        Err(kube::Error::Api(status)) => Err(refused(question, *status)),
        Err(other) => Err(QuestionError::Api(other)),
    }
}

/// Whether the API server knows this API; any account may ask that.
async fn is_served(client: &Client) -> Result<bool, QuestionError> {
    let request = axum::http::Request::get(BASE).body(Vec::new())?;
    let answer = client.request::<serde_json::Value>(request).await;
    Ok(!matches!(answer, Err(kube::Error::Api(status)) if status.code == 404))
}

fn not_installed() -> QuestionError {
    QuestionError::NotServed(format!(
        "the API server has no APIService {API_SERVICE}; install the chart with inventory.enabled: true, or, with \
         the right to exec into the hub's pod, ask there: `kubectl exec -n addon-signer deployment/addon-signer -- \
         /addon-signer certs list`"
    ))
}

/// The reason that kube gives to a response that is not a Status.
const NO_STATUS: &str = "Failed to parse error data";

/// The hub and the API server respond with a Status, but the API server's proxy, and the API server on unknown paths,
/// with a line of text.
fn refused(question: &str, status: Status) -> QuestionError {
    let path = question.split('?').next().unwrap_or_default();
    let (resource, name) = path.split_once('/').map_or((path, None), |(resource, name)| (resource, Some(name)));
    let is_status = status.reason != NO_STATUS;
    match status.code {
        401 => QuestionError::Unauthorized,
        403 => {
            let verb = if name.is_some() { "get" } else { "list" };
            QuestionError::Forbidden { verb, resource: resource.to_owned() }
        }
        // A list is never missing. Only an API server without this API responds so.
        404 if is_status && name.is_some() => QuestionError::NotFound(status.message),
        404 => not_installed(),
        503 if is_status => QuestionError::NotServed(status.message),
        503 => QuestionError::NotServed(format!(
            "the API server cannot reach it; `kubectl get apiservice {API_SERVICE}` shows why"
        )),
        _ => QuestionError::Api(kube::Error::Api(status.boxed())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(question: &str, code: u16, reason: &str) -> String {
        refused(question, Status::failure("as the server says", reason).with_code(code)).to_string()
    }

    #[test]
    fn each_refusal_is_one_sentence_with_what_to_do() {
        assert_eq!(
            words("certificates?limit=5", 403, "Forbidden"),
            "your account may not list certificates of ledger.addon-signer.io: ask for the ClusterRole \
             addon-signer-ledger-reader, which the chart has with inventory.enabled"
        );
        assert!(words("certificates/0a", 403, "Forbidden").starts_with("your account may not get certificates"));
        assert_eq!(words("certificates/0a", 404, "NotFound"), "as the server says");
        for reason in [NO_STATUS, "NotFound"] {
            assert!(words("certificates", 404, reason).contains("has no APIService v1alpha1.ledger.addon-signer.io"));
        }
        assert!(words("entries", 503, NO_STATUS).contains("kubectl get apiservice"));
        assert_eq!(
            words("entries", 503, "ServiceUnavailable"),
            "the hub does not serve its inventory: as the server says"
        );
        assert!(words("entries", 401, "Unauthorized").contains("credentials"));
        assert_eq!(words("entries", 400, "BadRequest"), "the inventory cannot be read: as the server says");
    }
}
