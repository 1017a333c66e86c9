//! Checks what the ledger recorded during the demonstration, as an auditor would.

use anyhow::ensure;

use addon_signer_core::journal::CertificateState;
use addon_signer_core::query::{Filter, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, verify};
use addon_signer_ledger::{Location, Reader};

/// The longest the hub takes to note a publication.
const NOTED: std::time::Duration = std::time::Duration::from_secs(2);

/// Checks the whole chain and the index, and that every certificate was published.
pub(super) async fn check(location: &Location) -> anyhow::Result<String> {
    tokio::time::sleep(NOTED).await;
    let check = Check { location: location.clone(), checkpoint: None, archives: Vec::new() };
    let report = verify(check, |_| {}).await?;
    let reader = Reader::open(location.clone()).await?;
    let filter = Filter { state: Some(StateFilter::Recorded(CertificateState::Published)), ..Filter::default() };
    let published = reader.list(&Query { filter, ..Query::default() }, Timestamp::from_unix(0)).await?.len();
    ensure!(
        u64::try_from(published)? == report.certificates,
        "{} certificates were signed, but {published} were published",
        report.certificates
    );
    Ok(format!(
        "{} entries in one chain, {published} certificates, each recorded before it was given out",
        report.tip.seq
    ))
}
