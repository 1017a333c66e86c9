//! Handles the events of the watch of AddOnSigners.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use tracing::warn;

use super::Supervisor;
use crate::api::AddOnSigner;
use crate::hub::supervisor::status;
use addon_signer_platform::errors::explain;

impl Supervisor {
    /// Handles one event, then starts and stops tasks to match.
    pub(super) async fn observe(
        &mut self,
        event: Event<DeserializeGuard<AddOnSigner>>,
        listed: &mut Option<BTreeMap<String, AddOnSigner>>,
    ) {
        match event {
            Event::Init => {
                // Do nothing while a list is incomplete: the hub would act as if there were no AddOnSigners.
                *listed = Some(BTreeMap::new());
                self.listed_undecodable.clear();
                return;
            }
            Event::InitApply(object) => {
                let name = object.name_any();
                match (self.decoded(object).await, listed.as_mut()) {
                    (Some(object), Some(listed)) => drop(listed.insert(name, object)),
                    _ => drop(self.listed_undecodable.insert(name)),
                }
                return;
            }
            Event::InitDone => {
                self.objects = listed.take().unwrap_or_default();
                let still = std::mem::take(&mut self.listed_undecodable);
                self.undecodable.retain(|name, _| still.contains(name));
                self.objects.values().for_each(|object| self.notes.configured(object));
                self.notes.listed(self.objects.keys().chain(self.undecodable.keys()).cloned().collect());
                self.settle().await;
                self.board.set_listed();
                return;
            }
            Event::Apply(object) => {
                let name = object.name_any();
                match self.decoded(object).await {
                    Some(object) => {
                        self.notes.configured(&object);
                        self.objects.insert(name, object)
                    }
                    None => self.objects.remove(&name),
                };
            }
            Event::Delete(object) => {
                let name = object.name_any();
                self.objects.remove(&name);
                self.undecodable.remove(&name);
                self.notes.deleted(&name);
            }
        }
        self.settle().await;
    }

    async fn decoded(&mut self, object: DeserializeGuard<AddOnSigner>) -> Option<AddOnSigner> {
        let name = object.name_any();
        match object.0 {
            Ok(object) => {
                self.undecodable.remove(&name);
                object.metadata.deletion_timestamp.is_none().then_some(object)
            }
            Err(error) => {
                // The object's status cannot be read either, so compare with the last error that was reported.
                if self.undecodable.insert(name.clone(), error.error.clone()).as_ref() == Some(&error.error) {
                    return None;
                }
                warn!(signer = name, %error, "An AddOnSigner cannot be read; the hub signs nothing for it");
                self.unsaid.insert(name);
                self.say_undecodable().await;
                None
            }
        }
    }

    /// Writes the error into the status of objects that cannot be decoded. The next round retries a write that fails.
    pub(super) async fn say_undecodable(&mut self) {
        let Ok(leads) = self.links.leading.leads() else { return };
        let now = self.links.clock.now();
        for name in std::mem::take(&mut self.unsaid) {
            self.pulse.beat();
            let Some(error) = self.undecodable.get(&name) else { continue };
            if let Err(error) = status::write_undecodable(&leads, &self.api, &name, error, now).await {
                warn!(
                    signer = name,
                    error = explain(&error),
                    "Could not write the status of an AddOnSigner; the hub retries"
                );
                self.unsaid.insert(name);
            }
        }
    }
}
