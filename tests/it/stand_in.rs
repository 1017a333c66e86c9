//! Tests of the stand-in with its clients: the `kube` client here, and kubectl in `stand_in_kubectl`.

use std::collections::BTreeMap;
use std::time::Duration;

use ::stand_in::{StandIn, StandInError};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Config, Resource, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

/// How long a step of these tests may take; no machine needs longer.
const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn mk_hub() -> StandIn {
    // This fails if another test of this binary has installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    StandIn::start("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

async fn mk_client(hub: &StandIn, user: &str, groups: &[&str]) -> Client {
    client_of(hub.kubeconfig(user, groups)).await
}

async fn client_of(kubeconfig: Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    addon_signer_platform::connection::connect(config.unwrap()).unwrap()
}

pub(crate) async fn mk_admin(hub: &StandIn) -> Client {
    mk_client(hub, "admin", &["system:masters"]).await
}

fn mk_config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(BTreeMap::from([("k".to_owned(), "v".to_owned())]));
    map
}

pub(crate) fn mk_csr(signer: &str) -> CertificateSigningRequest {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let mut csr = CertificateSigningRequest::default();
    csr.metadata.generate_name = Some("csr-".to_owned());
    csr.spec.signer_name = signer.to_owned();
    csr.spec.usages = Some(vec!["client auth".to_owned()]);
    csr.spec.request = ByteString(request.into_bytes());
    csr
}

/// The code of the `Status` that refused a request.
fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer of the API: {other}"),
    }
}

#[tokio::test]
async fn objects_are_created_listed_patched_and_deleted() {
    let hub = mk_hub().await;
    let api: Api<ConfigMap> = Api::namespaced(mk_admin(&hub).await, "default");
    let created = api.create(&PostParams::default(), &mk_config_map("a")).await.unwrap();
    assert!(created.uid().is_some());
    assert!(created.resource_version().is_some());
    let again = api.create(&PostParams::default(), &mk_config_map("a")).await;
    assert_eq!(code(again), 409);

    let merge = Patch::Merge(json!({ "metadata": { "labels": { "x": "y" } } }));
    api.patch("a", &PatchParams::default(), &merge).await.unwrap();
    let stale = api.replace("a", &PostParams::default(), &created).await;
    assert_eq!(code(stale), 409);
    let apply = api.patch("b", &PatchParams::apply("t"), &Patch::Apply(mk_config_map("b"))).await;
    assert_eq!(code(apply), 415);

    let labelled = api.list(&ListParams::default().labels("x=y")).await;
    assert_eq!(labelled.unwrap().items.len(), 1);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_list_comes_in_pages_and_as_metadata() {
    let hub = mk_hub().await;
    let api: Api<ConfigMap> = Api::namespaced(mk_admin(&hub).await, "default");
    for i in 0..5 {
        let map = mk_config_map(&format!("m{i}"));
        api.create(&PostParams::default(), &map).await.unwrap();
    }
    let mut names = Vec::new();
    let mut params = ListParams::default().limit(2);
    let mut pages = 0;
    loop {
        let page = api.list(&params).await.unwrap();
        pages += 1;
        names.extend(page.items.iter().map(ResourceExt::name_any));
        let Some(token) = page.metadata.continue_ else {
            break;
        };
        params = params.continue_token(&token);
    }
    assert_eq!(pages, 3);
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
    let metadata = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items.len(), 5);
}

#[tokio::test]
async fn unknown_tokens_are_unauthorized_and_big_bodies_too_large() {
    let hub = mk_hub().await;
    let mut kubeconfig = hub.kubeconfig("bob", &[]);
    for named in &mut kubeconfig.auth_infos {
        named.auth_info.as_mut().unwrap().token = Some("guess".to_owned().into());
    }
    let refused = Api::<Namespace>::all(client_of(kubeconfig).await).list(&ListParams::default()).await;
    assert_eq!(code(refused), 401);

    let api: Api<ConfigMap> = Api::namespaced(mk_admin(&hub).await, "default");
    let mut big = mk_config_map("big");
    big.data = Some(BTreeMap::from([("k".to_owned(), "x".repeat(3 * 1024 * 1024))]));
    assert_eq!(code(api.create(&PostParams::default(), &big).await), 413);
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let refused = StandIn::start("0.0.0.0:0".parse().unwrap()).await;
    assert!(matches!(refused, Err(StandInError::NotLoopback(_))));
    let hub = mk_hub().await;
    let address = hub.url().strip_prefix("https://").unwrap().parse().unwrap();
    let taken = StandIn::start(address).await;
    assert!(matches!(taken, Err(StandInError::Listen { .. })));
    drop(hub);
    let freed = async {
        while StandIn::start(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, freed).await.unwrap();
}

#[tokio::test]
async fn the_requester_of_a_csr_is_the_caller() {
    let hub = mk_hub().await;
    let api: Api<CertificateSigningRequest> = Api::all(mk_client(&hub, "agent", &["agents"]).await);
    let mut csr = mk_csr("example.com/telemetry");
    csr.spec.username = Some("root".to_owned());
    let created = api.create(&PostParams::default(), &csr).await.unwrap();
    assert_eq!(created.spec.username.as_deref(), Some("agent"));
    assert_eq!(created.spec.groups.as_deref(), Some(&["agents".to_owned(), "system:authenticated".to_owned()][..]));

    csr.spec.request = ByteString(b"junk".to_vec());
    assert_eq!(code(api.create(&PostParams::default(), &csr).await), 422);

    let impersonated = |user: &str| {
        let mut kubeconfig = hub.kubeconfig(user, &["system:masters"]);
        let auth = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
        auth.impersonate = Some("somebody".to_owned());
        auth.impersonate_groups = Some(vec!["else".to_owned()]);
        kubeconfig
    };
    let client = client_of(impersonated("admin")).await;
    let api: Api<CertificateSigningRequest> = Api::all(client);
    let created = api.create(&PostParams::default(), &mk_csr("example.com/telemetry")).await.unwrap();
    assert_eq!(created.spec.username.as_deref(), Some("somebody"));
}

#[tokio::test]
async fn a_csr_is_approved_and_signed_in_two_writes() {
    let hub = mk_hub().await;
    let api: Api<CertificateSigningRequest> = Api::all(mk_admin(&hub).await);
    let csr = mk_csr("example.com/telemetry");
    let mut csr = api.create(&PostParams::default(), &csr).await.unwrap();
    let name = csr.name_any();
    let approved = CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        ..CertificateSigningRequestCondition::default()
    };
    csr.status.get_or_insert_default().conditions = Some(vec![approved]);
    let mut csr = api.replace_subresource("approval", &name, &PostParams::default(), &csr).await.unwrap();

    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem().into_bytes();
    csr.status.get_or_insert_default().certificate = Some(ByteString(pem.clone()));
    csr.annotations_mut().insert("a".to_owned(), "b".to_owned());
    let stale = csr.clone();
    let signed = api.replace_status(&name, &PostParams::default(), &csr).await.unwrap();
    assert_eq!(signed.annotations()["a"], "b");
    let status = signed.status.unwrap();
    assert_eq!(status.certificate, Some(ByteString(pem)));
    assert!(status.conditions.unwrap()[0].last_transition_time.is_some());
    let again = api.replace_status(&name, &PostParams::default(), &stale).await;
    assert_eq!(code(again), 409);
    let other = Patch::Merge(json!({ "status": { "certificate": "eA==" } }));
    let params = PatchParams::default();
    assert_eq!(code(api.patch_status(&name, &params, &other).await), 422);
}

#[tokio::test]
async fn a_watch_with_a_selector_sees_objects_come_and_go() {
    let hub = mk_hub().await;
    let api: Api<ConfigMap> = Api::namespaced(mk_admin(&hub).await, "default");
    let created = api.create(&PostParams::default(), &mk_config_map("a")).await;
    let version = created.unwrap().resource_version().unwrap();
    let params = WatchParams::default().labels("x=y").timeout(10);
    let mut events = api.watch(&params, &version).await.unwrap().boxed();
    for label in [json!("y"), json!("z")] {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "x": label } } }));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    let first = timeout(SOON, events.try_next()).await.unwrap().unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(_))), "{first:?}");
    let second = timeout(SOON, events.try_next()).await.unwrap().unwrap();
    assert!(matches!(second, Some(WatchEvent::Deleted(_))), "{second:?}");
}

/// Waits until the watcher has reported the object of this name.
async fn seen(
    stream: &mut (impl futures::Stream<Item = watcher::Result<watcher::Event<ConfigMap>>> + Unpin),
    name: &str,
) {
    let found = async {
        while let Some(event) = stream.next().await {
            if let Ok(watcher::Event::Apply(map) | watcher::Event::InitApply(map)) = event
                && map.name_any() == name
            {
                return;
            }
        }
        panic!("the watcher ended");
    };
    timeout(SOON, found).await.unwrap();
}

#[tokio::test]
async fn a_watcher_survives_the_server_going_away() {
    let hub = mk_hub().await;
    let api: Api<ConfigMap> = Api::namespaced(mk_admin(&hub).await, "default");
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let prefix = format!("{:?}", config.initial_list_strategy).to_lowercase();
        let name = |suffix: &str| format!("{}-{suffix}", &prefix[..4]);
        let backoff = Duration::from_millis(50);
        let stream = watcher(api.clone(), config).then(|event| async {
            if event.is_err() {
                tokio::time::sleep(backoff).await;
            }
            event
        });
        let mut stream = std::pin::pin!(stream);
        let before = mk_config_map(&name("before"));
        api.create(&PostParams::default(), &before).await.unwrap();
        seen(&mut stream, &name("before")).await;

        hub.pause().await;
        assert!(api.list(&ListParams::default()).await.is_err());
        hub.resume().await;
        let after = mk_config_map(&name("after"));
        let created = api.create(&PostParams::default(), &after).await;
        created.unwrap();
        seen(&mut stream, &name("after")).await;
    }
}

#[tokio::test]
async fn a_controller_reconciles_csrs_of_one_signer() {
    let hub = mk_hub().await;
    let client = mk_admin(&hub).await;
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let config = watcher::Config::default().fields("spec.signerName=example.com/mine");
    let (sender, mut names) = tokio::sync::mpsc::unbounded_channel();
    let reconcile = |csr: std::sync::Arc<CertificateSigningRequest>, sender: std::sync::Arc<_>| async move {
        let sender: &tokio::sync::mpsc::UnboundedSender<String> = &sender;
        sender.send(csr.spec.signer_name.clone()).unwrap();
        Ok::<_, std::io::Error>(Action::await_change())
    };
    let controller = Controller::new(api.clone(), config)
        .run(reconcile, |_, _, _| Action::await_change(), std::sync::Arc::new(sender))
        .for_each(|_| std::future::ready(()));
    let task = tokio::spawn(controller);
    for signer in ["example.com/other", "example.com/mine"] {
        api.create(&PostParams::default(), &mk_csr(signer)).await.unwrap();
    }
    let name = timeout(SOON, names.recv()).await.unwrap();
    assert_eq!(name.as_deref(), Some("example.com/mine"));
    task.abort();
}

#[tokio::test]
async fn an_event_of_the_recorder_is_seen_in_both_versions() {
    let hub = mk_hub().await;
    let client = mk_admin(&hub).await;
    let api: Api<Namespace> = Api::all(client.clone());
    let namespace = api.get("default").await.unwrap();
    let recorder = Recorder::new(client.clone(), Reporter::from("test"));
    let event = kube::runtime::events::Event {
        type_: EventType::Warning,
        reason: "Denied".to_owned(),
        note: Some("why".to_owned()),
        action: "Approve".to_owned(),
        secondary: None,
    };
    recorder.publish(&event, &namespace.object_ref(&())).await.unwrap();
    recorder.publish(&event, &namespace.object_ref(&())).await.unwrap();
    let params = ListParams::default().fields("involvedObject.name=default");
    let events = Api::<Event>::all(client).list(&params).await.unwrap();
    assert_eq!(events.items[0].message.as_deref(), Some("why"));
    assert_eq!(events.items.len(), 1, "the second one joins the series");
}

#[tokio::test]
async fn groups_and_the_version_are_discovered() {
    let hub = mk_hub().await;
    let client = mk_admin(&hub).await;
    let discovery = kube::discovery::Discovery::new(client.clone()).run().await.unwrap();
    let group = discovery.get("addon.open-cluster-management.io").unwrap();
    assert_eq!(group.preferred_version(), Some("v1alpha1"));
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
}
