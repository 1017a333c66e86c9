//! Authorities from outside: a Secret that a company fills, and certificates for CSRs of the hub, which a person
//! or cert-manager answers.

mod cert_manager;
mod imported;
mod meddled;
mod requested;
mod roots;
mod vault;

use std::cell::RefCell;

use addon_signer_core::names::ANNOTATION_AUTHORITY_OF;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::lineages::OnServer;
use test_kit::company::{CompanyCa, chain};
use test_kit::hub::{TIMEOUT, change_signer, wait_ready};
use test_kit::wait::wait_or_explain;

const NAMESPACE: &str = "addon-signer";
/// The Secret with the key of the next authority of telemetry.
const PENDING: &str = "telemetry-client-authorities-pending";

/// A Secret whose authority is that of the AddOnSigner search. All others are those of telemetry.
const OF_SEARCH: &str = "of-search";

/// An AddOnSigner whose authorities somebody else issues.
fn telemetry_of(issuer: Value) -> Value {
    json!({ "signerName": "example.com/telemetry", "addOns": ["telemetry"], "authority": { "issuer": issuer } })
}

/// Puts a pair into the Secret `company` as cert-manager writes it.
async fn put_pair(admin: &Client, certificates: &str, key: &str, root: &str) {
    put(admin, "company", &[("tls.crt", certificates), ("tls.key", key), ("ca.crt", root)]).await;
}

async fn put(admin: &Client, name: &str, data: &[(&str, &str)]) {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec()))).collect();
    let of = if name == OF_SEARCH { "search" } else { "telemetry" };
    let annotations = Some([(ANNOTATION_AUTHORITY_OF.to_owned(), of.to_owned())].into());
    let metadata = ObjectMeta { name: Some(name.to_owned()), annotations, ..ObjectMeta::default() };
    let mut secret = Secret { metadata, data: Some(data), ..Secret::default() };
    if let Some(there) = secrets.get_opt(name).await.unwrap() {
        secret.metadata.resource_version = there.metadata.resource_version;
        secrets.replace(name, &PostParams::default(), &secret).await.unwrap();
    } else {
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
}

/// The pair of a CA of the company.
async fn put_authority(admin: &Client, authority: &CompanyCa, above: &[&CompanyCa], root: &CompanyCa) {
    put_authority_in(admin, "company", authority, above, root).await;
}

/// The same in another Secret.
pub(crate) async fn put_authority_in(
    admin: &Client,
    secret: &str,
    authority: &CompanyCa,
    above: &[&CompanyCa],
    root: &CompanyCa,
) {
    let mut certificates = vec![&authority.der];
    certificates.extend(above.iter().map(|ca| &ca.der));
    let (certificates, root) = (chain(&certificates), chain(&[&root.der]));
    put(admin, secret, &[("tls.crt", &certificates), ("tls.key", &authority.key()), ("ca.crt", &root)]).await;
}

/// Waits until `AuthorityIssued` has this status and a message with this text.
async fn wait_issued(lineage: &OnServer, status: &str, text: &str) -> String {
    let what = format!("AuthorityIssued to be {status} and to say {text:?}");
    let last = RefCell::new(None);
    let as_expected = async || {
        let conditions = lineage.status().await.conditions;
        let issued = conditions.into_iter().find(|condition| condition.type_ == "AuthorityIssued")?;
        *last.borrow_mut() = Some((issued.status.clone(), issued.message.clone()));
        (issued.status == status && issued.message.contains(text)).then_some(issued.message)
    };
    wait_or_explain(TIMEOUT, &what, as_expected, || format!("{:?}", last.borrow())).await
}

/// Changes the specification of the signer telemetry.
pub(crate) async fn change(admin: &Client, spec: Value) {
    change_signer(admin, json!({ "spec": spec })).await;
}

/// Makes the hub look at once, as it does by itself every 15 seconds while it waits for an answer.
async fn touch(admin: &Client, at: &str) {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
    let change = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/look": at } } }));
    secrets.patch(PENDING, &PatchParams::default(), &change).await.unwrap();
}

/// Waits until the signer, which has no authority yet, says this.
async fn wait_reported(admin: &Client, text: &str) -> String {
    let last = RefCell::new(String::new());
    let output = async || {
        let (_, message) = wait_ready(admin, "telemetry", "False").await;
        last.replace(message.clone());
        message.contains(text).then_some(message)
    };
    wait_or_explain(TIMEOUT, &format!("the signer to say {text:?}"), output, || last.borrow().clone()).await
}
