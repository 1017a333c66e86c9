//! cert-manager beside a real hub: its CRDs, and those of its controllers that sign CertificateRequests. Its webhook is
//! missing, which would fill in who made a request, keep its spec as it is, and ask RBAC who may approve it.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::objects::{create, create_namespace};
use super::pki::{PemPair, base64};
use super::process::Process;
use super::real::RealHub;
use super::wait::{TIMEOUT, wait_or_explain};
use super::{client, crds};

pub const GROUP: &str = "cert-manager.io";
/// The program beside kube-apiserver.
pub const PROGRAM: &str = "cert-manager-controller";
/// Where the Secrets of ClusterIssuers are.
pub const NAMESPACE: &str = "cert-manager";

/// Who approves CertificateRequests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Approver {
    /// cert-manager approves all for its own issuers, as its chart does by default.
    CertManager,
    /// The test, by [`CertManager::decide`].
    Test,
}

/// Running controllers. Dropping the value ends them, and their objects stay.
pub struct CertManager {
    process: Process,
    admin: Client,
    /// A ClusterIssuer that signs with the requester's own key.
    pub self_signed: String,
}

impl CertManager {
    /// Applies the CRDs, starts the controllers and waits until they have made a ClusterIssuer ready.
    pub async fn start(hub: &RealHub, approver: Approver) -> Self {
        let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
        crds::install_cert_manager(&admin, &hub.binary("")).await;
        create_namespace(&admin, NAMESPACE).await;
        let kubeconfig = hub.kubeconfig_file(PROGRAM, PROGRAM, &["system:masters"]);
        let mut flags = vec![format!("--kubeconfig={}", kubeconfig.display())];
        if approver == Approver::Test {
            flags.push("--without=certificaterequests-approver".to_owned());
        }
        let process = Process::start(&hub.binary(PROGRAM), &flags, hub.dir());
        let name = format!("started-{}", process.id()); // earlier controllers have not made it ready
        let started = Self { process, admin, self_signed: name.clone() };
        let issuers = Api::all_with(started.admin.clone(), &resource("ClusterIssuer"));
        let issuer = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer",
            "metadata": { "name": name }, "spec": { "selfSigned": {} },
        });
        create(&issuers, issuer).await;
        started.ready_by(&issuers, &name, "IsReady").await;
        started
    }

    /// Makes an Issuer of this name whose CA, with its chain, is in a Secret of the same name, and waits until
    /// cert-manager has read that.
    pub async fn add_ca_issuer(&self, namespace: &str, name: &str, ca: &PemPair) {
        create_namespace(&self.admin, namespace).await;
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.admin.clone(), namespace);
        let pair = json!({ "tls.crt": base64(ca.cert.as_bytes()), "tls.key": base64(ca.key.as_bytes()) });
        create(&secrets, json!({ "metadata": { "name": name }, "type": "kubernetes.io/tls", "data": pair })).await;
        let issuers = Api::namespaced_with(self.admin.clone(), namespace, &resource("Issuer"));
        let issuer = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
            "metadata": { "name": name }, "spec": { "ca": { "secretName": name } },
        });
        create(&issuers, issuer).await;
        self.ready_by(&issuers, name, "KeyPairVerified").await;
    }

    /// CertificateRequests of this namespace, with all rights.
    pub fn requests(&self, namespace: &str) -> Api<DynamicObject> {
        requests(&self.admin, namespace)
    }

    /// Gives a request the condition `Approved` or `Denied`. It must have none before.
    pub async fn decide(&self, namespace: &str, name: &str, condition: &str) {
        let decision = json!([{
            "type": condition, "status": "True", "reason": "test", "message": "by the test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let patch = Patch::Merge(json!({ "status": { "conditions": decision } }));
        self.requests(namespace).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the condition `Ready` of a request has this reason, such as `Issued`, `Pending`, `Failed` or
    /// `Denied`, and returns the request's status.
    pub async fn answered(&self, namespace: &str, name: &str, reason: &str) -> Value {
        self.ready_by(&self.requests(namespace), name, reason).await
    }

    /// Waits until the condition `Ready` of an object has this reason, and returns the object's status.
    async fn ready_by(&self, api: &Api<DynamicObject>, name: &str, reason: &str) -> Value {
        let what = format!("cert-manager to say {reason} of {name}");
        let probe = async || {
            let status = api.get_opt(name).await.ok()??.data.get("status")?.clone();
            (condition(&status, "Ready")?["reason"] == reason).then_some(status)
        };
        wait_or_explain(TIMEOUT, &what, probe, || self.process.tail()).await
    }
}

/// CertificateRequests of this namespace.
pub fn requests(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource("CertificateRequest"))
}

/// A condition of a status.
fn condition<'s>(status: &'s Value, of: &str) -> Option<&'s Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == of)
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind))
}
