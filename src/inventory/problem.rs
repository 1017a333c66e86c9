//! Errors in Kubernetes' form: a `Status` object.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

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
