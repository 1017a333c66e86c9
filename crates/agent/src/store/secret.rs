//! Credentials in a Secret.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PartialObjectMeta, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use zeroize::Zeroizing;

use super::StoreError;
use addon_signer_platform::errors::explain;

use crate::api_error::Attempt;
use crate::owner::{Owner, OwnerName};
use addon_signer_core::credentials::{BUNDLE, CERTIFICATE, Credentials, KEY};
use addon_signer_core::identity::AddOnName;
use addon_signer_core::names::AGENT_SECRET;

const TYPE: &str = "kubernetes.io/tls";
/// How often a write is tried while others change the Secret at the same time.
const WRITES: usize = 5;

pub(super) struct SecretStore {
    client: Client,
    namespace: String,
    name: String,
    owner: Option<Owner>,
}

impl SecretStore {
    pub(super) fn new(client: Client, namespace: &str, addon: &AddOnName) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: AGENT_SECRET.replace("<addon>", addon.as_str()),
            owner: None,
        }
    }

    pub(super) fn owned_by(self, owner: Option<OwnerName>) -> Self {
        let owner = owner.map(|name| Owner::new(self.client.clone(), &self.namespace, name));
        Self { owner, ..self }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn read(&self) -> Result<Option<Secret>, StoreError> {
        Ok(self.api().get_opt(&self.name).await.map_err(|error| attempt("get").failed(&error))?)
    }

    pub(super) async fn load(&self) -> Result<Option<Credentials>, StoreError> {
        Ok(self.read().await?.map(|secret| {
            let mut data = secret.data.unwrap_or_default();
            let mut take = |name| data.remove(name).map(|bytes| bytes.0).unwrap_or_default();
            Credentials { certificate: take(CERTIFICATE), key: Zeroizing::new(take(KEY)), bundle: take(BUNDLE) }
        }))
    }

    pub(super) async fn save(&self, credentials: &Credentials) -> Result<(), StoreError> {
        for _ in 0..WRITES {
            let written = match self.read().await? {
                Some(found) => self.replace(found, credentials).await?,
                None => self.create(credentials).await?,
            };
            if written {
                return Ok(());
            }
        }
        Err(StoreError::Contended(self.name.clone()))
    }

    /// Returns `false` if another client created the Secret first.
    async fn create(&self, credentials: &Credentials) -> Result<bool, StoreError> {
        let labels = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "addon-signer".to_owned())]);
        let mut secret = Secret {
            metadata: ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() },
            type_: Some(TYPE.to_owned()),
            data: Some(data(credentials)),
            ..Secret::default()
        };
        if let Some(owner) = &self.owner {
            owner.own(&mut secret.metadata.owner_references).await;
        }
        match self.api().create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            // An API server always serves Secrets, so only the namespace can be missing.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(StoreError::NamespaceMissing(self.namespace.clone()))
            }
            Err(error) => Err(attempt("create").failed(&error).into()),
        }
    }

    /// Replaces the data and leaves everything else: the labels and owners set by others, and the type, which cannot
    /// change. Returns `false` if another client changed the Secret first.
    async fn replace(&self, mut found: Secret, credentials: &Credentials) -> Result<bool, StoreError> {
        if found.immutable == Some(true) {
            return Err(StoreError::Immutable(self.name.clone()));
        }
        found.data = Some(data(credentials));
        match self.api().replace(&self.name, &PostParams::default(), &found).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(attempt("update").failed(&error).into()),
        }
    }

    /// Watches only the metadata, so that the API server does not send the key.
    pub(super) fn changes(&self) -> BoxStream<'static, ()> {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(self.client.clone(), &self.namespace);
        let events = watch_object(api, &self.name).default_backoff();
        let changes = events.filter_map(|event| async {
            // The watch resumes by itself. Until then the agent reads the Secret at intervals.
            event.inspect_err(|error| tracing::warn!(error = explain(error), "Lost the watch on the Secret")).ok()
        });
        changes.map(|_| ()).boxed()
    }
}

fn attempt(verb: &'static str) -> Attempt {
    Attempt { server: "the managed cluster", verb, resource: "secrets" }
}

/// The copies of the key that kube makes while sending it are not wiped. They stay in this process, which holds the key
/// anyway.
fn data(credentials: &Credentials) -> BTreeMap<String, ByteString> {
    credentials.files().into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes.to_vec()))).collect()
}
