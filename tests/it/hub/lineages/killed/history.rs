//! Everything that a lineage was: each version of its Secret, of its published anchors, and of the authorities in the
//! status of its AddOnSigner.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use addon_signer_api::AddOnSigner;
use addon_signer_core::ca::bundle::Bundle;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::kit::members;

/// The authorities of a lineage at one moment, in the order in which the object has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct View(Vec<Shown>);

/// An authority as an object shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    pub(super) id: String,
    /// `Next`, `Active` or `Old`; empty if the object does not say it.
    pub(super) state: String,
    tainted: bool,
}

impl View {
    /// Reads `authorities` of `line.json`, or of a status.
    pub(super) fn of(authorities: &[Value]) -> Self {
        let shown = |it: &Value| Shown {
            id: it["id"].as_str().unwrap().to_owned(),
            state: it["state"].as_str().unwrap().to_owned(),
            tainted: it["tainted"] == json!(true),
        };
        Self(authorities.iter().map(shown).collect())
    }

    /// Reads published anchors.
    pub(super) fn of_anchors(pem: &str) -> Self {
        let bundle = Bundle::from_pem(pem.as_bytes()).unwrap();
        let shown = |id: String| Shown { id, state: String::new(), tainted: false };
        Self(bundle.authorities().iter().map(|it| shown(it.id().to_string())).collect())
    }

    /// The authority in this state.
    pub(super) fn id_of(&self, state: &str) -> Option<&str> {
        self.0.iter().find(|it| it.state == state).map(|it| it.id.as_str())
    }

    pub(super) fn ids(&self) -> BTreeSet<&str> {
        self.0.iter().map(|it| it.id.as_str()).collect()
    }

    pub(super) fn is_tainted(&self, id: &str) -> bool {
        self.0.iter().any(|it| it.id == id && it.tainted)
    }

    /// The view with a letter for each authority, such as `Next b, Active a`.
    fn tell(&self, letters: &mut Letters) -> String {
        let mut reported: Vec<_> = self.0.iter().map(|it| (&it.state, letters.of(&it.id), it.tainted)).collect();
        // Olds of one second come in any order.
        reported
            .sort_by_key(|(state, letter, _)| (["Next", "Active", "Old"].iter().position(|it| it == state), *letter));
        let reported = reported.into_iter().map(|(state, letter, tainted)| {
            let mut text = format!("{state} {letter}").trim_start().to_owned();
            if tainted {
                text.write_str(", tainted").unwrap();
            }
            text
        });
        reported.collect::<Vec<_>>().join("; ")
    }
}

/// A letter for each authority, in the order in which they came.
#[derive(Default)]
struct Letters(BTreeMap<String, char>);

impl Letters {
    fn of(&mut self, id: &str) -> char {
        let next = char::from(b'a' + u8::try_from(self.0.len()).unwrap());
        *self.0.entry(id.to_owned()).or_insert(next)
    }
}

#[derive(Default)]
struct Seen {
    secret: Vec<(String, View)>,
    anchors: Vec<(String, View)>,
    status: Vec<(String, View)>,
    /// Where the present round begins in each of them.
    begin: [usize; 3],
}

/// Watches the lineage of the signer telemetry until it is dropped.
pub(super) struct History {
    seen: Arc<Mutex<Seen>>,
    watching: JoinSet<()>,
}

impl History {
    /// Begins to watch.
    pub(super) fn start(admin: &Client) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watching = JoinSet::new();
        let note = |note: fn(&mut Seen, Value)| {
            let seen = seen.clone();
            move |object: Value| note(&mut seen.lock(), object)
        };
        watching.spawn(watch(in_namespace::<Secret>(admin, "telemetry-client-authorities"), note(note_secret)));
        watching.spawn(watch(in_namespace::<ConfigMap>(admin, "telemetry-client-ca"), note(note_anchors)));
        let signers = Api::<AddOnSigner>::all(admin.clone());
        watching.spawn(watch(objects(signers, "telemetry"), note(note_status)));
        Self { seen, watching }
    }

    /// Begins a round: what was before is not told any more.
    pub(super) fn begin_round(&self) {
        let mut seen = self.seen.lock();
        let last = |length: usize| length.saturating_sub(1); // the round begins with what is there
        seen.begin = [last(seen.secret.len()), last(seen.anchors.len()), last(seen.status.len())];
    }

    /// The `resourceVersion` of every version of the Secret that was seen.
    pub(super) fn versions(&self) -> Vec<String> {
        self.seen.lock().secret.iter().map(|(version, _)| version.clone()).collect()
    }

    /// Whether these versions of Secret, anchors and AddOnSigner were seen.
    pub(super) fn has(&self, versions: [&str; 3]) -> bool {
        let seen = self.seen.lock();
        let all = [&seen.secret, &seen.anchors, &seen.status].into_iter().zip(versions);
        all.into_iter().all(|(seen, wanted)| seen.iter().any(|(version, _)| version == wanted))
    }

    /// What the lineage was since the round began, each view that differs from the one before.
    pub(super) fn reported(&self) -> Vec<String> {
        let seen = self.seen.lock();
        let mut letters = Letters::default();
        let mut reported: Vec<_> =
            seen.secret[seen.begin[0]..].iter().map(|(_, view)| view.tell(&mut letters)).collect();
        reported.dedup();
        reported
    }

    /// Checks that the published anchors and the status had in this round what the Secret had, in the same order, each
    /// once, though they may have skipped some of it.
    pub(super) fn assert_followed(&self) {
        let seen = self.seen.lock();
        let mut letters = Letters::default();
        let mut secret: Vec<_> = seen.secret[seen.begin[0]..].iter().map(|(_, it)| it.tell(&mut letters)).collect();
        let mut status: Vec<_> = seen.status[seen.begin[2]..].iter().map(|(_, it)| it.tell(&mut letters)).collect();
        let sets = |(_, view): &(String, View)| view.ids().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        let mut stored: Vec<_> = seen.secret[seen.begin[0]..].iter().map(sets).collect();
        let mut published: Vec<_> = seen.anchors[seen.begin[1]..].iter().map(sets).collect();
        secret.dedup();
        status.dedup();
        stored.dedup();
        published.dedup();
        assert!(follows(&status, &secret), "the status was {status:?}, the Secret {secret:?}");
        assert!(follows(&published, &stored), "the anchors were {published:?}, the Secret had {stored:?}");
    }

    /// Checks over the whole run that no authority comes back after it has gone, and that each goes from Next to Active
    /// to Old, but for those of which `may_go_back` knows.
    pub(super) fn assert_forward(&self, may_go_back: impl Fn(&str) -> bool) {
        let seen = self.seen.lock();
        let mut states = BTreeMap::<String, Vec<&str>>::new();
        for (_, view) in &seen.secret {
            for it in &view.0 {
                states.entry(it.id.clone()).or_default().push(&it.state);
            }
            let gone = states.iter_mut().filter(|(id, _)| !view.ids().contains(id.as_str()));
            gone.for_each(|(_, states)| states.push("gone"));
        }
        for (id, mut states) in states {
            states.dedup();
            let ranks: Vec<_> = states
                .iter()
                .map(|state| ["Next", "Active", "Old", "gone"].iter().position(|it| it == state))
                .collect();
            let comes_back = states[..states.len() - 1].contains(&"gone");
            assert!(!comes_back && (ranks.is_sorted() || may_go_back(&id)), "{id} was {states:?}");
        }
    }

    /// Panics if the watch has ended.
    pub(super) fn assert_watching(&mut self) {
        assert!(self.watching.try_join_next().is_none(), "a watch has ended");
    }
}

/// Whether `some` is `all` in its order, with gaps.
fn follows<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|one| rest.any(|it| it == one))
}

fn note_secret(seen: &mut Seen, object: Value) {
    let version = version(&object);
    let secret: Secret = serde_json::from_value(object).unwrap();
    seen.secret.push((version, View::of(&members(secret.data.as_ref().unwrap()))));
}

fn note_anchors(seen: &mut Seen, object: Value) {
    seen.anchors.push((version(&object), View::of_anchors(object["data"]["ca.crt"].as_str().unwrap())));
}

fn note_status(seen: &mut Seen, object: Value) {
    if let Some(authorities) = object["status"]["authorities"].as_array() {
        seen.status.push((version(&object), View::of(authorities)));
    }
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn in_namespace<K>(admin: &Client, name: &str) -> impl Stream<Item = Value> + Send + 'static
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + serde::Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + 'static,
{
    objects(Api::<K>::namespaced(admin.clone(), "addon-signer"), name)
}

/// Every version of the object with this name.
fn objects<K>(api: Api<K>, name: &str) -> impl Stream<Item = Value> + Send + 'static
where
    K: Resource<DynamicType = ()> + serde::Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = watcher(api, config).default_backoff().applied_objects();
    // A watch that fails is begun again; versions that were missed then are missing from `versions`.
    changes.filter_map(async |change| serde_json::to_value(change.ok()?).ok())
}

async fn watch(objects: impl Stream<Item = Value>, note: impl Fn(Value)) {
    objects.for_each(async |object| note(object)).await;
}
