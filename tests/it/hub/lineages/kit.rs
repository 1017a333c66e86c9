//! A lineage of authorities as an administrator sees it on the API server.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use addon_signer_api::status::AuthorityState;
use addon_signer_api::{AddOnSigner, AddOnSignerStatus};
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_core::names::{ANNOTATION_REVOKE_AUTHORITY, ANNOTATION_ROLL_BACK, ANNOTATION_TAINT};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::authorities::asked::AuthorityRequest;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::hub::{mk_csr, submit};
use test_kit::hub::{TIMEOUT, certificate, change_signer, wait_csr};
use test_kit::wait::wait_or_explain;
use test_kit::{TestHub, wait_for, wait_until};

const ROTATE: &str = "addon-signer.io/rotate";
static POKES: AtomicU32 = AtomicU32::new(0);

/// The Secret and the ConfigMap of a lineage.
pub(in crate::hub) struct OnServer {
    admin: Client,
    pub(super) secrets: Api<Secret>,
    pub(super) maps: Api<ConfigMap>,
    pub(super) secret: &'static str,
    pub(super) map: &'static str,
}

impl OnServer {
    /// The lineage of the signer telemetry.
    pub(in crate::hub) fn client(admin: &Client) -> Self {
        Self::named(admin, "telemetry-client-authorities", "telemetry-client-ca")
    }

    /// The gateway's lineage.
    pub(in crate::hub) fn serving(admin: &Client) -> Self {
        Self::named(admin, "addon-signer-serving-authorities", "addon-signer-trust")
    }

    /// The lineage of the certificate that the gateway shows to backends.
    pub(in crate::hub) fn gateway_client(admin: &Client) -> Self {
        Self::named(admin, "addon-signer-backend-authorities", "addon-signer-backend-trust")
    }

    fn named(admin: &Client, secret: &'static str, map: &'static str) -> Self {
        let secrets = Api::namespaced(admin.clone(), "addon-signer");
        let maps = Api::namespaced(admin.clone(), "addon-signer");
        Self { admin: admin.clone(), secrets, maps, secret, map }
    }

    /// The Secret's content.
    pub(in crate::hub) async fn data(&self) -> BTreeMap<String, ByteString> {
        self.secrets.get(self.secret).await.unwrap().data.unwrap()
    }

    /// Replaces the Secret's content.
    pub(in crate::hub) async fn set_data(&self, data: BTreeMap<String, ByteString>) {
        wait_until(TIMEOUT, "the Secret to be replaced", async || {
            let mut secret = self.secrets.get(self.secret).await.unwrap();
            secret.data = Some(data.clone());
            self.secrets.replace(self.secret, &PostParams::default(), &secret).await.ok()
        })
        .await;
    }

    /// The authorities in `line.json`.
    pub(in crate::hub) async fn members(&self) -> Option<Vec<Value>> {
        Some(members(&self.secrets.get_opt(self.secret).await.ok()??.data?))
    }

    /// Waits until the lineage has authorities in these states; returns their ids.
    pub(in crate::hub) async fn wait(&self, states: &[&str]) -> Vec<String> {
        let last = RefCell::new(None);
        let probe = async || {
            let members = self.members().await?;
            let found: Vec<_> = members.iter().map(|member| member["state"].as_str().unwrap()).collect();
            let ids = || members.iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect();
            let is_wanted = found == states;
            // Perhaps there is no signer, or an API server that does not answer: then it is not shown.
            let signer = Api::<AddOnSigner>::all(self.admin.clone()).get_opt("telemetry").await.ok().flatten();
            last.replace(Some((format!("{found:?}"), signer.and_then(|signer| signer.status))));
            is_wanted.then(ids)
        };
        let what = format!("the lineage {} to be {states:?}", self.secret);
        wait_or_explain(TIMEOUT, &what, probe, || format!("{:#?}", last.borrow())).await
    }

    /// The published anchors, if there are any.
    pub(in crate::hub) async fn bundle(&self) -> Option<Bundle> {
        let map = self.maps.get_opt(self.map).await.ok()??;
        Bundle::from_pem(map.data?.get("ca.crt")?.as_bytes()).ok()
    }

    /// Waits until the status has these authorities, of which the first one signs: what is issued now is by that one.
    pub(in crate::hub) async fn wait_signs(&self, ids: &[String]) {
        wait_until(TIMEOUT, &format!("the status to have {ids:?}"), async || {
            let authorities = self.status().await.authorities;
            let signs = authorities.first().is_some_and(|first| first.state == AuthorityState::Active);
            (signs && authorities.iter().map(|authority| &authority.id).eq(ids)).then_some(())
        })
        .await;
    }

    /// Waits until the status has these authorities in these states.
    pub(super) async fn wait_reported(&self, states: &[&str], ids: &[String]) {
        let wanted: Vec<_> = states.iter().zip(ids).map(|(state, id)| format!("{state} {id}")).collect();
        wait_until(TIMEOUT, &format!("the status to have {wanted:?}"), async || {
            let reported = self.status().await.authorities.into_iter().map(|it| format!("{:?} {}", it.state, it.id));
            reported.eq(wanted.iter().cloned()).then_some(())
        })
        .await;
    }

    /// Waits until exactly these anchors are published.
    pub(in crate::hub) async fn wait_bundle(&self, ids: &[String]) {
        wait_until(TIMEOUT, &format!("{} to hold {ids:?}", self.map), async || {
            let bundle = self.bundle().await?;
            let mut found: Vec<_> = bundle.authorities().iter().map(|a| a.id().to_string()).collect();
            let mut wanted = ids.to_vec();
            found.sort();
            wanted.sort();
            (found == wanted).then_some(())
        })
        .await;
    }

    /// Asks for a rotation on the ConfigMap.
    pub(in crate::hub) async fn rotate_by_map(&self, request: &str) {
        self.annotate(ROTATE, request).await;
    }

    /// Makes the hub look at the lineage at once, as it does by itself every 15 seconds.
    pub(super) async fn poke(&self) {
        let nth = POKES.fetch_add(1, Ordering::Relaxed).to_string();
        self.annotate("example.com/poke", &nth).await;
    }

    /// Waits until the hub has looked at the lineage with the time that its clock shows now. It publishes deleted
    /// anchors again; a round that had begun before may be the first to do so, but not the second.
    pub(in crate::hub) async fn reconcile(&self) {
        for _ in 0..2 {
            let before = self.maps.get(self.map).await.unwrap().metadata.uid;
            self.maps.delete(self.map, &Default::default()).await.unwrap();
            let is_new = |map: Option<&ConfigMap>| map.is_some_and(|map| map.metadata.uid != before);
            let again = await_condition(self.maps.clone(), self.map, is_new);
            wait_for(TIMEOUT, "the anchors to be published again", again).await.unwrap();
        }
    }

    /// The authority that signs, as the Secret has it.
    pub(super) async fn active(&self) -> Authority {
        let data = self.data().await;
        let members = members(&data);
        let id = members.iter().find(|member| member["state"] == "Active").unwrap()["id"].as_str().unwrap();
        let bundle = Bundle::from_pem(&data[&format!("{id}.crt")].0).unwrap();
        bundle.authorities()[0].clone()
    }

    async fn annotate(&self, name: &str, value: &str) {
        let change = json!({"metadata": {"annotations": {name: value}}});
        self.maps.patch(self.map, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// The status of the signer telemetry.
    pub(in crate::hub) async fn status(&self) -> AddOnSignerStatus {
        let signers: Api<AddOnSigner> = Api::all(self.admin.clone());
        signers.get("telemetry").await.unwrap().status.unwrap_or_default()
    }
}

/// The authorities that the content of a Secret names: Next, Active, Old.
pub(super) fn members(data: &BTreeMap<String, ByteString>) -> Vec<Value> {
    let lineage: Value = serde_json::from_slice(&data["line.json"].0).unwrap();
    lineage["authorities"].as_array().unwrap().clone()
}

/// Asks for a rotation of the signer telemetry as `ca rotate` does.
pub(in crate::hub) async fn rotate(admin: &Client, request: &str) {
    ask(admin, ROTATE, request).await;
}

/// Asks to give up an authority of the signer telemetry, as `ca rollback` does.
pub(super) async fn roll_back(admin: &Client, authority: &str) {
    ask(admin, ANNOTATION_ROLL_BACK, &AuthorityRequest::text(authority, Timestamp::from_unix(0), "ann")).await;
}

/// Taints an authority of the signer telemetry, as `ca taint` does.
pub(in crate::hub) async fn taint(admin: &Client, authority: &str) {
    ask(admin, ANNOTATION_TAINT, &AuthorityRequest::text(authority, Timestamp::from_unix(0), "ann")).await;
}

/// Revokes an authority of the signer telemetry, as `ca revoke` does.
pub(in crate::hub) async fn revoke(admin: &Client, authority: &str) {
    revoke_all(admin, &[authority]).await;
}

/// The same, for several authorities in this order.
pub(in crate::hub) async fn revoke_all(admin: &Client, authorities: &[&str]) {
    let text = |authority: &&str| AuthorityRequest::text(authority, Timestamp::from_unix(0), "ann");
    let requests: Vec<_> = authorities.iter().map(text).collect();
    ask(admin, ANNOTATION_REVOKE_AUTHORITY, &requests.join("\n")).await;
}

async fn ask(admin: &Client, annotation: &str, text: &str) {
    change_signer(admin, json!({"metadata": {"annotations": {annotation: text}}})).await;
}

/// Creates an AddOnSigner that the hub cannot decode, and waits until the hub says so. Only the stand-in, which has no
/// schema, accepts it.
pub(super) async fn create_undecodable(admin: &Client, name: &str) {
    let resource = ApiResource::erase::<AddOnSigner>(&());
    let spec = json!({"spec": {"signerName": format!("example.com/{name}"), "addOns": "telemetry"}});
    let object = DynamicObject::new(name, &resource).data(spec);
    let signers: Api<DynamicObject> = Api::all_with(admin.clone(), &resource);
    signers.create(&PostParams::default(), &object).await.unwrap();
    wait_until(TIMEOUT, "the hub to say so", async || {
        let object = signers.get(name).await.ok()?;
        (object.data["status"]["conditions"][0]["reason"] == "InvalidSpec").then_some(())
    })
    .await;
}

/// Gets a new certificate for spoke1.
pub(crate) async fn issue(hub: &TestHub, admin: &Client) -> CertificateDer<'static> {
    issue_to(hub, admin, "spoke1").await
}

/// Gets a new certificate for the agent on this cluster.
pub(super) async fn issue_to(hub: &TestHub, admin: &Client, cluster: &str) -> CertificateDer<'static> {
    let name = submit(hub, cluster, &mk_csr(cluster, "telemetry")).await;
    let pem = wait_csr(admin, &name, "issued", certificate).await;
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// The id of the authority that signed `leaf`.
pub(super) fn signed_by(bundle: &Bundle, leaf: &CertificateDer<'_>, now: Timestamp) -> String {
    bundle.verify(leaf, Purpose::Client, now).unwrap().id().to_string()
}
