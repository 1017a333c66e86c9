//! Explains an API server's refusal to the person who runs the agent.

use addon_signer_platform::errors::explain;

/// Why a request to an API server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// RBAC does not grant the right. With the server's message.
    #[error("{} does not let this kubeconfig {} {}; grant that right ({})", .0.server, .0.verb, .0.resource, .1)]
    Forbidden(Attempt, String),
    /// The server does not accept the credentials at all.
    #[error("{0} does not accept the credentials of this kubeconfig; they may have expired or belong elsewhere")]
    Unauthorized(&'static str),
    /// The server refused the request for another reason. With its message.
    #[error("{} refused to {} {}: {}", .0.server, .0.verb, .0.resource, .1)]
    Refused(Attempt, String),
    /// The server did not answer. With the error and its causes.
    #[error("{} gave no answer to a request to {} {}: {}", .0.server, .0.verb, .0.resource, .1)]
    NoAnswer(Attempt, String),
}

/// A request to an API server, as its error describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub(crate) server: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

impl Attempt {
    pub(crate) fn failed(self, error: &kube::Error) -> ApiError {
        let kube::Error::Api(status) = error else {
            return self.no_answer(explain(error));
        };
        let message = status.message.clone();
        match status.code {
            401 => ApiError::Unauthorized(self.server),
            403 => ApiError::Forbidden(self, message),
            _ => ApiError::Refused(self, message),
        }
    }

    pub(crate) fn no_answer(self, cause: String) -> ApiError {
        ApiError::NoAnswer(self, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn a_missing_right_is_named() {
        let status = Status { code: 403, message: "User \"x\" cannot create".to_owned(), ..Status::default() };
        let attempt = Attempt { server: "the hub", verb: "create", resource: "certificatesigningrequests" };
        assert_eq!(
            attempt.failed(&kube::Error::Api(Box::new(status))).to_string(),
            "the hub does not let this kubeconfig create certificatesigningrequests; \
             grant that right (User \"x\" cannot create)"
        );
    }
}
