//! Tests of the stand-in with the `kube` client, and what those of kubectl in `stand_in_kubectl` need. Its rules have
//! tests beside them, and all that the hub does with it is tested on the real API server as well.

use std::time::Duration;

use ::stand_in::{StandIn, StandInError};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::KubeConfigOptions;
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

/// How long a step of these tests may take; no machine needs longer.
const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn mk_hub() -> StandIn {
    // This fails if another test of this binary has installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    StandIn::start("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

pub(crate) async fn mk_admin(hub: &StandIn) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(hub.kubeconfig("admin", &["system:masters"]), &options).await;
    addon_signer_platform::connection::connect(config.unwrap()).unwrap()
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
async fn a_watch_with_a_selector_sees_objects_come_and_go() {
    let hub = mk_hub().await;
    let api: Api<ConfigMap> = Api::namespaced(mk_admin(&hub).await, "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".to_owned());
    let created = api.create(&PostParams::default(), &map).await;
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
