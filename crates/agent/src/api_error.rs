//! Explains an API server's refusal to the person who runs the agent.

use addon_signer_platform::errors::explain;

/// Why a request to an API server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// RBAC does not grant the right.
    #[error("{server} does not let this kubeconfig {verb} {resource}; grant that right ({message})")]
    Forbidden {
        /// Which API server.
        server: &'static str,
        /// The verb of the missing right.
        verb: &'static str,
        /// The resource of the missing right.
        resource: &'static str,
        /// The server's message.
        message: String,
    },
    /// The server does not accept the credentials at all.
    #[error("{0} does not accept the credentials of this kubeconfig; they may have expired or belong elsewhere")]
    Unauthorized(&'static str),
    /// The server refused the request for another reason.
    #[error("{server} refused to {verb} {resource}: {message}")]
    Refused {
        /// Which API server.
        server: &'static str,
        /// The verb of the request.
        verb: &'static str,
        /// The resource of the request.
        resource: &'static str,
        /// The server's message.
        message: String,
    },
    /// The server did not answer.
    #[error("{server} gave no answer to a request to {verb} {resource}: {cause}")]
    NoAnswer {
        /// Which API server.
        server: &'static str,
        /// The verb of the request.
        verb: &'static str,
        /// The resource of the request.
        resource: &'static str,
        /// The error with its causes.
        cause: String,
    },
}

/// A request to an API server, as its error will describe it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) server: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

impl Attempt {
    pub(crate) fn failed(self, error: &kube::Error) -> ApiError {
        let Self { server, verb, resource } = self;
        let kube::Error::Api(status) = error else {
            return self.no_answer(explain(error));
        };
        let message = status.message.clone();
        match status.code {
            401 => ApiError::Unauthorized(server),
            403 => ApiError::Forbidden { server, verb, resource, message },
            _ => ApiError::Refused { server, verb, resource, message },
        }
    }

    pub(crate) fn no_answer(self, cause: String) -> ApiError {
        let Self { server, verb, resource } = self;
        ApiError::NoAnswer { server, verb, resource, cause }
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
