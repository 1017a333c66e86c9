//! Reads what a gateway in a process of its own must trust: the AddOnSigners with their statuses, and the ConfigMaps of
//! the gateway's lineages. What is read is checked in [`addon_signer_api::trust`]; what cannot be used changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::authorities::lineage_report::GatewayLineageReport;
use crate::authorities::store::{LineageNames, STATUS_KEY};
use crate::relist::{News, Relist};
use crate::tasks::send_news;
use addon_signer_api::ocm::created_at;
use addon_signer_api::trust::{NotTrusted, active, bundle, signer_trust};
use addon_signer_api::{GuardedSigner, Lenient};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::oldest::{MOST_SIGNERS, Oldest, Place};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::trust::{SignerTrust, Trust};
use addon_signer_platform::listing::{Selector, watch as watch_objects};

/// The shortest time between two lists that find AddOnSigners that have taken effect since.
const LIST_PAUSE: Duration = Duration::from_secs(30);

/// How often the reader checks whether such a list is needed.
const ROUND: Duration = Duration::from_secs(15);

/// An event of one of the watches.
enum WatchEvent {
    Signer(Box<Event<GuardedSigner>>),
    Lineage(GatewayCertificate, Box<Event<Lenient<ConfigMap>>>),
}

/// Keeps `trust` up to date until a watch ends. Nothing is sent before everything was listed once.
pub async fn keep(client: Client, namespace: String, trust: watch::Sender<Arc<Trust>>) {
    let mut events = watches(&client, &namespace);
    let mut next_list = Instant::now();
    let mut reader = TrustReader::new();
    loop {
        match timeout(ROUND, events.next()).await {
            Ok(None) => return,
            Ok(Some(WatchEvent::Signer(event))) => reader.observe_signer(*event),
            Ok(Some(WatchEvent::Lineage(certificate, event))) => {
                reader.lineage(certificate).observe(certificate, *event)
            }
            Err(_) => {}
        }
        let is_idle = reader.is_listed && !reader.relist.is_listing();
        if is_idle && reader.oldest.has_vacancy() && Instant::now() >= next_list {
            events = watches(&client, &namespace);
            next_list = Instant::now() + LIST_PAUSE;
        }
        if let Some(now) = reader.trust() {
            send_news(&trust, Arc::new(now));
        }
    }
}

fn watches(client: &Client, namespace: &str) -> BoxStream<'static, WatchEvent> {
    let signers = watch_objects(Api::<GuardedSigner>::all(client.clone()), Selector::all());
    let signers = logged("AddOnSigners", signers).map(|event| WatchEvent::Signer(Box::new(event))).boxed();
    let lineages = GatewayCertificate::ALL.map(|certificate| {
        let name = LineageNames::gateway(certificate).config_map;
        let named = Selector::fields(&format!("metadata.name={name}"));
        let maps: Api<Lenient<ConfigMap>> = Api::namespaced(client.clone(), namespace);
        let events = logged("the gateway's authorities", watch_objects(maps, named));
        events.map(move |event| WatchEvent::Lineage(certificate, Box::new(event))).boxed()
    });
    stream::select_all(lineages.into_iter().chain([signers])).boxed()
}

fn logged<E: Send + 'static>(
    what: &'static str,
    events: impl stream::Stream<Item = watcher::Result<Event<E>>> + Send + 'static,
) -> impl stream::Stream<Item = Event<E>> + Send + 'static {
    events.filter_map(move |event| async move {
        event.inspect_err(|error| warn!(%error, what, "A watch of what to trust failed; the gateway retries")).ok()
    })
}

/// The state of one AddOnSigner.
struct KnownSigner {
    /// `metadata.uid`: a recreated AddOnSigner is another one.
    uid: Option<String>,
    /// `None` if it is trusted for nothing.
    trust: Option<Arc<SignerTrust>>,
}

/// The state of one lineage of the gateway.
#[derive(Default)]
struct KnownLineage {
    relist: Relist<String>,
    is_listed: bool,
    anchors: Option<Bundle>,
    active: Option<AuthorityId>,
}

struct TrustReader {
    relist: Relist<String>,
    /// Which AddOnSigners take effect.
    oldest: Oldest,
    is_listed: bool,
    signers: BTreeMap<String, KnownSigner>,
    serving: KnownLineage,
    client: KnownLineage,
}

impl TrustReader {
    fn new() -> Self {
        Self {
            relist: Relist::default(),
            oldest: Oldest::new(MOST_SIGNERS),
            is_listed: false,
            signers: BTreeMap::new(),
            serving: KnownLineage::default(),
            client: KnownLineage::default(),
        }
    }

    fn observe_signer(&mut self, event: Event<GuardedSigner>) {
        match self.relist.news(event, |object| Some(object.name_any())) {
            None => self.oldest.begin_list(),
            Some(News::There(object)) => self.put(object),
            Some(News::Deleted(object)) => {
                self.oldest.remove("", &object.name_any());
                self.signers.remove(&object.name_any());
            }
            Some(News::Listed(shown)) => {
                self.signers.retain(|name, _| shown.contains(name));
                self.oldest.retain(|_, name| shown.contains(name));
                self.is_listed = true;
            }
        }
    }

    fn put(&mut self, object: GuardedSigner) {
        let (name, uid) = (object.name_any(), object.uid());
        match self.oldest.put("", &name, created_at(object.meta())) {
            Place::TooMany => return drop(self.signers.remove(&name)),
            Place::Chosen(younger) => younger.iter().for_each(|younger| drop(self.signers.remove(younger))),
        }
        let before = self.signers.remove(&name).filter(|known| known.uid == uid).and_then(|known| known.trust);
        let warn_of = |cause: &str| warn!(signer = name, cause, "An AddOnSigner is trusted for nothing");
        let trust = match object.read() {
            Ok(object) if object.metadata.deletion_timestamp.is_some() => None,
            Ok(object) => match signer_trust(&object) {
                Ok(trust) => trust.map(Arc::new),
                Err(NotTrusted::Spec(error)) => {
                    warn_of(&error.to_string());
                    None
                }
                Err(NotTrusted::Authorities(error)) => {
                    warn!(signer = name, %error, "Could not use the authorities in a status; those before stay");
                    before
                }
            },
            Err(error) => {
                warn_of(&error);
                None
            }
        };
        self.signers.insert(name, KnownSigner { uid, trust });
    }

    fn lineage(&mut self, certificate: GatewayCertificate) -> &mut KnownLineage {
        match certificate {
            GatewayCertificate::Serving => &mut self.serving,
            GatewayCertificate::Client => &mut self.client,
        }
    }

    /// The whole trust, once everything was listed.
    fn trust(&self) -> Option<Trust> {
        if !(self.is_listed && self.serving.is_listed && self.client.is_listed) {
            return None;
        }
        Some(Trust {
            signers: self.signers.values().filter_map(|known| known.trust.clone()).collect(),
            serving_anchors: self.serving.anchors.clone(),
            serving_active: self.serving.active.clone(),
            client_anchors: self.client.anchors.clone(),
            client_active: self.client.active.clone(),
        })
    }
}

impl KnownLineage {
    fn observe(&mut self, certificate: GatewayCertificate, event: Event<Lenient<ConfigMap>>) {
        match self.relist.news(event, |map| Some(map.name_any())) {
            Some(News::There(map)) => self.put(certificate, &map.object),
            Some(News::Listed(_)) => self.is_listed = true,
            // The hub recreates a deleted ConfigMap. Until then the anchors stay.
            None | Some(News::Deleted(_)) => {}
        }
    }

    fn put(&mut self, certificate: GatewayCertificate, map: &ConfigMap) {
        let text = map.data.as_ref().and_then(|data| data.get(STATUS_KEY)).map(String::as_str).unwrap_or_default();
        let report = serde_json::from_str::<GatewayLineageReport>(text).map_err(|error| error.to_string());
        let read = report.and_then(|GatewayLineageReport { authorities, anchors, .. }| {
            let own = bundle(&authorities).map_err(|error| error.to_string())?.ok_or("it has no certificate")?;
            let roots = anchors.map(|roots| Bundle::from_pem(roots.as_bytes())).transpose();
            Ok((roots.map_err(|error| error.to_string())?.unwrap_or(own), active(&authorities)))
        });
        match read {
            Ok((anchors, active)) => {
                self.anchors = Some(anchors);
                self.active = active;
            }
            Err(error) => {
                let lineage = certificate.name();
                warn!(lineage, error, "Could not use the authorities in a ConfigMap; those before stay");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use ring::rand::SystemRandom;
    use serde_json::json;

    use super::*;
    use crate::authorities::lineage_report::{authorities, render};
    use addon_signer_api::{AddOnSigner, AddOnSignerStatus};
    use addon_signer_core::ca::authority::Authority;
    use addon_signer_core::ca::lineage::Lineage;
    use addon_signer_core::keys::private::PrivateKey;
    use addon_signer_core::keys::public::KeyKind;
    use addon_signer_core::timestamp::Timestamp;

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    fn mk_lineage() -> Lineage {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let authority = Authority::self_signed("a", &key, NOW, Duration::from_secs(86_400), &rng).unwrap();
        Lineage::default().begin(authority, NOW)
    }

    fn mk_signer(lineage: &Lineage, uid: &str) -> AddOnSigner {
        let spec = json!({"signerName": "example.com/telemetry", "addOns": ["telemetry"]});
        let mut signer = AddOnSigner::new("telemetry", serde_json::from_value(spec).unwrap());
        signer.metadata.uid = Some(uid.to_owned());
        let add_ons = ["telemetry".to_owned()].into();
        let authorities = authorities(lineage);
        signer.status = Some(AddOnSignerStatus { add_ons, authorities, ..AddOnSignerStatus::default() });
        signer
    }

    fn mk_map(text: &str) -> Lenient<ConfigMap> {
        ConfigMap { data: Some([(STATUS_KEY.to_owned(), text.to_owned())].into()), ..ConfigMap::default() }.into()
    }

    /// A reader that has read everything: there is no AddOnSigner, and no ConfigMap.
    fn mk_reader() -> TrustReader {
        let mut reader = TrustReader::new();
        for certificate in GatewayCertificate::ALL {
            reader.lineage(certificate).observe(certificate, Event::InitDone);
        }
        assert_eq!(reader.trust(), None, "the AddOnSigners are not listed");
        reader.observe_signer(Event::InitDone);
        assert_eq!(reader.trust(), Some(Trust::default()));
        reader
    }

    fn ids(reader: &TrustReader) -> Vec<String> {
        reader.trust().unwrap().authorities().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unusable_status_changes_nothing_but_a_refused_object_is_out() {
        let (mut reader, lineage) = (mk_reader(), mk_lineage());
        let here = |object: AddOnSigner| Event::Apply(GuardedSigner::from(DeserializeGuard(Ok(object))));
        let good = mk_signer(&lineage, "1");
        let expected = vec![lineage.active().unwrap().authority.id().to_string()];
        let mut bad = good.clone();
        bad.status.as_mut().unwrap().authorities[0].certificate = Some("-----BEGIN".to_owned());
        let mut refused = good.clone();
        refused.spec.identity.user = "{addon}".to_owned();
        let mut ending = good.clone();
        ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let undecodable: GuardedSigner =
            serde_json::from_value(json!({ "metadata": { "name": "telemetry" }, "spec": 1 })).unwrap();
        reader.observe_signer(here(good.clone()));
        reader.observe_signer(here(bad.clone()));
        assert_eq!(ids(&reader), expected, "the last good ones stay");
        bad.metadata.uid = Some("2".to_owned());
        for out in [
            here(bad),
            here(refused),
            here(ending),
            Event::Apply(undecodable),
            Event::Delete(GuardedSigner::from(DeserializeGuard(Ok(good.clone())))),
        ] {
            reader.observe_signer(here(good.clone()));
            assert_eq!(ids(&reader), expected);
            let what = format!("{out:?}");
            reader.observe_signer(out);
            assert_eq!(ids(&reader), Vec::<String>::new(), "{what}");
        }
        reader.observe_signer(here(good));
        reader.observe_signer(Event::Init);
        assert_eq!(ids(&reader), expected, "a list removes what it lacks once it is complete");
        reader.observe_signer(Event::InitDone);
        assert_eq!(ids(&reader), Vec::<String>::new());
    }

    #[test]
    fn anchors_of_gateways_lines_stay_while_report_is_unusable() {
        let (mut reader, lineage) = (mk_reader(), mk_lineage());
        let report = render(&lineage, None, None, None, NOW).unwrap();
        for text in [report.as_str(), "", "{}", r#"{"authorities": []}"#] {
            reader
                .lineage(GatewayCertificate::Serving)
                .observe(GatewayCertificate::Serving, Event::Apply(mk_map(text)));
            let trust = reader.trust().unwrap();
            assert_eq!(trust.serving_active.as_ref(), Some(lineage.active().unwrap().authority.id()), "{text}");
            assert_eq!(trust.serving_anchors.unwrap().authorities().len(), 1, "{text}");
            assert_eq!((trust.client_active, trust.client_anchors), (None, None));
        }
        let gone = Event::Delete(mk_map(&report));
        reader.lineage(GatewayCertificate::Serving).observe(GatewayCertificate::Serving, gone);
        assert!(reader.trust().unwrap().serving_anchors.is_some());
    }
}
