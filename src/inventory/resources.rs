//! The resources: the answers of [`addon_signer_ledger::answer`] as objects and lists in Kubernetes' form, and errors
//! as its `Status`.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::{Value, json};

use super::{GROUP, VERSION};
use addon_signer_core::table;
use addon_signer_ledger::Reader;
use addon_signer_ledger::answer::{self, AnswerError};
use addon_signer_ledger::view::{Certificate, Page};
use addon_signer_platform::clock::Clock;

type Listing = Result<Json<Value>, InventoryProblem>;
type Parameters = Query<Vec<(String, String)>>;

#[derive(Clone)]
struct ResourceSource {
    reader: Reader,
    clock: Clock,
}

table! {
    /// The inventory's paths, below its base.
    pub PATHS of &str;
    /// List of certificates; verb `list`.
    CERTIFICATES = "/certificates";
    /// Everything about one certificate; verb `get`.
    CERTIFICATE = "/certificates/{name}";
    /// List of the ledger's entries, the oldest first; verb `list`.
    ENTRIES = "/entries";
}

/// `certificates`, `certificates/{name}` and `entries`, from the ledger.
pub(super) fn router(reader: Reader, clock: Clock) -> Router {
    Router::new()
        .route(CERTIFICATES, get(certificates))
        .route(CERTIFICATE, get(certificate))
        .route(ENTRIES, get(entries))
        .with_state(ResourceSource { reader, clock })
}

async fn certificates(State(source): State<ResourceSource>, Query(parameters): Parameters) -> Listing {
    let page = answer::certificates(&source.reader, &parameters, source.clock.now()).await?;
    list("Certificate", page, |certificate: &Certificate| certificate.serial.clone())
}

async fn certificate(State(source): State<ResourceSource>, Path(name): Path<String>) -> Listing {
    let details = answer::certificate(&source.reader, &name).await?;
    let name = details.certificate.serial.clone();
    object("Certificate", &name, &details).map(Json)
}

async fn entries(State(source): State<ResourceSource>, Query(parameters): Parameters) -> Listing {
    let page = answer::entries(&source.reader, &parameters).await?;
    list("Entry", page, |entry| entry.seq.to_string())
}

fn list<T: Serialize>(kind: &str, page: Page<T>, name: impl Fn(&T) -> String) -> Listing {
    let items = page.items.iter().map(|item| object(kind, &name(item), item)).collect::<Result<Vec<_>, _>>()?;
    let api_version = format!("{GROUP}/{VERSION}");
    let list =
        json!({ "kind": format!("{kind}List"), "apiVersion": api_version, "metadata": page.metadata, "items": items });
    Ok(Json(list))
}

/// The item as a Kubernetes object. The `kind` of an entry is renamed to `entryKind`, because Kubernetes needs the name
/// `kind`.
fn object(kind: &str, name: &str, item: &impl Serialize) -> Result<Value, InventoryProblem> {
    let failed = |_| InventoryProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written as JSON");
    let mut value = serde_json::to_value(item).map_err(failed)?;
    if let Some(members) = value.as_object_mut() {
        if let Some(own) = members.remove("kind") {
            members.insert("entryKind".to_owned(), own);
        }
        members.insert("kind".to_owned(), json!(kind));
        members.insert("apiVersion".to_owned(), json!(format!("{GROUP}/{VERSION}")));
        members.insert("metadata".to_owned(), json!({ "name": name }));
    }
    Ok(value)
}

impl From<AnswerError> for InventoryProblem {
    fn from(error: AnswerError) -> Self {
        let code = match error {
            AnswerError::Query(_) => StatusCode::BAD_REQUEST,
            AnswerError::NotFound(_) => StatusCode::NOT_FOUND,
            AnswerError::Ledger(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(code, error.to_string())
    }
}

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryProblem {
    code: StatusCode,
    message: String,
}

impl InventoryProblem {
    /// `message` is one sentence for the administrator who asked, without a final period.
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Kubernetes' word for the code (`apimachinery/pkg/apis/meta/v1/types.go`, `StatusReason`).
    fn reason(&self) -> &'static str {
        match self.code {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::GONE => "Expired",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            _ => "InternalError",
        }
    }
}

impl IntoResponse for InventoryProblem {
    fn into_response(self) -> Response {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason(), "code": self.code.as_u16(),
        });
        (self.code, Json(status)).into_response()
    }
}
