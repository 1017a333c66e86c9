//! Keeps [`Templates`] by watches of ClusterManagementAddOns and AddOnTemplates, in whichever version the API server
//! serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, pending};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::api::addon_template::{
    ADDON_TEMPLATES, MANAGEMENT_ADDONS, TEMPLATE_VERSIONS as VERSIONS, facts_of_template, templates_of_management_addon,
};
use crate::api::ocm::ADDON_GROUP;
use crate::backoff::WatchBackoff;
use crate::hub::registrations::discovery::{readable_version, resource};
use crate::hub::registrations::version::is_refusal;
use addon_signer_core::templates::{TemplatedAddOns, Templates};
use addon_signer_platform::errors::explain;

/// How soon the hub asks the API server again what it serves, while it does not serve both resources.
const DISCOVER: Duration = Duration::from_secs(60);
/// How soon the hub asks again if the API server did not answer.
const RETRY: Duration = Duration::from_secs(3);

type Objects = BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>>;

/// Keeps `known` up to date until nobody reads it any more.
pub(in crate::hub) async fn keep_templates(client: Client, known: watch::Sender<Templates>) {
    loop {
        match served(&client).await {
            Ok([None, _]) => {
                // Without ClusterManagementAddOns the addon-manager registers nothing from templates.
                set(&known, Templates::Read(Arc::default()));
                sleep(DISCOVER).await;
            }
            Ok([Some(addons), Some(templates)]) => {
                follow(objects(&client, &addons), objects(&client, &templates), true, &known).await;
                sleep(RETRY).await;
            }
            Ok([Some(addons), None]) => {
                let following = follow(objects(&client, &addons), pending().boxed(), false, &known);
                // Whether it ended or timed out, ask again what is served, until AddOnTemplates are served too.
                if tokio::time::timeout(DISCOVER, following).await.is_ok() {
                    sleep(RETRY).await;
                }
            }
            Err(error) => {
                unread(&known, &explain(&error));
                sleep(RETRY).await;
            }
        }
        if known.is_closed() {
            return;
        }
    }
}

async fn served(client: &Client) -> Result<[Option<ApiResource>; 2], kube::Error> {
    let find = async |kind: &str, plural: &str| {
        let version = readable_version(client, (ADDON_GROUP, kind, plural), &VERSIONS).await?;
        Ok::<_, kube::Error>(version.map(|version| resource(ADDON_GROUP, version, kind, plural)))
    };
    Ok([find("ClusterManagementAddOn", MANAGEMENT_ADDONS).await?, find("AddOnTemplate", ADDON_TEMPLATES).await?])
}

fn objects(client: &Client, resource: &ApiResource) -> Objects {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    watcher(api, watcher::Config::default()).backoff(WatchBackoff::default()).boxed()
}

/// What one watch has shown: facts by name, and the facts of a list that is not complete yet.
struct Shown<T> {
    complete: Option<BTreeMap<String, T>>,
    listed: BTreeMap<String, T>,
}

impl<T> Shown<T> {
    fn observe(&mut self, event: Event<DynamicObject>, read: impl Fn(&DynamicObject) -> T) {
        match event {
            Event::Init => self.listed = BTreeMap::new(),
            Event::InitApply(object) => {
                self.listed.insert(object.name_any(), read(&object));
            }
            Event::InitDone => self.complete = Some(std::mem::take(&mut self.listed)),
            Event::Apply(object) => {
                self.complete.get_or_insert_default().insert(object.name_any(), read(&object));
            }
            Event::Delete(object) => {
                self.complete.get_or_insert_default().remove(&object.name_any());
            }
        }
    }
}

/// Follows both watches until the API server refuses one of them: it may serve or read another version only.
async fn follow(mut addons: Objects, mut templates: Objects, has_templates: bool, known: &watch::Sender<Templates>) {
    let mut of_addons = Shown { complete: None, listed: BTreeMap::new() };
    let mut of_templates = Shown { complete: (!has_templates).then(BTreeMap::new), listed: BTreeMap::new() };
    loop {
        let seen = tokio::select! {
            Some(event) = addons.next() => event.map(|event| of_addons.observe(event, templates_of_management_addon)),
            Some(event) = templates.next() => event.map(|event| of_templates.observe(event, facts_of_template)),
            else => return,
        };
        match (seen, &of_addons.complete, &of_templates.complete) {
            (Ok(()), Some(addons), Some(templates)) => publish(addons, templates, known),
            (Ok(()), ..) => {}
            (Err(error), ..) => {
                debug!(%error, "The watch of ClusterManagementAddOns or AddOnTemplates failed; the hub retries");
                unread(known, &error.to_string());
                if is_refusal(&error) {
                    return;
                }
            }
        }
    }
}

fn publish(
    addons: &BTreeMap<String, Option<BTreeSet<String>>>,
    templates: &BTreeMap<String, addon_signer_core::templates::TemplateFacts>,
    known: &watch::Sender<Templates>,
) {
    // Skip names that OCM does not allow for addons.
    let templated = addons.iter().filter_map(|(name, found)| Some((name.parse().ok()?, found.clone()?)));
    let read = TemplatedAddOns {
        addons: templated.collect(),
        templates: templates.clone(),
        owners: addons.keys().cloned().collect(),
    };
    if set(known, Templates::Read(Arc::new(read))) {
        info!(
            addons = addons.len(),
            templates = templates.len(),
            "The hub has read which addons OCM's addon-manager registers"
        );
    }
}

/// Says once why nothing is known: if both watches fail, the first cause is enough. Facts that are known already stay,
/// although they may be out of date.
fn unread(known: &watch::Sender<Templates>, cause: &str) {
    if *known.borrow() == Templates::Starting {
        warn!(
            cause,
            "Cannot read which addons OCM's addon-manager registers; the hub writes no registration until it can"
        );
        set(known, Templates::Unread(cause.to_owned()));
    }
}

/// Returns whether this changes what was known.
fn set(known: &watch::Sender<Templates>, now: Templates) -> bool {
    known.send_if_modified(|known| {
        let differs = *known != now;
        *known = now;
        differs
    })
}
