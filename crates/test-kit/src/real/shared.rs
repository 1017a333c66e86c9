//! API servers that tests use one after the other: each start takes five seconds of a core.
//!
//! Whoever takes one deletes from etcd what the test before has left. A server is not used again if that test has
//! changed what all tests share, such as OCM's CRDs.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{SemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};

use super::etcd::Etcd;
use super::server::{Server, WITHOUT_FSYNC};
use crate::deploy::{apply, installed};
use crate::objects::create;
use crate::wait::{TIMEOUT, wait_until};
use crate::{AddOnApi, client, crds};

/// What the API server changes by itself.
const ITS_OWN: [&str; 7] = [
    API_SERVICES,
    "/registry/flowschemas/",
    IDENTITY,
    "/registry/masterleases/",
    "/registry/peerserverleases/",
    "/registry/prioritylevelconfigurations/",
    "/registry/ranges/",
];
/// The API server goes on to serve these for a moment after they are deleted.
const SERVED: [&str; 4] = [
    "/registry/apiextensions.k8s.io/",
    "/registry/mutatingwebhookconfigurations/",
    "/registry/validatingwebhookconfigurations/",
    API_SERVICES,
];
/// It applies these for some seconds after they are deleted.
const POLICIES: [&str; 2] = ["/registry/validatingadmissionpolicies/", "/registry/validatingadmissionpolicybindings/"];
/// The name of a policy, and of the ConfigMap that it refuses.
const LAST_POLICY: &str = "last-policy";
/// Where the API server says that it is there.
const IDENTITY: &str = "/registry/leases/kube-system/apiserver-";
const MOMENT: Duration = Duration::from_millis(50);
const API_SERVICES: &str = "/registry/apiregistration.k8s.io/apiservices/";
const REGISTERED: Duration = Duration::from_secs(30);

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: VecDeque::new(), in_use: 0 });

struct Pool {
    idle: VecDeque<Shared>,
    in_use: usize,
}

/// A server with OCM's CRDs and ours.
pub(super) struct Shared {
    pub(super) server: Arc<Server>,
    api: AddOnApi,
    /// What it has in etcd without any test: each key, and the revision in which it was written.
    keys: BTreeMap<String, String>,
}

impl Shared {
    /// A server on which there is nothing of another test.
    pub(super) async fn take(api: AddOnApi) -> Self {
        while let Some(server) = Self::idle(api) {
            if server.server.is_running() && timeout(TIMEOUT, server.is_cleaned()).await.unwrap_or(false) {
                return server;
            }
        }
        make_room();
        Self::start(api).await
    }

    /// One that nobody uses.
    fn idle(api: AddOnApi) -> Option<Self> {
        let idle = &mut POOL.lock().idle;
        let at = idle.iter().position(|server| server.api == api)?;
        idle.remove(at)
    }

    async fn start(api: AddOnApi) -> Self {
        let server = Server::start(&[WITHOUT_FSYNC]).await;
        let admin = client(server.kubeconfig("admin", &["system:masters"])).await;
        crds::install(&admin, server.binaries(), api).await;
        crds::grant_agent_rights(&admin).await;
        let mut ours = installed();
        ours.retain(|object| object["kind"] == "CustomResourceDefinition");
        apply(&admin, &ours).await;
        let served = served(&admin).await;
        for Served { group, version, plural } in &served {
            let list = format!("/apis/{group}/{version}/{plural}?limit=1");
            // The API server refuses until it has made what serves the list.
            let answers = async || admin.request_text(Request::get(&list).body(Vec::new()).unwrap()).await.ok();
            wait_until(REGISTERED, &format!("{list} to be answered"), answers).await;
        }
        let mut etcd = Etcd::connect(server.etcd_port()).await;
        let registered: Vec<_> = served.iter().map(Served::api_service).collect();
        let keys = wait_until(REGISTERED, "the API server to register its APIs", async || {
            Some(etcd.revisions().await).filter(|all| registered.iter().all(|key| all.contains_key(key)))
        })
        .await;
        Self { server: Arc::new(server), api, keys }
    }

    /// Deletes what a test has left, until nothing is left: a call that it had begun may end meanwhile. Returns false
    /// if it has changed what all tests share.
    async fn is_cleaned(&self) -> bool {
        let mut etcd = Etcd::connect(self.server.etcd_port()).await;
        let mut has_policies = false;
        loop {
            let mut now = etcd.revisions().await;
            now.retain(|key, _| !key.starts_with(IDENTITY));
            for (key, revision) in &self.keys {
                let is_same = now.remove(key).is_some_and(|now| now == *revision);
                if !is_same && !begins_with(key, &ITS_OWN) {
                    return false;
                }
            }
            if now.keys().any(|key| begins_with(key, &SERVED)) {
                return false;
            }
            has_policies |= now.keys().any(|key| begins_with(key, &POLICIES));
            if now.is_empty() && !has_policies {
                return true;
            }
            if now.is_empty() {
                if self.forget_policies().await.is_err() {
                    return false;
                }
                has_policies = false;
                continue;
            }
            etcd.delete(now.keys()).await;
            sleep(MOMENT).await; // what the API server is about to write comes
        }
    }

    /// Waits until the API server applies no policy that was deleted. It learns of all in their order, so it has learnt
    /// of these when it applies a later one, and then no longer.
    async fn forget_policies(&self) -> kube::Result<()> {
        let admin = client(self.server.kubeconfig("admin", &["system:masters"])).await;
        let policies = Api::<ValidatingAdmissionPolicy>::all(admin.clone());
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(admin.clone());
        let rule =
            json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"] });
        let policy = json!({ "metadata": { "name": LAST_POLICY }, "spec": {
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": format!("object.metadata.name != '{LAST_POLICY}'") }],
        } });
        let binding = json!({
            "metadata": { "name": LAST_POLICY },
            "spec": { "policyName": LAST_POLICY, "validationActions": ["Deny"] },
        });
        create(&policies, policy).await;
        create(&bindings, binding).await;
        let maps = Api::<ConfigMap>::namespaced(admin, "default");
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let metadata = ObjectMeta { name: Some(LAST_POLICY.to_owned()), ..ObjectMeta::default() };
        let refused = ConfigMap { metadata, ..ConfigMap::default() };
        let passes = async || maps.create(&dry_run, &refused).await.is_ok();
        while passes().await {
            sleep(MOMENT).await;
        }
        bindings.delete(LAST_POLICY, &DeleteParams::default()).await?;
        policies.delete(LAST_POLICY, &DeleteParams::default()).await?;
        while !passes().await {
            sleep(MOMENT).await;
        }
        Ok(())
    }

    /// Lets another test have the server once the returned value is gone, and with it everything that the present test
    /// still runs: what it has aborted goes when its runtime turns to the next task, or ends.
    pub(super) fn until_dropped(self, slot: SemaphorePermit<'static>) -> oneshot::Sender<Infallible> {
        POOL.lock().in_use += 1;
        let (held, gone) = oneshot::channel();
        let returned = Returned { shared: Some(self), _slot: slot };
        tokio::spawn(async move {
            let _returned = returned;
            gone.await.ok(); // an error says that it is gone
        });
        held
    }
}

/// Ends a server that nobody uses, if there is one: each needs memory.
pub(super) fn make_room() {
    let idle = POOL.lock().idle.pop_front();
    drop(idle); // it takes a while, and nobody else should wait for it
}

struct Returned {
    shared: Option<Shared>,
    _slot: SemaphorePermit<'static>,
}

impl Drop for Returned {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        pool.in_use -= 1;
        // Another owner is a hub that outlives its test's runtime.
        pool.idle.extend(self.shared.take().filter(|it| !it.server.is_worn() && Arc::strong_count(&it.server) == 1));
        // Perhaps this was the last test.
        let unused = if pool.in_use == 0 { std::mem::take(&mut pool.idle) } else { VecDeque::new() };
        drop(pool);
        drop(unused);
    }
}

/// What a CRD serves.
struct Served {
    group: String,
    version: String,
    plural: String,
}

impl Served {
    /// The key of the APIService that the API server makes for it.
    fn api_service(&self) -> String {
        format!("{API_SERVICES}{}.{}", self.version, self.group)
    }
}

async fn served(admin: &Client) -> Vec<Served> {
    let crds = Api::<CustomResourceDefinition>::all(admin.clone()).list(&ListParams::default()).await.unwrap();
    let of = |crd: CustomResourceDefinition| {
        let (group, plural) = (crd.spec.group, crd.spec.names.plural);
        let versions = crd.spec.versions.into_iter().filter(|version| version.served);
        versions.map(move |it| Served { group: group.clone(), version: it.name, plural: plural.clone() })
    };
    crds.items.into_iter().flat_map(of).collect()
}

fn begins_with(key: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix))
}
