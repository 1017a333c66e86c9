//! Checks before the hub runs: its account, its rights, and the kinds that the API server serves.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, anyhow};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::client::AuthError;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use addon_signer_api::kept::Kept;
use addon_signer_api::ocm::{ADDON_GROUP, AddOnApi};
use addon_signer_api::request::BoundedCsr;
use addon_signer_api::{AddOnRoute, AddOnSigner, Guarded, Lenient};
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::names::LABEL_GATEWAY;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::store::LineageNames;
use addon_signer_hub::registrations::registry::{RegistryError, discover};
use addon_signer_platform::backoff::Pauses;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{self, Selector};
use addon_signer_telemetry::pulse::Pulse;

/// The pauses between two attempts. Kubernetes could take up to five minutes to restart a process that exits.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// How long a refusal is not trusted after the API server was unavailable: while it starts, it has not read all roles
/// and CRDs yet, so it refuses what it will allow later.
const STARTING: Duration = Duration::from_secs(30);
/// How long a refusal is not trusted at first: the API server may have only just started.
const CONFIRMED_AFTER: Duration = Duration::from_secs(5);

/// What the hub must know before it runs.
pub(crate) struct Preflight {
    /// The hub's own account.
    pub(crate) account: String,
    /// The version of ManagedClusterAddOn to use.
    pub(crate) addon_api: AddOnApi,
}

/// Why the hub cannot run now.
#[derive(Debug)]
enum Obstacle {
    /// It may resolve by itself: the API server is unavailable, starting, or overloaded.
    Passing(String),
    /// An administrator must change something.
    Lasting(anyhow::Error),
}

impl Obstacle {
    /// `refused` explains a lasting refusal of the request.
    fn new(error: kube::Error, refused: impl FnOnce() -> String) -> Self {
        let cause = explain(&error);
        match &error {
            kube::Error::Api(status) => match status.code {
                408 | 429 | 500.. => Self::Passing(format!("the API server cannot answer now: {cause}")),
                _ => Self::Lasting(anyhow::Error::new(error).context(refused())),
            },
            kube::Error::SerdeError(_) => {
                let cause = "the answer is not from an API server; check the address in the kubeconfig";
                Self::Lasting(anyhow::Error::new(error).context(cause))
            }
            kube::Error::Service(inner) if inner.is::<AuthError>() => Self::Passing(format!(
                "the credential for the API server cannot be used; check the kubeconfig: {cause}"
            )),
            _ => Self::Passing(format!(
                "the API server does not answer; check the kubeconfig, and whether the API server is reachable: {cause}"
            )),
        }
    }
}

/// The process whose rights are checked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rights<'a> {
    /// A process that signs.
    Signer,
    /// A gateway that signs nothing.
    Gateway {
        /// The name of its Lease.
        lease: &'a str,
    },
}

/// Asks until the process may run. `waits` gets the present obstacle; each change of that is logged.
///
/// # Errors
/// What does not resolve by itself: the first missing right or CRD, or an account that the API server refuses.
pub(crate) async fn preflight(
    client: &Client,
    namespace: &str,
    rights: Rights<'_>,
    waits: &watch::Sender<Option<String>>,
    pulse: Pulse,
) -> anyhow::Result<Preflight> {
    let mut pauses = Pauses::new(SHORTEST, LONGEST);
    let mut believed_from = Instant::now() + CONFIRMED_AFTER;
    loop {
        pulse.beat();
        let reason = match ask(client, namespace, rights).await {
            Ok(found) => {
                waits.send_replace(None);
                return Ok(found);
            }
            Err(Obstacle::Passing(reason)) => {
                believed_from = Instant::now() + STARTING;
                reason
            }
            Err(Obstacle::Lasting(error)) if Instant::now() < believed_from => {
                let error: &(dyn Error + 'static) = error.as_ref();
                explain(error)
            }
            Err(Obstacle::Lasting(error)) => return Err(error),
        };
        if waits.borrow().as_ref() != Some(&reason) {
            warn!(reason, "The hub cannot run yet; retrying");
            waits.send_replace(Some(reason));
        }
        tokio::time::sleep(pauses.after_failure()).await;
    }
}

async fn ask(client: &Client, namespace: &str, rights: Rights<'_>) -> Result<Preflight, Obstacle> {
    let account = account(client).await?;
    let role = match rights {
        Rights::Signer => "addon-signer-hub",
        Rights::Gateway { .. } => "addon-signer-gateway",
    };
    let asking = Asking { client, account: &account, namespace, role };
    match rights {
        Rights::Signer => {
            asking.check_requests().await?;
            asking.check_lease(LEASE_NAME).await?;
            asking.check_gateways().await?;
            asking.check_pods().await?;
        }
        Rights::Gateway { lease } => {
            asking.check_lease(lease).await?;
            asking.check_lineages().await?;
        }
    }
    asking.check_what_all_read().await?;
    let addon_api = discover(client).await.map_err(|error| match error {
        RegistryError::Discovery(error) => {
            Obstacle::new(error, || format!("{account} cannot discover the resources of the API server"))
        }
        error => Obstacle::Lasting(error.into()),
    })?;
    Ok(Preflight { account, addon_api })
}

async fn account(client: &Client) -> Result<String, Obstacle> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let review = review.map_err(|error| {
        Obstacle::new(error, || "the API server does not accept this process; check the kubeconfig".to_owned())
    })?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.context("the API server does not say which account this process has").map_err(Obstacle::Lasting)
}

/// Checks the rights before the watches start, because a watch without the right would retry forever.
struct Asking<'a> {
    client: &'a Client,
    account: &'a str,
    namespace: &'a str,
    /// The role of the chart that gives the account its rights.
    role: &'static str,
}

impl Asking<'_> {
    async fn check_what_all_read(&self) -> Result<(), Obstacle> {
        self.check_ours::<AddOnSigner>().await?;
        // Without these rights the gateway would have no routes.
        self.check_ours::<AddOnRoute>().await?;
        self.check_definition().await?;
        self.check_protected().await
    }

    fn cannot(&self, what: &str) -> String {
        let Self { account, role, .. } = self;
        format!("{account} cannot {what}; the chart's role {role} allows it: install the chart again")
    }

    async fn check_requests(&self) -> Result<(), Obstacle> {
        let requests: Api<BoundedCsr> = Api::all(self.client.clone());
        let listed = listing::any(&requests, &Selector::all()).await;
        listed.map(drop).map_err(|error| Obstacle::new(error, || self.cannot("list certificatesigningrequests")))
    }

    async fn check_lease(&self, name: &str) -> Result<(), Obstacle> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), self.namespace);
        let lacks = || self.cannot(&format!("get the Lease {name} in the namespace {}", self.namespace));
        leases.get_opt(name).await.map(drop).map_err(|error| Obstacle::new(error, lacks))
    }

    /// Without this right no new authority would sign, because it waits for the gateways.
    async fn check_gateways(&self) -> Result<(), Obstacle> {
        let kind = ApiResource::erase::<Lease>(&());
        let leases: Api<Lenient<DynamicObject>> = Api::namespaced_with(self.client.clone(), self.namespace, &kind);
        let lacks = || self.cannot(&format!("list leases in the namespace {}", self.namespace));
        let listed = listing::any(&leases, &Selector::labels(LABEL_GATEWAY)).await;
        listed.map(drop).map_err(|error| Obstacle::new(error, lacks))
    }

    /// Without this right no CSR of a gateway in a pod would be decided. The pod of this name need not exist.
    async fn check_pods(&self) -> Result<(), Obstacle> {
        let pods: Api<Lenient<Pod>> = Api::namespaced(self.client.clone(), self.namespace);
        let lacks = || self.cannot(&format!("get pods in the namespace {}", self.namespace));
        pods.get_opt("addon-signer").await.map(drop).map_err(|error| Obstacle::new(error, lacks))
    }

    /// Without this right the gateway would get no certificate.
    async fn check_lineages(&self) -> Result<(), Obstacle> {
        let maps: Api<Lenient<ConfigMap>> = Api::namespaced(self.client.clone(), self.namespace);
        for certificate in GatewayCertificate::ALL {
            let name = LineageNames::gateway(certificate).config_map;
            let one = Selector::fields(&format!("metadata.name={name}"));
            let lacks = || self.cannot(&format!("list the ConfigMap {name} in the namespace {}", self.namespace));
            listing::any(&maps, &one).await.map_err(|error| Obstacle::new(error, lacks))?;
        }
        Ok(())
    }

    /// Checks that objects of a kind can be read.
    async fn check_ours<K>(&self) -> Result<(), Obstacle>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Kept,
    {
        // An undecodable object is reported later, on that object.
        let objects: Api<Guarded<K>> = Api::all(self.client.clone());
        match listing::any(&objects, &Selector::all()).await {
            Ok(_) => Ok(()),
            // Without the CRD the response is plain text, from which kube cannot read the reason.
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Obstacle::Lasting(anyhow!(
                "the API server does not know {}: install the chart first (docs/install.md)",
                K::kind(&())
            ))),
            Err(error) => Err(Obstacle::new(error, || self.cannot(&format!("list {}", K::plural(&()))))),
        }
    }

    /// Without this right a version of ManagedClusterAddOn could be read that needs OCM's webhook.
    async fn check_definition(&self) -> Result<(), Obstacle> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = format!("{}.{ADDON_GROUP}", AddOnApi::V1Beta1.resource().plural);
        let lacks = || self.cannot(&format!("get the CustomResourceDefinition {name}"));
        definitions.get_metadata_opt(&name).await.map(drop).map_err(|error| Obstacle::new(error, lacks))
    }

    /// Without this right the gateway would refuse all backends, because each could be the hub itself.
    async fn check_protected(&self) -> Result<(), Obstacle> {
        let one = Selector::all();
        let lacks =
            |what: &'static str| move || self.cannot(&format!("list {what} in the namespace {}", self.namespace));
        let pods: Api<Lenient<Pod>> = Api::namespaced(self.client.clone(), self.namespace);
        listing::any(&pods, &one).await.map_err(|error| Obstacle::new(error, lacks("pods")))?;
        let services: Api<Lenient<Service>> = Api::namespaced(self.client.clone(), self.namespace);
        listing::any(&services, &one).await.map_err(|error| Obstacle::new(error, lacks("services")))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use addon_signer_telemetry::pulse::{HANGS_AFTER, Pulses};

    const PLACE: &str = "addon-signer";

    /// How long the hub asks a server that first responds with `first` and then refuses, and its final error.
    async fn refused_after(first: u16) -> (Duration, String) {
        let asked = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn(move |_: Request<Body>| {
            let code = if asked.fetch_add(1, Ordering::Relaxed) == 0 { first } else { 403 };
            let status = json!({ "kind": "Status", "code": code, "message": "no" }).to_string();
            async move {
                Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(status.into_bytes())).unwrap())
            }
        });
        let client = Client::new(service, "default");
        let began = Instant::now();
        let waits = watch::Sender::new(None);
        let ended = preflight(&client, PLACE, Rights::Signer, &waits, Pulses::default().start("start")).await;
        (began.elapsed(), ended.err().unwrap().to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_counts_soon_but_later_after_api_server_outage() {
        const SENTENCE: &str = "the API server does not accept this process; check the kubeconfig";
        // With 200 it is not a response of an API server.
        for code in [200, 401, 403, 404] {
            let (after, sentence) = refused_after(code).await;
            assert!(after >= CONFIRMED_AFTER, "{code}: {after:?} {sentence}");
            assert!(after < 2 * CONFIRMED_AFTER, "{code}: {after:?} {sentence}");
            assert!(sentence == SENTENCE, "{code}: {after:?} {sentence}");
        }
        for code in [408, 429, 500, 503] {
            let (after, sentence) = refused_after(code).await;
            assert!(after >= STARTING, "{code}: {after:?} {sentence}");
            assert!(after < 2 * STARTING, "{code}: {after:?} {sentence}");
            assert!(sentence == SENTENCE, "{code}: {after:?} {sentence}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unusable_credential_is_named_and_attempts_are_signs_of_life() {
        let refused = async |_: Request<Body>| Err::<Response<Body>, _>(AuthError::UnrefreshableTokenResponse);
        let service = tower::service_fn(refused);
        let client = Client::new(service, "default");
        let (waits, pulses) = (watch::Sender::new(None), Pulses::default());
        // It is kept running, because a task that has ended counts as healthy.
        let mut asking = pin!(preflight(&client, PLACE, Rights::Signer, &waits, pulses.start("start")));
        assert!(tokio::time::timeout(2 * HANGS_AFTER, &mut asking).await.is_err());
        assert!(pulses.silent(2 * LONGEST).is_empty());
        let sentence = waits.borrow().clone().unwrap();
        assert!(sentence.starts_with("the credential for the API server cannot be used"), "{sentence}");
    }

    /// A role of an earlier version may list pods, but not get them.
    #[tokio::test]
    async fn signer_that_may_not_get_pods_does_not_start() {
        let service = tower::service_fn(async |request: Request<Body>| {
            let path = request.uri().path();
            let (code, body) = if path.ends_with("/selfsubjectreviews") {
                (201, json!({ "status": { "userInfo": { "username": "hub" } } }))
            } else if path.contains("/pods/") {
                (403, json!({ "kind": "Status", "code": 403, "reason": "Forbidden" }))
            } else if path.contains("/leases/") {
                (404, json!({ "kind": "Status", "code": 404, "reason": "NotFound" }))
            } else {
                (200, json!({ "metadata": {}, "items": [] }))
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        });
        let asked = ask(&Client::new(service, "default"), PLACE, Rights::Signer).await;
        let Err(Obstacle::Lasting(sentence)) = asked else { panic!("it starts, or tries again") };
        let sentence = sentence.to_string();
        assert!(
            sentence.starts_with("hub cannot get pods in the namespace addon-signer; the chart's role"),
            "{sentence}"
        );
    }

    #[tokio::test]
    async fn unreadable_object_time_does_not_stop_hub_from_running() {
        let service = tower::service_fn(async |request: Request<Body>| {
            let path = request.uri().path();
            let managers = json!([{ "manager": "m", "operation": "Update", "time": "9999-12-31T23:59:59Z" }]);
            let mut item = json!({ "metadata": { "name": "a", "managedFields": managers }, "spec": {} });
            if path.ends_with("/addonsigners") {
                item["spec"] = json!({ "signerName": "a.b/c", "addOns": ["t"] });
            }
            let (code, body) = if path.contains("/leases/") {
                (404, json!({ "kind": "Status", "code": 404, "reason": "NotFound" }))
            } else {
                (200, json!({ "metadata": {}, "items": [item] }))
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        });
        let client = Client::new(service, "default");
        let asking = Asking { client: &client, account: "hub", namespace: "ns", role: "addon-signer-hub" };
        asking.check_requests().await.unwrap();
        asking.check_lease(LEASE_NAME).await.unwrap();
        asking.check_lineages().await.unwrap();
        asking.check_ours::<AddOnSigner>().await.unwrap();
        asking.check_protected().await.unwrap();
    }
}
