//! Rows of the ledger that have not come to an end: a hub that was killed left them, or their requests are gone.
//!
//! A request that still waits for its certificate is the signer's. Of all others the row is closed by what the API
//! server says of the request.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client};
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use crate::hub::lease::{Leading, Leads};
use crate::hub::requests::plan::{has_condition, is_issued};
use crate::ledger::{Health, Ledger, LedgerError, OpenRow, OpenState};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::encoding::pem;
use addon_signer_core::journal::record::Record;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;

/// How often the open rows are looked at.
const PERIOD: Duration = Duration::from_secs(60);
/// Younger ones are being worked on.
const AGE: Duration = Duration::from_secs(60);

/// Why a look at the open rows was broken off; the next one begins anew.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error("the API server did not answer as needed: {}", explain(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// What a row has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RowVerdict {
    /// The signer takes it further.
    Leave,
    /// Its certificate was handed over, and the note of that was lost.
    Published,
    /// It comes to nothing, for this reason.
    End(&'static str),
    /// The request has a certificate that is not the row's: its serial number, if it can be read.
    Other(Option<Serial>),
    /// The request has the certificate, and the ledger does not: it was altered, or restored from a backup.
    Unrecorded,
}

/// Closes open rows.
pub(in crate::hub) struct Sweep {
    requests: Api<CertificateSigningRequest>,
    clock: Clock,
    ledger: Ledger,
    leading: Leading,
}

impl Sweep {
    pub(in crate::hub) fn new(client: &Client, clock: Clock, ledger: Ledger, leading: Leading) -> Self {
        Self { requests: Api::all(client.clone()), clock, ledger, leading }
    }

    /// Looks at the open rows, again and again, until the ledger's writer ends.
    pub(in crate::hub) async fn keep(self) {
        let mut health = self.ledger.health();
        while health.wait_for(|health| matches!(health, Health::Up { .. })).await.is_ok() {
            match self.look().await {
                Ok(()) => {}
                // Its writer has said so.
                Err(SweepError::Ledger(error)) => debug!(%error, "Looking at the open rows waits for the ledger"),
                Err(error) => warn!(%error, "Looking at the open rows of the ledger; trying again"),
            }
            sleep(PERIOD).await;
        }
    }

    /// One look at all of them, while this hub leads.
    async fn look(&self) -> Result<(), SweepError> {
        let (mut after, before) = (0, self.clock.now().minus(AGE));
        loop {
            let rows = self.ledger.open_rows(after, before).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.seq;
            for row in &rows {
                let Ok(leads) = self.leading.leads() else { return Ok(()) };
                self.settle(&leads, row).await?;
            }
        }
    }

    async fn settle(&self, leads: &Leads, row: &OpenRow) -> Result<(), SweepError> {
        // From here on the signer does not touch it, and what it wrote before comes before what is written here.
        let Some(_claim) = self.ledger.claim(&row.uid) else { return Ok(()) };
        let request = self.requests.get_opt(&row.request).await?;
        if leads.still().is_err() {
            return Ok(());
        }
        match judge(row, request.as_ref()) {
            RowVerdict::Leave => {}
            RowVerdict::Published => self.ledger.published(row.serial, self.clock.now()).await,
            RowVerdict::End(reason) => {
                info!(csr = row.request, uid = row.uid, serial = %row.serial, reason, "Closed a row of the ledger");
                self.ledger.settle(end(row, reason)).await?;
            }
            RowVerdict::Other(found) => {
                let (csr, uid, recorded) = (&row.request, &row.uid, row.serial);
                let found = found.map_or("unreadable".to_owned(), |serial| serial.to_string());
                error!(csr, uid, %recorded, found, "A request has a certificate that is not the recorded one");
                self.ledger.settle(end(row, "The request has another certificate.")).await?;
            }
            RowVerdict::Unrecorded => {
                let (csr, uid, serial) = (&row.request, &row.uid, row.serial);
                error!(csr, uid, %serial, "A request has a certificate that the ledger does not have; was it restored?");
            }
        }
        Ok(())
    }
}

fn judge(row: &OpenRow, request: Option<&CertificateSigningRequest>) -> RowVerdict {
    let request = request.filter(|request| request.metadata.uid.as_deref() == Some(row.uid.as_str()));
    let Some(request) = request else { return RowVerdict::End("The request was deleted.") };
    if is_issued(request) {
        let found = serial(request);
        return match row.state {
            _ if found != Some(row.serial) => RowVerdict::Other(found),
            OpenState::Signed => RowVerdict::Published,
            OpenState::Intent => RowVerdict::Unrecorded,
        };
    }
    if ["Denied", "Failed"].iter().any(|kind| has_condition(request, kind)) {
        return RowVerdict::End("The request was refused.");
    }
    RowVerdict::Leave
}

/// The serial number of the certificate that the request has, as rows have it.
fn serial(request: &CertificateSigningRequest) -> Option<Serial> {
    let pem = request.status.as_ref()?.certificate.as_ref()?;
    Serial::of(pem::certificates(&pem.0)?.first()?)
}

fn end(row: &OpenRow, reason: &str) -> Record {
    let (uid, serial, reason) = (row.uid.clone(), row.serial, reason.to_owned());
    match row.state {
        OpenState::Intent => Record::Abandoned { uid, serial, reason },
        OpenState::Signed => Record::Unpublished { uid, serial, reason },
    }
}
