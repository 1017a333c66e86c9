//! Makes stored credentials known to the programs that use them.

use std::convert::Infallible;
use std::future::pending;

use tokio::sync::watch;

use crate::on_renew::{CommandError, OnRenew};
use crate::probe::Probe;
use crate::store::{Store, StoreError};
use addon_signer_core::credentials::{Credentials, Unusable, Usable};

/// Informs the readers of a directory, the clients of `/readyz`, and the command of `--on-renew`.
pub(crate) struct Publisher {
    pub(crate) probe: Probe,
    pub(crate) on_renew: Option<OnRenew>,
    /// The certificate and the anchors that were published last.
    published: watch::Sender<Option<(Vec<u8>, Vec<u8>)>>,
}

impl Publisher {
    pub(crate) fn new(probe: Probe) -> Self {
        Self { probe, on_renew: None, published: watch::Sender::new(None) }
    }

    /// Publishes credentials that are stored and good. The directory that is a copy gets them first.
    ///
    /// # Errors
    /// [`StoreError`]: the directory could not be written, so nothing was published.
    pub(crate) fn publish(&self, store: &Store, stored: &Credentials, usable: &Usable) -> Result<(), StoreError> {
        let was_written = store.copy(stored).inspect_err(|error| self.probe.set(Err(error.to_string())))?;
        self.probe.set(Ok(usable.not_after));
        self.published.send_if_modified(|known| {
            let present = Some((stored.certificate.clone(), stored.bundle.clone()));
            let is_new = *known != present;
            *known = present;
            is_new || was_written
        });
        Ok(())
    }

    /// Nothing good is stored.
    pub(crate) fn withdraw(&self, reason: &Unusable) {
        self.probe.set(Err(reason.to_string()));
    }

    /// Runs the command, if there is one.
    pub(crate) async fn run_command(&mut self) -> Result<(), CommandError> {
        match &mut self.on_renew {
            Some(on_renew) => on_renew.run().await,
            None => Ok(()),
        }
    }

    /// Runs the command after each change from now on, if there is one.
    pub(crate) fn follow(&mut self) -> impl Future<Output = Infallible> + use<> {
        let (changes, probe) = (self.published.subscribe(), self.probe.clone());
        let on_renew = self.on_renew.take();
        async {
            match on_renew {
                Some(on_renew) => on_renew.follow(changes, probe).await,
                None => pending().await,
            }
        }
    }
}
