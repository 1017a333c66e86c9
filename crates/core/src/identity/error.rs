//! Why a text is not a name, a template or an identity.

/// Why a text is not a name, a template or an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A cluster or addon name that is not an RFC 1123 label.
    #[error("{0:?} is not a {1} name: use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit")]
    NotALabel(String, &'static str),
    /// An agent name with a character outside the allowed set.
    #[error(
        "{0:?} is not an agent name: use 1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.', \
         starting and ending with a letter or digit"
    )]
    NotAnAgent(String),
    /// A signer name without a domain, or one that something other than an AddOnSigner serves.
    #[error("it must be <your domain>/<name> in lower case, and the domain must not be Kubernetes' or addon-signer.io")]
    NotASignerName,
    /// A template that is empty or too long.
    #[error("the template {0:?} must have 1 to 512 printable ASCII characters")]
    TemplateLength(String),
    /// A brace that is not part of one of the three placeholders.
    #[error("the template {0:?} has braces that are not {{cluster}}, {{addon}} or {{agent}}")]
    UnknownPlaceholder(String),
    /// Two placeholders that are not clearly separated.
    #[error("the template {0:?} must keep its placeholders apart by a character no name can hold, such as ':'")]
    Ambiguous(String),
    /// The user template does not map back to exactly one identity.
    #[error("the user template {0:?} must name {{cluster}} and {{addon}} exactly once and {{agent}} at most once")]
    UserIncomplete(String),
    /// A group or DNS template that depends on the agent, which the requester chooses.
    #[error("the template {0:?} must not name {{agent}}, because the requester chooses the agent's name")]
    AgentNotAllowed(String),
    /// A template with which a signer could name an identity of another signer, or of Kubernetes.
    #[error("the template {0:?} must be one of OCM's convention, or begin with {1:?}, so that it is the signer's own")]
    NotOfSigner(String, String),
    /// A common name that does not follow the convention's form.
    #[error("{0:?} does not follow the convention {1:?}")]
    NotConvention(String, String),
}
