//! Whether the hub may sign for an AddOnSigner, and create an authority for it.

use tokio::time::Instant;
use tracing::warn;

use super::entry::{Entry, Served};
use super::pending::CallEnd;
use super::{MAX_LINES, Supervisor};
use crate::conditions::Validity;
use crate::permission;
use addon_signer_core::conditions::TOO_MANY_SIGNERS;
use addon_signer_core::identity::SignerName;
use addon_signer_platform::errors::explain;

impl Supervisor {
    /// Asks the API server soon whether the hub may sign for these signers. Otherwise a signer without its ClusterRole
    /// would look healthy while the API server refuses every answer.
    pub(super) fn ask_about(&mut self, which: impl Fn(&Served) -> bool) {
        for (name, entry) in &self.entries {
            if entry.served().is_some_and(&which) {
                self.calls.asking.add(name);
            }
        }
    }

    /// Starts the reviews for which there is a free permit.
    pub(super) fn begin_reviews(&mut self) {
        while let Some(name) = self.calls.asking.begin() {
            let Some(served) = self.entries.get_mut(&name).and_then(Entry::served_mut) else {
                self.calls.asking.end(&name);
                continue;
            };
            served.asked = Some(Instant::now());
            let config = served.config.borrow().clone();
            let client = self.links.client.clone();
            self.calls.under_way.push(Box::pin(async move {
                let answer = permission::check(&client, &config.rules.signer_name, config.approves).await;
                CallEnd::Asked(name, config.rules.signer_name.clone(), answer)
            }));
        }
    }

    pub(super) fn take_answer(&mut self, name: &str, of: &SignerName, answer: Result<Validity, kube::Error>) {
        self.calls.asking.end(name);
        // Another object of this name may exist by now; its rights are reviewed separately.
        if self.served(name).is_none_or(|served| served.config.borrow().rules.signer_name != *of) {
            return;
        }
        let answer = answer.map(|permission| permission.and_then(|()| self.take_permit(name)));
        let Some(served) = self.entries.get_mut(name).and_then(Entry::served_mut) else { return };
        match answer {
            Ok(permission) => {
                // An existing lineage stays trusted when the right is taken away.
                if permission.is_ok() {
                    served.plan.send_if_modified(|plan| !std::mem::replace(&mut plan.may_create, true));
                }
                if served.permission != permission {
                    served.permission = permission;
                    self.calls.writing.add(name);
                }
            }
            Err(error) => {
                served.asked = None;
                let error = explain(&error);
                warn!(signer = name, error, "Could not ask the API server whether the hub may sign; the hub retries");
            }
        }
    }

    /// Takes a permit for the signer's lineage among those that the gateway trusts.
    fn take_permit(&mut self, name: &str) -> Validity {
        let lineages = self.entries.values().filter(|entry| entry.has_lineage).count();
        if let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.has_lineage || lineages < MAX_LINES) {
            entry.has_lineage = true;
            return Ok(());
        }
        let sentence = format!(
            "The hub already has authorities for {MAX_LINES} AddOnSigners, the maximum; delete one that you do not \
             need, and this one gets its own within a minute."
        );
        Err((TOO_MANY_SIGNERS, sentence))
    }
}
