//! The API calls that write ManifestWorks.

use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Error};
use serde_json::Value;
use tokio::time::timeout;

use super::known::Known;
use super::steps::Step;
use crate::lease::{Leads, NotWritten};
use crate::registrations::discovery::AddOnVersion;
use crate::registrations::discovery::says_absent;
use addon_signer_api::manifest_work::{body, repair, resource, work_name};
use addon_signer_api::ocm::OcmObject;
use addon_signer_api::registrations::FIELD_MANAGER;
use addon_signer_core::identity::AddOnKey;
use addon_signer_platform::errors::explain;

/// Timeout for one response of the API server.
const ANSWER: Duration = Duration::from_secs(15);

/// How to reach the ManifestWorks, and what owns them.
pub(super) struct Works {
    pub(super) client: Client,
    /// The version of ManagedClusterAddOn.
    pub(super) version: AddOnVersion,
}

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotTaken {
    /// `None` if the failure is normal: another client was faster, or this hub does not lead.
    pub(super) error: Option<String>,
    /// Whether the API server forbids it to this account.
    pub(super) is_refused: bool,
    /// Whether an object with this name already exists.
    pub(super) is_there: bool,
}

impl NotTaken {
    pub(super) fn new(error: Option<String>) -> Self {
        Self { error, is_refused: false, is_there: false }
    }
}

impl Works {
    /// Takes one step, and notes its outcome in `known`, unless the watch has done so.
    pub(super) async fn take(
        &self,
        leads: &Leads,
        known: &Known,
        key: &AddOnKey,
        step: Step,
        anchors: &str,
    ) -> Result<(), NotTaken> {
        let name = work_name(&key.addon);
        let works: Api<OcmObject> = Api::namespaced_with(self.client.clone(), key.cluster.as_str(), &resource());
        let before = match &step {
            Step::Create { .. } => None,
            Step::Change { version, .. } | Step::Delete { version, .. } => Some(version.clone()),
        };
        let call = async {
            match step {
                Step::Create { owner, namespace } => {
                    let work = body(key, self.version.now(), &owner, &namespace, anchors);
                    known.make_work(key);
                    let made = self.create(leads, key, work).await?;
                    known.put_answer(None, &made);
                }
                Step::Change { version, owner, namespace } => {
                    let change = repair(body(key, self.version.now(), &owner, &namespace, anchors), &version);
                    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
                    let changed = leads.write(works.patch(&name, &params, &Patch::Merge(&change))).await?;
                    known.put_answer(Some(&version), &changed.object);
                }
                Step::Delete { version, .. } => {
                    let preconditions = Preconditions { resource_version: Some(version.to_string()), uid: None };
                    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                    let deleted = leads.write(works.delete(&name, &params)).await?;
                    if let Some(deleting) = deleted.left() {
                        known.put_answer(Some(&version), &deleting.object);
                    }
                }
            }
            Ok(())
        };
        match timeout(ANSWER, call).await {
            Ok(done) => done.or_else(|error| {
                if let (Some(before), NotWritten::Api(Error::Api(status))) = (before, &error)
                    && says_absent(status, &name)
                {
                    known.put_absence(key, &before);
                }
                failure(&name, error)
            }),
            Err(_) => {
                let error = format!("the API server does not answer within {} s", ANSWER.as_secs());
                Err(NotTaken::new(Some(error)))
            }
        }
    }

    async fn create(&self, leads: &Leads, key: &AddOnKey, work: Value) -> Result<DynamicObject, NotWritten> {
        let works: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), key.cluster.as_str(), &resource());
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let work: DynamicObject = serde_json::from_value(work).map_err(Error::SerdeError)?;
        leads.write(works.create(&params, &work)).await
    }
}

fn failure(name: &str, error: NotWritten) -> Result<(), NotTaken> {
    let NotWritten::Api(error) = error else { return Err(NotTaken::new(None)) };
    let with_cause = || NotTaken::new(Some(explain(&error)));
    Err(match &error {
        Error::Api(status) if status.is_already_exists() => {
            let sentence = format!(
                "the hub does not recognise the existing ManifestWork {name} as its own; if this persists, somebody \
                 else created it: delete it"
            );
            NotTaken { is_there: true, ..NotTaken::new(Some(sentence)) }
        }
        Error::Api(status) if status.is_conflict() || says_absent(status, name) => NotTaken::new(None),
        Error::Api(status) => NotTaken { is_refused: status.is_forbidden(), ..with_cause() },
        _ => with_cause(),
    })
}
