//! Closes unfinished rows of the ledger: a hub that was killed left them, or their CSRs were deleted.
//!
//! The signer continues with a CSR that still waits for its certificate. All other rows are closed according to the
//! CSR's state on the API server. A hub cannot close them when it stops, because it may be killed at any moment.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use crate::HubLinks;
use crate::csrs::action::{has_condition, is_issued};
use crate::lease::Leads;
use addon_signer_api::request::BoundedCsr;
use addon_signer_core::ca::issuer::digest_of;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::encoding::pem;
use addon_signer_core::journal::record::Record;
use addon_signer_ledger::{Health, LedgerError, OpenRow, OpenState};
use addon_signer_platform::errors::explain;

/// How often the open rows are checked.
const PERIOD: Duration = Duration::from_secs(60);
/// The minimum age of a row before it is checked: the signer may still be working on younger ones.
const AGE: Duration = Duration::from_secs(60);

/// Why a recovery stopped early; the next one starts from the beginning.
#[derive(Debug, thiserror::Error)]
enum RecoveryError {
    #[error("the API server refused the request or did not answer: {}", explain(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// What to do with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RowVerdict {
    /// Nothing: the signer works on it.
    Leave,
    /// Note that its certificate was published: the first note was lost, for instance because the hub was killed.
    Published,
    /// End it without a publication, for this reason.
    End(&'static str),
    /// End it: the CSR has another certificate, with this serial number if it can be read.
    Other(Option<Serial>),
    /// Record this certificate of its CSR, which was signed as intended: the ledger was restored from a backup, or
    /// altered.
    TakeBack(Vec<u8>),
}

/// Closes open rows.
pub(crate) struct Recovery {
    requests: Api<BoundedCsr>,
    links: HubLinks,
    /// Rows that were reported because their serial number cannot be read; they stay open.
    unreadable: BTreeSet<u64>,
}

impl Recovery {
    pub(crate) fn new(links: &HubLinks) -> Self {
        Self { requests: Api::all(links.client.clone()), links: links.clone(), unreadable: BTreeSet::new() }
    }

    /// Checks the open rows repeatedly until the ledger's writer ends.
    pub(crate) async fn keep(mut self) {
        let mut health = self.links.ledger.health();
        while health.wait_for(|health| matches!(health, Health::Up { .. })).await.is_ok() {
            match self.look().await {
                Ok(()) => {}
                // The ledger's writer has logged the error.
                Err(RecoveryError::Ledger(error)) => debug!(%error, "The recovery of open rows waits for the ledger"),
                Err(error) => warn!(%error, "The recovery of the ledger's open rows failed; the hub retries"),
            }
            sleep(PERIOD).await;
        }
    }

    /// Checks all open rows once, while this hub leads.
    async fn look(&mut self) -> Result<(), RecoveryError> {
        let mut after = 0;
        let before = self.links.clock.now().minus(AGE);
        loop {
            let rows = self.links.ledger.open_rows(after, before).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.seq;
            for row in &rows {
                let Some(serial) = row.serial else {
                    if self.unreadable.insert(row.seq) {
                        let advice = "check the ledger with `certs verify`";
                        warn!(
                            row = row.seq,
                            csr = row.request,
                            advice,
                            "The serial number of an open row cannot be read"
                        );
                    }
                    continue;
                };
                let Ok(leads) = self.links.leading.leads() else { return Ok(()) };
                self.settle(&leads, row, serial).await?;
            }
        }
    }

    async fn settle(&self, leads: &Leads, row: &OpenRow, serial: Serial) -> Result<(), RecoveryError> {
        // Lock the CSR: from here on the signer does not touch it, and all that the signer wrote is older than the CSR
        // that is read next.
        let Some(_lock) = self.links.ledger.lock(row.uid.clone()) else { return Ok(()) };
        let request = self.requests.get_opt(&row.request).await?;
        if leads.still().is_err() {
            return Ok(());
        }
        let uid = row.uid.as_str();
        match judge(row, serial, request.as_ref().map(|request| &request.csr)) {
            RowVerdict::Leave => {}
            RowVerdict::Published => self.links.ledger.published(serial, self.links.clock.now()).await,
            RowVerdict::End(reason) => {
                info!(csr = row.request, uid, %serial, reason, "The recovery closed a row of the ledger");
                self.links.ledger.close(end(row, serial, reason)).await?;
            }
            RowVerdict::Other(found) => {
                let found = found.map_or("unreadable".to_owned(), |serial| serial.to_string());
                error!(
                    csr = row.request, uid, recorded = %serial, found,
                    "A CSR has a certificate that is not the recorded one"
                );
                self.links.ledger.close(end(row, serial, "The CSR has another certificate.")).await?;
            }
            RowVerdict::TakeBack(certificate) => {
                warn!(
                    csr = row.request,
                    uid,
                    %serial,
                    "The ledger got a certificate back from its CSR; the ledger was altered or restored"
                );
                let uid = row.uid.clone();
                self.links.ledger.close(Record::Signed { uid, serial, certificate }).await?;
                self.links.ledger.published(serial, self.links.clock.now()).await;
            }
        }
        Ok(())
    }
}

fn judge(row: &OpenRow, serial: Serial, request: Option<&CertificateSigningRequest>) -> RowVerdict {
    let request = request.filter(|request| request.metadata.uid.as_deref() == Some(row.uid.as_str()));
    let Some(request) = request else { return RowVerdict::End("The CSR was deleted.") };
    if is_issued(request) {
        let certificate = certificate_of(request);
        let found = certificate.as_deref().and_then(Serial::of);
        return match (row.state, certificate) {
            (OpenState::Signed, _) if found == Some(serial) => RowVerdict::Published,
            (OpenState::Intent, Some(der)) if digest_of(&der).as_ref() == Some(&row.tbs) => RowVerdict::TakeBack(der),
            _ => RowVerdict::Other(found),
        };
    }
    if ["Denied", "Failed"].iter().any(|kind| has_condition(request, kind)) {
        return RowVerdict::End("The CSR was refused.");
    }
    RowVerdict::Leave
}

/// The CSR's certificate, DER.
fn certificate_of(request: &CertificateSigningRequest) -> Option<Vec<u8>> {
    let pem = request.status.as_ref()?.certificate.as_ref()?;
    Some(pem::certificates(&pem.0).ok()?.first()?.to_vec())
}

fn end(row: &OpenRow, serial: Serial, reason: &str) -> Record {
    let uid = row.uid.clone();
    let reason = reason.to_owned();
    match row.state {
        OpenState::Intent => Record::Abandoned { uid, serial, reason },
        OpenState::Signed => Record::Unpublished { uid, serial, reason },
    }
}
