//! What all lines and signers look like together: from it follows what the gateway trusts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::api::rules::SignerConfig;
use crate::hub::keeper::LineState;
use crate::timestamp::Timestamp;
use crate::trust::{SignerTrust, Trust};

/// Shared by the supervisor and all keepers.
#[derive(Debug, Clone)]
pub struct Board {
    entries: Arc<Mutex<Entries>>,
    trust: watch::Sender<Arc<Trust>>,
}

#[derive(Debug)]
struct Entries {
    signers: BTreeMap<String, (Arc<SignerConfig>, watch::Receiver<LineState>)>,
    serving: Option<watch::Receiver<LineState>>,
}

impl Board {
    /// An empty board that publishes to `trust`.
    pub fn new(trust: watch::Sender<Arc<Trust>>) -> Self {
        let entries = Entries { signers: BTreeMap::new(), serving: None };
        Self { entries: Arc::new(Mutex::new(entries)), trust }
    }

    /// Adds or changes a signer.
    pub fn set_signer(&self, name: &str, config: Arc<SignerConfig>, line: watch::Receiver<LineState>) {
        self.change(|entries| entries.signers.insert(name.to_owned(), (config, line)));
    }

    /// Removes a signer: from now on its certificates are nobody's identity.
    pub fn remove_signer(&self, name: &str) {
        self.change(|entries| entries.signers.remove(name));
    }

    /// Sets the gateway's serving line.
    pub fn set_serving(&self, line: watch::Receiver<LineState>) {
        self.change(|entries| entries.serving.replace(line));
    }

    /// When the last certificate that any client line has given away ends.
    pub fn last_leaf(&self) -> Option<Timestamp> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = entries.signers.values().filter_map(|(_, line)| line.borrow().last().cloned());
        lines.flat_map(|ready| ready.line().members().iter().filter_map(|m| m.leaves_expire).collect::<Vec<_>>()).max()
    }

    /// Publishes what follows, if it differs from what was published.
    pub fn publish(&self) {
        self.change(|_| ());
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut entries);
        let trust = Arc::new(entries.trust());
        // Inside the lock, so that an older view never replaces a newer one.
        self.trust.send_if_modified(|published| {
            let differs = *published != trust;
            if differs {
                *published = trust;
            }
            differs
        });
    }
}

impl Entries {
    fn trust(&self) -> Trust {
        let signer = |(name, (config, line)): (&String, &(Arc<SignerConfig>, watch::Receiver<LineState>))| {
            let client_anchors = line.borrow().last()?.bundle.clone();
            Some(Arc::new(SignerTrust {
                name: name.clone(),
                signer_name: config.rules.signer_name.clone(),
                addons: config.rules.addons.clone(),
                convention: config.rules.convention.clone(),
                client_anchors,
                routes: config.routes.clone(),
            }))
        };
        let serving = self.serving.as_ref().and_then(|line| line.borrow().last().cloned());
        Trust {
            signers: self.signers.iter().filter_map(signer).collect(),
            serving_active: serving
                .as_ref()
                .and_then(|ready| ready.line().active().map(|active| active.authority.id().to_owned())),
            serving_anchors: serving.map(|ready| ready.bundle.clone()),
        }
    }
}
