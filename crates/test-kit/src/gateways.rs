//! Gateways in processes of their own, with the rights of the chart.

use addon_signer_core::csr::build::CsrParams;
use addon_signer_gateway::certificates::ServingNames;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::accounts::{GATEWAY_ACCOUNT, GATEWAY_USER, HUB_GROUPS};
use super::deploy::{apply, part};
use super::hub::TIMEOUT;
use super::request::mk_csr_of;
use super::{TestHub, client, wait_until};

const NAMESPACE: &str = "addon-signer";

/// Gives the gateways' account the rights of the chart.
pub async fn deploy_gateways(hub: &TestHub) {
    if hub.is_real() {
        apply(&hub.admin().await, &part("gateway")).await;
    }
}

/// The pod of a gateway, as its process sees it.
pub struct GatewayPod {
    /// With the pod's token.
    pub kubeconfig: Kubeconfig,
    /// `metadata.uid`; none on the stand-in, which knows no tokens of pods.
    pub uid: Option<String>,
}

impl GatewayPod {
    pub async fn client(&self) -> Client {
        client(self.kubeconfig.clone()).await
    }
}

/// Makes a pod of that name, with a token. Nobody runs the pod: what counts is that its name is in the token.
pub async fn gateway_pod(hub: &TestHub, pod: &str) -> GatewayPod {
    let mut config = hub.kubeconfig(GATEWAY_USER, &HUB_GROUPS);
    if !hub.is_real() {
        return GatewayPod { kubeconfig: config, uid: None };
    }
    let admin = hub.admin().await;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
    let restricted = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    let object = serde_json::from_value(json!({
        "metadata": { "name": pod },
        "spec": {
            "serviceAccountName": GATEWAY_ACCOUNT,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "hub", "image": "none", "securityContext": restricted }],
        },
    }))
    .unwrap();
    let pod = pods.create(&PostParams::default(), &object).await.unwrap();
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name_any()),
        uid: pod.uid(),
    };
    let spec = TokenRequestSpec {
        bound_object_ref: Some(bound),
        expiration_seconds: Some(86_400),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, NAMESPACE);
    let token = accounts.create_token_request(GATEWAY_ACCOUNT, &PostParams::default(), &request).await.unwrap();
    let user = json!({ "token": token.status.unwrap().token });
    config.auth_infos[0].auth_info = serde_json::from_value(user).unwrap();
    GatewayPod { kubeconfig: config, uid: pod.uid() }
}

/// What a request asks for, besides its usage: this subject, with these names or addresses.
pub fn wish(common_name: &str, names: &[&str]) -> CsrParams {
    let ServingNames { dns, ips } =
        ServingNames::of(&names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>());
    CsrParams {
        common_name: common_name.to_owned(),
        organizations: Vec::new(),
        dns_names: dns.into_iter().collect(),
        ip_addresses: ips.into_iter().collect(),
    }
}

/// A request as a gateway makes it.
pub fn mk_request(signer_name: &str, usage: &str, wish: &CsrParams) -> CertificateSigningRequest {
    let mut request = mk_csr_of("spoke1", "telemetry", wish);
    request.spec.signer_name = signer_name.to_owned();
    request.spec.usages = Some(vec!["digital signature".to_owned(), usage.to_owned()]);
    request.metadata.labels = None;
    request
}

/// Makes this request, and waits for its certificate or condition.
pub async fn answered(client: &Client, signer_name: &str, usage: &str, wish: &CsrParams) -> CertificateSigningRequest {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let request = mk_request(signer_name, usage, wish);
    let name = requests.create(&PostParams::default(), &request).await.unwrap().name_any();
    answer_to(client, &name).await
}

/// Waits for the certificate or the condition of this request.
pub async fn answer_to(client: &Client, name: &str) -> CertificateSigningRequest {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    wait_until(TIMEOUT, "an answer", async || {
        let found = requests.list(&one).await.unwrap().items.into_iter().next()?;
        let status = found.status.as_ref()?;
        (status.certificate.is_some() || status.conditions.is_some()).then_some(found)
    })
    .await
}
