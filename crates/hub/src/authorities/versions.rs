//! Which versions of its objects each lineage has on the API server, from one watch of metadata per kind.
//!
//! One watch serves all lineages, because an API server allows few streams per connection. It holds no key: a
//! reconciler reads its Secret itself, and only after a change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::authorities::asked::{RequestedSteps, authority_ids};
use crate::authorities::store::{BACKEND_CONFIG_MAP, LineageNames, SERVING_CONFIG_MAP};
use crate::relist::Watched;
use addon_signer_api::Lenient;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::names::ANNOTATION_AUTHORITIES;
use addon_signer_platform::listing::{Selector, Watch, watch as watch_objects};

/// An object as the watch last showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectVersion {
    /// Its `resourceVersion`.
    pub(super) version: String,
    /// What its annotations request.
    pub(super) asked: RequestedSteps,
    /// The authorities whose keys the Secret has, and the last that it had, from the annotation that the hub writes
    /// with them.
    authorities: Vec<AuthorityId>,
}

/// The objects of a lineage; `None` for one that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineageObjects {
    pub(super) secret: Option<ObjectVersion>,
    pub(super) config_map: Option<ObjectVersion>,
    /// The Secret that supplies its authorities.
    pub(super) source: Option<ObjectVersion>,
    /// How many objects of the namespace were deleted so far. Without it, an object that was created and deleted while
    /// its reconciler was busy would look unchanged.
    deleted: u64,
}

impl LineageObjects {
    /// What the annotations of the ConfigMap request.
    pub(super) fn asked(&self) -> RequestedSteps {
        self.config_map.as_ref().map(|map| map.asked.clone()).unwrap_or_default()
    }
}

/// All objects of both kinds; `None` before the first list is complete.
#[derive(Debug, Default)]
pub(crate) struct ObjectVersions {
    secrets: Watched<ObjectVersion>,
    config_maps: Watched<ObjectVersion>,
    deleted: u64,
}

/// Reads what the watches last showed.
#[derive(Debug, Clone)]
pub(crate) struct WatchedObjects {
    known: watch::Receiver<ObjectVersions>,
    /// Authorities from outside that a lineage is about to take: its Secret, and since when.
    owners: Arc<Mutex<BTreeMap<AuthorityId, (String, Instant)>>>,
}

/// How long an authority stays reserved for a lineage that is persisting it.
const OWNED_FOR: Duration = Duration::from_secs(60);

/// Creates the reader, and the sender for [`keep`].
pub(crate) fn channel() -> (watch::Sender<ObjectVersions>, WatchedObjects) {
    let (known, objects) = watch::channel(ObjectVersions::default());
    (known, WatchedObjects { known: objects, owners: Arc::default() })
}

impl WatchedObjects {
    /// The objects of a lineage, whose authorities come from the Secret `source`; `None` before both kinds were
    /// listed.
    pub(super) fn of(&self, names: &LineageNames, source: Option<&str>) -> Option<LineageObjects> {
        let known = self.known.borrow();
        let (secrets, config_maps) = (known.secrets.all()?, known.config_maps.all()?);
        Some(LineageObjects {
            secret: secrets.get(&names.secret).cloned(),
            config_map: config_maps.get(&names.config_map).cloned(),
            source: source.and_then(|source| secrets.get(source).cloned()),
            deleted: known.deleted,
        })
    }

    /// Reserves an authority from outside for a lineage, if no other lineage's Secret has it or had it last, and no
    /// other lineage is about to take it.
    ///
    /// # Errors
    /// The lineage that has it, or what must be read first.
    pub(super) fn own(&self, id: &AuthorityId, names: &LineageNames) -> Result<(), String> {
        let known = self.known.borrow();
        let secrets = known.secrets.all().ok_or("the Secrets of the other lineages were not read yet")?;
        let mut others = secrets.iter().filter(|(name, _)| **name != names.secret);
        if let Some((owner, _)) = others.find(|(_, secret)| secret.authorities.contains(id)) {
            return Err(format!("it is or was in the Secret {owner}, and each lineage has keys of its own"));
        }
        let (mut owners, now) = (self.owners.lock(), Instant::now());
        owners.retain(|_, (_, since)| now.duration_since(*since) < OWNED_FOR);
        match owners.get(id).filter(|(owner, _)| *owner != names.secret) {
            Some((owner, _)) => {
                Err(format!("the Secret {owner} is about to have it, and each lineage has keys of its own"))
            }
            None => {
                owners.insert(id.clone(), (names.secret.clone(), now));
                Ok(())
            }
        }
    }

    /// [`Self::changed`], but not before `at`.
    pub(super) async fn changed_after(
        &mut self,
        at: Instant,
        names: &LineageNames,
        source: Option<&str>,
        before: Option<&LineageObjects>,
    ) {
        sleep_until(at).await;
        self.changed(names, source, before).await;
    }

    /// Waits until the objects of a lineage differ from `before`.
    async fn changed(&mut self, names: &LineageNames, source: Option<&str>, before: Option<&LineageObjects>) {
        while self.of(names, source).as_ref() == before {
            if self.known.changed().await.is_err() {
                std::future::pending().await // the hub ends
            }
        }
    }
}

/// Watches the objects of a namespace until a watch ends.
pub(crate) async fn keep(client: Client, namespace: String, known: watch::Sender<ObjectVersions>) {
    let mut secrets = metadata::<Secret>(&client, &namespace);
    let mut config_maps = metadata::<ConfigMap>(&client, &namespace);
    loop {
        let more = tokio::select! {
            event = secrets.next() => follow(event, &known, |known| &mut known.secrets),
            event = config_maps.next() => follow(event, &known, |known| &mut known.config_maps),
        };
        if !more {
            return;
        }
    }
}

type Meta = Lenient<PartialObjectMeta<DynamicObject>>;

fn metadata<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Watch<Meta> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<Meta> = Api::namespaced_with(client.clone(), namespace, &resource);
    watch_objects(api, Selector::all())
}

/// Applies one event to the versions of one kind; returns `false` if the watch has ended.
fn follow(
    event: Option<watcher::Result<Event<Meta>>>,
    known: &watch::Sender<ObjectVersions>,
    kind: impl Fn(&mut ObjectVersions) -> &mut Watched<ObjectVersion>,
) -> bool {
    match event {
        None => return false,
        Some(Err(error)) => {
            warn!(%error, "The watch of the objects that hold authorities failed; the hub retries");
        }
        Some(Ok(event)) => known.send_modify(|known| {
            let has_deleted = kind(known).observe(event, version);
            known.deleted += u64::from(has_deleted);
        }),
    }
    true
}

fn version(object: &Meta) -> ObjectVersion {
    let annotations = object.annotations();
    // Others may have any number of objects in this namespace.
    let is_asked =
        object.meta().name.as_deref().is_some_and(|name| [SERVING_CONFIG_MAP, BACKEND_CONFIG_MAP].contains(&name));
    ObjectVersion {
        version: object.resource_version().unwrap_or_default(),
        asked: if is_asked { RequestedSteps::of_gateway(annotations) } else { RequestedSteps::default() },
        authorities: annotations.get(ANNOTATION_AUTHORITIES).map(|ids| authority_ids(ids)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use addon_signer_core::ca::lineage::Lineage;
    use futures::FutureExt;
    use kube::core::ObjectMeta;

    use super::*;

    fn mk_object(name: &str, annotations: BTreeMap<String, String>) -> Meta {
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), annotations: Some(annotations), ..ObjectMeta::default() };
        Meta::from(PartialObjectMeta { metadata, types: None, _phantom: std::marker::PhantomData })
    }

    fn bring(known: &watch::Sender<ObjectVersions>, event: Event<Meta>) {
        assert!(follow(Some(Ok(event)), known, |known| &mut known.config_maps));
    }

    #[test]
    fn object_created_and_deleted_unseen_is_a_change() {
        let (known, mut objects) = channel();
        let names = LineageNames::client("a", "example.com/a");
        let map = mk_object(&names.config_map, BTreeMap::new());
        known.send_modify(|known| known.secrets = Watched::nothing());
        bring(&known, Event::InitDone);
        let before = objects.of(&names, None);
        bring(&known, Event::InitDone);
        let again = objects.changed(&names, None, before.as_ref()).now_or_never();
        assert_eq!(again, Some(()), "it was perhaps deleted before a further list");
        let before = objects.of(&names, None);
        assert_eq!(objects.changed(&names, None, before.as_ref()).now_or_never(), None);
        bring(&known, Event::Apply(map.clone()));
        bring(&known, Event::Delete(map));
        assert_eq!(objects.changed(&names, None, before.as_ref()).now_or_never(), Some(()));
    }

    #[test]
    fn a_key_that_has_left_a_line_is_taken_by_no_other() {
        let (known, objects) = channel();
        let [own, other] = ["a", "b"].map(|name| LineageNames::client(name, &format!("example.com/{name}")));
        let (left, new) = (AuthorityId::from("0a1b"), AuthorityId::from("2c3d"));
        let lineage = Lineage::default().with_gone(vec![left.clone()]);
        let secret = mk_object(&own.secret, own.annotations(&lineage, BTreeMap::new()));
        let is_followed = |event| follow(Some(Ok(event)), &known, |known| &mut known.secrets);
        assert!(is_followed(Event::Init) && is_followed(Event::InitApply(secret)) && is_followed(Event::InitDone));
        let why = objects.own(&left, &other).unwrap_err();
        assert_eq!(why, format!("it is or was in the Secret {}, and each lineage has keys of its own", own.secret));
        assert_eq!(objects.own(&new, &other), Ok(()));
    }
}
