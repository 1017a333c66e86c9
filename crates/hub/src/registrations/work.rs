//! The API calls of the writer of registrations, each in a task of its own and with a timeout.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, Patch as Change, PatchParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::lease::Leads;
use crate::registrations::discovery::AddOnVersion;
use crate::registrations::discovery::says_absent;
use addon_signer_api::ocm::{AddOnApi, OcmObject};
use addon_signer_api::registrations::FIELD_MANAGER;
use addon_signer_core::identity::AddOnKey;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{Pages, Selector};

/// Timeout of one response.
const ANSWER: Duration = Duration::from_secs(15);
/// Timeout of a page of a list, which waits for the pages of other lists.
const PAGE: Duration = Duration::from_secs(120);

/// How soon a failed list is restarted.
const LIST_AGAIN: Duration = Duration::from_secs(5);

/// An addon as a watch or a list shows it.
#[derive(Debug)]
pub enum SeenAddOn {
    /// It exists.
    There(Box<OcmObject>),
    /// It was deleted.
    Deleted(AddOnKey),
    /// A list is complete: an addon that it did not show does not exist.
    Listed,
}

/// How to reach the addons.
#[derive(Clone)]
pub(super) struct AddOnsApi {
    /// The hub's account.
    pub client: Client,
    /// The version of ManagedClusterAddOn.
    pub version: AddOnVersion,
}

/// What a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patch {
    /// The registrations, with the condition that another program keeps changing them if that is new.
    Registrations { says_left: bool },
    /// Removes that condition.
    TakeBack,
    /// The condition about the certificate.
    Certificate,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// The addon no longer exists.
    Gone,
    /// Another client has changed the addon since it was read, which is normal.
    Conflict,
    /// Another hub may lead.
    NotLeading,
    /// Anything else, in one sentence.
    Other(String),
}

/// The result of a task.
pub(super) enum Done {
    Read(AddOnKey, Result<Box<OcmObject>, WriteFailure>),
    Wrote(AddOnKey, Patch, Result<(), WriteFailure>),
    Listed,
}

impl AddOnsApi {
    /// The addons of a cluster, in this version.
    pub(super) fn addons(&self, key: &AddOnKey, version: AddOnApi) -> Api<OcmObject> {
        Api::namespaced_with(self.client.clone(), key.cluster.as_str(), &version.resource())
    }
}

pub(super) async fn read(target: AddOnsApi, key: AddOnKey) -> Done {
    let addons = target.addons(&key, target.version.now());
    let name = key.addon.as_str();
    let read = bounded(name, addons.get(name)).await.map(Box::new);
    Done::Read(key, read)
}

/// Writes with `resourceVersion`: the patch replaces whole lists, so it must fail if the addon has changed since.
/// `addons` must have the same version as `status`.
pub(super) async fn write(
    leads: Leads,
    addons: Api<OcmObject>,
    key: AddOnKey,
    patch: Patch,
    version: Option<String>,
    status: Value,
) -> Done {
    if leads.still().is_err() {
        return Done::Wrote(key, patch, Err(WriteFailure::NotLeading));
    }
    let body = json!({ "metadata": { "resourceVersion": version }, "status": status });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let change = Change::Merge(&body);
    let name = key.addon.as_str();
    let written = bounded(name, addons.patch_status(name, &params, &change)).await;
    Done::Wrote(key, patch, written.map(drop))
}

/// Shows every addon to the writer, then [`SeenAddOn::Listed`]. Starts again until one list is complete.
pub(super) async fn list(target: AddOnsApi, seen: mpsc::Sender<SeenAddOn>) -> Done {
    while let Err(error) = list_pages(&target, &seen).await {
        warn!(error, "Could not list the addons to write their registrations; the hub retries");
        sleep(LIST_AGAIN).await;
    }
    show(&seen, SeenAddOn::Listed).await;
    Done::Listed
}

async fn list_pages(target: &AddOnsApi, seen: &mpsc::Sender<SeenAddOn>) -> Result<(), String> {
    let addons: Api<OcmObject> = Api::all_with(target.client.clone(), &target.version.now().resource());
    let mut pages = Pages::new(addons, Selector::all());
    loop {
        let page = match timeout(PAGE, pages.next()).await {
            Ok(page) => page.map_err(|error| explain(&error))?,
            Err(_) => return Err(slow()),
        };
        let Some(page) = page else { return Ok(()) };
        for object in page {
            show(seen, SeenAddOn::There(Box::new(object))).await;
        }
    }
}

async fn show(seen: &mpsc::Sender<SeenAddOn>, what: SeenAddOn) {
    // Sending fails only if the writer has ended, and then this task ends too.
    let _ = seen.send(what).await;
}

/// The result of a call about the addon of this name, with a timeout.
async fn bounded<T>(name: &str, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, WriteFailure> {
    match timeout(ANSWER, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if says_absent(&status, name) => Err(WriteFailure::Gone),
        Ok(Err(kube::Error::Api(status))) if status.is_conflict() => Err(WriteFailure::Conflict),
        Ok(Err(error)) => Err(WriteFailure::Other(explain(&error))),
        Err(_) => Err(WriteFailure::Other(slow())),
    }
}

fn slow() -> String {
    format!("the API server does not answer within {} s", ANSWER.as_secs())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn only_an_answer_about_the_addon_says_that_it_has_gone() {
        for (named, is_gone) in [("telemetry", true), ("", false)] {
            let status = json!({ "code": 404, "reason": "NotFound", "details": { "name": named } });
            let status: Status = serde_json::from_value(status).unwrap();
            let answer = bounded::<()>("telemetry", async { Err(kube::Error::Api(status.boxed())) }).await;
            assert_eq!(matches!(answer, Err(WriteFailure::Gone)), is_gone, "{named}");
        }
    }
}
