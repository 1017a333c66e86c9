//! Answers inventory queries: takes the parameters of an HTTP query, and returns the values to send as JSON. The
//! command line uses it too.

use super::LedgerError;
use super::reader::Reader;
use super::view::{Certificate, Details, Page, PageMetadata};
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::query::{Query, QueryError};
use addon_signer_core::timestamp::Timestamp;

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The query is not valid: HTTP 400.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// No certificate has this name: HTTP 404.
    #[error("the ledger has no certificate or CSR named {0:?}; it may be in an archive")]
    NotFound(String),
    /// The ledger is not available: HTTP 503.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// `GET certificates?…`: one page, in the order of its filter.
///
/// # Errors
/// [`AnswerError::Query`] and [`AnswerError::Ledger`].
pub async fn certificates(
    reader: &Reader,
    parameters: &[(String, String)],
    now: Timestamp,
) -> Result<Page<Certificate>, AnswerError> {
    page(reader, &Query::from_parameters(parameters)?, now).await
}

/// One page of a query that has already been parsed.
///
/// # Errors
/// [`AnswerError::Ledger`].
pub async fn page(reader: &Reader, query: &Query, now: Timestamp) -> Result<Page<Certificate>, AnswerError> {
    let items = reader.list(query, now).await?;
    // A page that is not full is the last one.
    let is_full = u32::try_from(items.len()).is_ok_and(|items| items >= query.limit);
    let next = items.last().filter(|_| is_full).map(|last| last.cursor(query).to_string());
    Ok(Page { metadata: PageMetadata { next }, items })
}

/// `GET certificates/NAME`: everything about the certificate with this serial number, or of the CSR with this UID or
/// name.
///
/// # Errors
/// [`AnswerError::NotFound`] and [`AnswerError::Ledger`].
pub async fn certificate(reader: &Reader, name: &str) -> Result<Details, AnswerError> {
    reader.show(name).await?.ok_or_else(|| AnswerError::NotFound(name.to_owned()))
}

/// `GET entries?limit=…&continue=…`: one page, oldest first.
///
/// # Errors
/// [`AnswerError::Query`] and [`AnswerError::Ledger`].
pub async fn entries(reader: &Reader, parameters: &[(String, String)]) -> Result<Page<Entry>, AnswerError> {
    let Query { filter, after, limit } = Query::from_parameters(parameters)?;
    if filter != Default::default() {
        return Err(QueryError::NoFilter.into());
    }
    let (items, has_more) = reader.entries(after.map_or(0, |after| after.seq), limit).await?;
    let next = items.last().filter(|_| has_more).map(|last| last.seq.to_string());
    Ok(Page { metadata: PageMetadata { next }, items })
}
