//! The refusals of the API: a variant for each `reason` of a Kubernetes `Status`.

use serde_json::{Value, json};

use super::resources::Resource;

/// One broken rule of a 422 response (`status.details.causes[]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    /// The dotted path of the field, as `field.Path` of apimachinery prints it.
    pub(super) field: String,
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub(super) reason: &'static str,
    /// What is wrong. It begins with the text of the reason.
    pub(super) message: String,
}

impl Cause {
    pub(super) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, "FieldValueRequired", "Required value", detail)
    }

    /// `value` is the sent value, which the message quotes.
    pub(super) fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: &str) -> Self {
        let value: Value = value.into();
        let detail = format!("{value}: {detail}");
        Self::new(field, "FieldValueInvalid", "Invalid value", &detail)
    }

    /// The message does not quote an object or a list.
    pub(super) fn invalid_whole(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, "FieldValueInvalid", "Invalid value", detail)
    }

    pub(super) fn unsupported(field: impl Into<String>, value: &str, supported: &[impl AsRef<str>]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{:?}", value.as_ref())).collect();
        let detail = format!("{value:?}: supported values: {}", supported.join(", "));
        Self::new(field, "FieldValueNotSupported", "Unsupported value", &detail)
    }

    pub(super) fn type_invalid(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self { reason: "FieldValueTypeInvalid", ..Self::invalid(field, value, detail) }
    }

    pub(super) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        let value: Value = value.into();
        Self::new(field, "FieldValueDuplicate", "Duplicate value", &value.to_string())
    }

    pub(super) fn too_many(field: impl Into<String>, count: usize, most: &Value) -> Self {
        Self::new(field, "FieldValueTooMany", "Too many", &format!("{count}: must have at most {most} items"))
    }

    pub(super) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, "FieldValueForbidden", "Forbidden", detail)
    }

    pub(super) fn too_long(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, "FieldValueTooLong", "Too long", detail)
    }

    /// Whether kube-apiserver checks no CEL rules of an object that has this fault.
    pub(super) fn blocks_rules(&self) -> bool {
        let blocking = ["NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"];
        self.reason.strip_prefix("FieldValue").is_some_and(|reason| blocking.contains(&reason))
    }

    fn new(field: impl Into<String>, reason: &'static str, words: &'static str, detail: &str) -> Self {
        let message = if detail.is_empty() { words.to_owned() } else { format!("{words}: {detail}") };
        Self { field: field.into(), reason, message }
    }
}

/// A refused request, with the texts of kube-apiserver.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    #[error("Unauthorized")]
    Unauthorized,
    #[error("{0}")]
    Forbidden(String),
    #[error("{} \"{name}\" not found", resource.qualified())]
    NotFound { resource: &'static Resource, name: String },
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("{} \"{name}\" already exists", resource.qualified())]
    AlreadyExists { resource: &'static Resource, name: String },
    #[error("Operation cannot be fulfilled on {} \"{name}\": {cause}", resource.qualified())]
    Conflict { resource: &'static Resource, name: String, cause: String },
    #[error("too old resource version: {requested} ({oldest})")]
    Expired { requested: u64, oldest: u64 },
    #[error("{} \"{name}\" is invalid: {}", resource.qualified_kind(), list(causes))]
    Invalid { resource: &'static Resource, name: String, causes: Vec<Cause> },
    #[error(
        "{} {name:?} is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: \
         {message}",
        resource.qualified()
    )]
    DeniedByPolicy { resource: &'static Resource, name: String, policy: &'static str, message: String },
    /// A well-formed patch that cannot be applied to this object.
    #[error("the server rejected our request due to an error in our request")]
    Inapplicable,
    /// A deletion whose precondition does not hold.
    #[error("Operation cannot be fulfilled on {} \"{name}\": {cause}", resource.qualified_kind())]
    Precondition { resource: &'static Resource, name: String, cause: String },
    #[error("Request entity too large: limit is {0}")]
    TooLarge(usize),
    #[error("the body of the request was in an unknown format - accepted media types include: {accepted}")]
    UnsupportedMediaType { accepted: &'static str },
    #[error("{0}")]
    Internal(String),
}

fn list(causes: &[Cause]) -> String {
    let lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match lines.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", lines.join(", ")),
    }
}

impl ApiError {
    /// The refusal of a stale `resourceVersion`, with the text that clients look for.
    pub(super) fn stale(resource: &'static Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(super) fn conflict(resource: &'static Resource, name: &str, cause: impl Into<String>) -> Self {
        Self::Conflict { resource, name: name.to_owned(), cause: cause.into() }
    }

    pub(super) fn not_found(resource: &'static Resource, name: &str) -> Self {
        Self::NotFound { resource, name: name.to_owned() }
    }

    /// Fails with 422 if any rule was broken.
    pub(super) fn unless_valid(resource: &'static Resource, name: &str, causes: Vec<Cause>) -> Result<(), Self> {
        if causes.is_empty() {
            return Ok(());
        }
        Err(Self::Invalid { resource, name: name.to_owned(), causes })
    }

    fn code_and_reason(&self) -> (u16, &'static str) {
        match self {
            Self::BadRequest(_) => (400, "BadRequest"),
            Self::Unauthorized => (401, "Unauthorized"),
            Self::Forbidden(_) => (403, "Forbidden"),
            Self::NotFound { .. } | Self::NoSuchPath => (404, "NotFound"),
            Self::MethodNotAllowed => (405, "MethodNotAllowed"),
            Self::AlreadyExists { .. } => (409, "AlreadyExists"),
            Self::Conflict { .. } | Self::Precondition { .. } => (409, "Conflict"),
            Self::Expired { .. } => (410, "Expired"),
            Self::TooLarge(_) => (413, "RequestEntityTooLarge"),
            Self::UnsupportedMediaType { .. } => (415, "UnsupportedMediaType"),
            Self::Invalid { .. } | Self::DeniedByPolicy { .. } | Self::Inapplicable => (422, "Invalid"),
            Self::Internal(_) => (500, "InternalError"),
        }
    }

    /// The HTTP status code.
    pub(super) fn code(&self) -> u16 {
        self.code_and_reason().0
    }

    /// The `v1.Status` object of the response.
    pub(super) fn status(&self) -> Value {
        let (code, reason) = self.code_and_reason();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": reason, "code": code,
        });
        if let (Some(details), Some(map)) = (self.details(), status.as_object_mut()) {
            map.insert("details".into(), details);
        }
        status
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::NotFound { resource, name }
            | Self::AlreadyExists { resource, name }
            | Self::Conflict { resource, name, .. } => Some(details(resource.group, resource.plural, name, &[])),
            Self::Precondition { resource, name, .. } => Some(details(resource.group, resource.kind, name, &[])),
            Self::Invalid { resource, name, causes } => Some(details(resource.group, resource.kind, name, causes)),
            Self::DeniedByPolicy { resource, name, .. } => Some(details(resource.group, resource.plural, name, &[])),
            Self::BadRequest(_)
            | Self::Unauthorized
            | Self::Forbidden(_)
            | Self::NoSuchPath
            | Self::MethodNotAllowed
            | Self::Expired { .. }
            | Self::Inapplicable
            | Self::TooLarge(_)
            | Self::UnsupportedMediaType { .. }
            | Self::Internal(_) => None,
        }
    }
}

/// `status.details` without empty fields.
fn details(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Value {
    let causes: Vec<Value> =
        causes.iter().map(|c| json!({ "reason": c.reason, "message": c.message, "field": c.field })).collect();
    let mut details = json!({ "kind": kind });
    if let Some(map) = details.as_object_mut() {
        for (field, value) in [("group", group), ("name", name)] {
            if !value.is_empty() {
                map.insert(field.into(), value.into());
            }
        }
        if !causes.is_empty() {
            map.insert("causes".into(), causes.into());
        }
    }
    details
}
