//! The query parameters of a request.

use std::collections::HashMap;

use axum::extract::Query as UrlQuery;
use hyper::Uri;

use super::status::ApiError;

/// Decoded query parameters. If a name occurs several times, the last value counts.
#[derive(Debug, Default)]
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        UrlQuery::try_from_uri(uri)
            .map(|UrlQuery(parameters)| Self(parameters))
            .map_err(|error| ApiError::BadRequest(error.to_string()))
    }

    /// The value of a parameter; empty if absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a parameter is `true` or `1`.
    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    /// The value of a parameter as a number; `None` if absent.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|_| ApiError::BadRequest(format!("{name}: {text:?} is not a number")))
            }
        }
    }
}
