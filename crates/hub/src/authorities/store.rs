//! Stores a lineage of authorities in one Secret: it is read, checked, and written with `resourceVersion`, so that a
//! step is either persisted whole or not at all (invariant I7).
//!
//! The anchors are published in a ConfigMap, which also shows that a lineage existed if its Secret is missing.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::authorities;
use crate::authorities::asked::RequestedSteps;
pub use crate::authorities::lineage_names::{BACKEND_CONFIG_MAP, LineageKind, LineageNames, SERVING_CONFIG_MAP};
use crate::authorities::stored::{StoredLineage, WipedSecret, data, read};
use crate::lease::{Leads, NotLeading, NotWritten};
use addon_signer_api::Lenient;
use addon_signer_api::cert_manager::{self, CertificateRequest};
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::lineage::{CLOCKS_DIFFER, Lineage, WaitsFor};
use addon_signer_core::conditions::{AUTHORITY_FAILED, AUTHORITY_MISSING, AUTHORITY_UNREADABLE};
use addon_signer_core::timestamp::Timestamp;

/// The type of the Secrets that hold the key of an authority that the lineage does not have yet.
pub const PENDING_TYPE: &str = "addon-signer.io/pending-authority";
/// The type of the Secrets that hold authorities.
pub const SECRET_TYPE: &str = "addon-signer.io/authorities";
/// Key of the anchors in all these ConfigMaps.
pub const BUNDLE_KEY: &str = "ca.crt";
/// Key of the report of a lineage of the gateway in its ConfigMap.
pub const STATUS_KEY: &str = "status.json";

/// Why a lineage cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The Secret was deleted, and certificates of its authorities may not have expired yet.
    #[error(
        "the Secret {0} is gone while certificates of its authorities may still be in use; \
         restore it from a backup, or see docs/runbooks/lost-ca.md"
    )]
    Missing(String),
    /// The Secret exists but holds no readable lineage.
    #[error("the Secret {secret} cannot be used: {cause}; restore it from a backup, or see docs/runbooks/lost-ca.md")]
    Unreadable {
        /// Its name.
        secret: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The Secret has the authorities of another lineage.
    #[error(
        "the Secret {secret} has the authorities of {owner}; restore its own from a backup, or, if an AddOnSigner that \
         is gone has left them, give this AddOnSigner another name, or give them up (docs/runbooks/lost-ca.md)"
    )]
    OfAnother {
        /// Its name.
        secret: String,
        /// Whose authorities it has: a signer name, or the name of a lineage of the gateway.
        owner: String,
    },
    /// This hub is unsure whether it leads, so nothing was written.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// Another client wrote the object in between: read it again.
    #[error("somebody else changed {0} after it was read")]
    Conflict(String),
    /// The API server refused the request or did not answer.
    #[error("the API server refused the request or did not answer: {}", addon_signer_platform::errors::explain(.0))]
    Api(#[from] kube::Error),
    /// The report of a lineage could not be written as JSON.
    #[error("the lineage could not be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl StoreError {
    /// The reason of a condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => AUTHORITY_MISSING,
            Self::Unreadable { .. } | Self::OfAnother { .. } => AUTHORITY_UNREADABLE,
            Self::NotLeading(_) | Self::Conflict(_) | Self::Api(_) | Self::Json(_) => AUTHORITY_FAILED,
        }
    }
}

/// Secrets and ConfigMaps of one namespace.
#[derive(Clone)]
pub struct AuthorityStore {
    client: Client,
    secrets: Api<Secret>,
    config_maps: Api<Lenient<ConfigMap>>,
    /// cert-manager's CertificateRequests.
    pub(super) certificate_requests: Api<CertificateRequest>,
}

impl AuthorityStore {
    /// The hub's namespace.
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self {
            client: client.clone(),
            secrets: Api::namespaced(client.clone(), namespace),
            config_maps: Api::namespaced(client.clone(), namespace),
            certificate_requests: Api::namespaced_with(client.clone(), namespace, &cert_manager::resource()),
        }
    }

    /// What a step that was decided on at `now` waits for, if the API server's clock does not confirm `now`. A clock
    /// that has jumped ahead would make the hub drop keys and anchors that are in use, and no step of a lineage can be
    /// taken back.
    ///
    /// The API server is asked after the decision, so a slow response does not make the hub's clock seem ahead.
    pub async fn clock_problem(&self, now: Timestamp) -> Result<Option<WaitsFor>, StoreError> {
        Ok(match self.server_time().await? {
            Some(date) if now <= date.plus(CLOCKS_DIFFER) => None,
            Some(date) => Some(WaitsFor::Clock { minutes: date.until(now).as_secs() / 60 }),
            None => Some(WaitsFor::ServerTime),
        })
    }

    /// The API server's time, if its response has it.
    pub(super) async fn server_time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(authorities::server_time(&self.client).await?)
    }

    /// A Secret of the hub's namespace.
    pub(super) async fn secret(&self, name: &str) -> Result<Option<WipedSecret>, StoreError> {
        Ok(self.secrets.get_opt(name).await?.map(WipedSecret))
    }

    /// Keeps the key of an authority that the lineage does not have yet, in place of what the Secret had at this
    /// `resourceVersion`. Returns the new `resourceVersion`.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another client has written it in between.
    pub(super) async fn keep_pending(
        &self,
        leads: &Leads,
        names: &LineageNames,
        resource_version: Option<String>,
        data: BTreeMap<String, ByteString>,
    ) -> Result<Option<String>, StoreError> {
        let name = names.pending();
        let is_new = resource_version.is_none();
        let secret = WipedSecret(Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(names.labels.clone()),
                resource_version,
                ..ObjectMeta::default()
            },
            type_: Some(PENDING_TYPE.to_owned()),
            data: Some(data),
            ..Secret::default()
        });
        let params = PostParams::default();
        let written = match is_new {
            true => leads.write(self.secrets.create(&params, &secret.0)).await,
            false => leads.write(self.secrets.replace(&name, &params, &secret.0)).await,
        };
        let written = WipedSecret(written.map_err(|error| conflict_or(error, &name))?);
        Ok(written.0.metadata.resource_version.clone())
    }

    /// The ConfigMaps, for the reports of the gateway's lineages.
    pub fn config_maps(&self) -> Api<Lenient<ConfigMap>> {
        self.config_maps.clone()
    }

    /// Reads a lineage; `None` if it never existed. `remembered` is further evidence that it existed.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if the Secret is missing, and a published anchor that is still valid, or `remembered`,
    /// shows that the lineage existed.
    pub async fn load(
        &self,
        names: &LineageNames,
        remembered: bool,
        now: Timestamp,
    ) -> Result<Option<StoredLineage>, StoreError> {
        match self.secrets.get_opt(&names.secret).await? {
            Some(secret) => {
                let secret = WipedSecret(secret);
                if let Some(owner) = names.other_owner(&secret.0) {
                    return Err(StoreError::OfAnother { secret: names.secret.clone(), owner });
                }
                read(secret).map(Some).map_err(|cause| unreadable(names, cause))
            }
            None if remembered || self.published_anchor_lives(names, now).await? => {
                Err(StoreError::Missing(names.secret.clone()))
            }
            None => Ok(None),
        }
    }

    async fn published_anchor_lives(&self, names: &LineageNames, now: Timestamp) -> Result<bool, StoreError> {
        let Some(map) = self.config_maps.get_opt(&names.config_map).await? else { return Ok(false) };
        let Some(text) = map.object.data.as_ref().and_then(|data| data.get(BUNDLE_KEY)) else { return Ok(false) };
        // A trust bundle that cannot be read is evidence too: it was published.
        Ok(Bundle::from_pem(text.as_bytes()).map_or(!text.trim().is_empty(), |bundle| {
            bundle.authorities().iter().any(|authority| authority.not_after() > now)
        }))
    }

    /// Creates the Secret of a new lineage.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another client has created it in between.
    pub async fn create(
        &self,
        leads: &Leads,
        names: &LineageNames,
        lineage: &Lineage,
        new_key: &[u8],
    ) -> Result<StoredLineage, StoreError> {
        let secret = WipedSecret(Secret {
            metadata: ObjectMeta {
                name: Some(names.secret.clone()),
                labels: Some(names.labels.clone()),
                annotations: Some(names.annotations(lineage, BTreeMap::new())),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(data(names.owner(), lineage, &BTreeMap::new(), Some(new_key))?),
            ..Secret::default()
        });
        let written = leads.write(self.secrets.create(&PostParams::default(), &secret.0)).await;
        let written = written.map_err(|error| conflict_or(error, &names.secret))?;
        read(WipedSecret(written)).map_err(|cause| unreadable(names, cause))
    }

    /// Replaces a lineage by the lineage after a step. Keys of authorities that the lineage no longer has are deleted.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the Secret has changed since it was read; then nothing was written.
    pub async fn replace(
        &self,
        leads: &Leads,
        names: &LineageNames,
        stored: &StoredLineage,
        lineage: &Lineage,
        new_key: Option<&[u8]>,
    ) -> Result<StoredLineage, StoreError> {
        let before = &stored.secret.0;
        let empty = BTreeMap::new();
        let there = before.metadata.annotations.clone().unwrap_or_default();
        let annotations = Some(names.annotations(lineage, there));
        let secret = WipedSecret(Secret {
            metadata: ObjectMeta { annotations, ..before.metadata.clone() },
            type_: before.type_.clone(),
            data: Some(data(names.owner(), lineage, before.data.as_ref().unwrap_or(&empty), new_key)?),
            ..Secret::default()
        });
        let written = leads.write(self.secrets.replace(&names.secret, &PostParams::default(), &secret.0)).await;
        let written = written.map_err(|error| conflict_or(error, &names.secret))?;
        read(WipedSecret(written)).map_err(|cause| unreadable(names, cause))
    }

    /// Writes the anchors, and the report of a lineage of the gateway, into the ConfigMap, if they differ; everything
    /// else stays. Returns the `resourceVersion` of the ConfigMap with them, and whether it had other anchors before.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another client wrote it in between, or [`StoreError::Api`]; the next round tries
    /// again.
    pub async fn publish(
        &self,
        leads: &Leads,
        names: &LineageNames,
        bundle: &Bundle,
        status: Option<String>,
    ) -> Result<(Option<String>, bool), StoreError> {
        let mut data = BTreeMap::from([(BUNDLE_KEY.to_owned(), bundle.pem())]);
        data.extend(status.map(|text| (STATUS_KEY.to_owned(), text)));
        let Some(mut map) = self.config_maps.get_opt(&names.config_map).await? else {
            let mut map = names.new_config_map();
            map.object.data = Some(data);
            let created = leads.write(self.config_maps.create(&PostParams::default(), &map)).await;
            let created = created.map_err(|error| conflict_or(error, &names.config_map))?;
            return Ok((created.object.metadata.resource_version, false));
        };
        let there = map.object.data.get_or_insert_default();
        let differs = data.iter().any(|(key, text)| there.get(key) != Some(text));
        if differs {
            there.extend(data);
            let params = PostParams::default();
            let replaced = leads.write(self.config_maps.replace(&names.config_map, &params, &map)).await;
            map = replaced.map_err(|error| conflict_or(error, &names.config_map))?;
        }
        Ok((map.object.metadata.resource_version, differs))
    }

    /// What the annotations of the lineage's ConfigMap request.
    pub(crate) async fn asked(&self, names: &LineageNames) -> Result<RequestedSteps, StoreError> {
        let map = self.config_maps.get_opt(&names.config_map).await?;
        let annotations = map.and_then(|map| map.object.metadata.annotations);
        Ok(annotations.map(|annotations| RequestedSteps::of_gateway(&annotations)).unwrap_or_default())
    }
}

pub(super) fn conflict_or(error: NotWritten, name: &str) -> StoreError {
    match error {
        NotWritten::Api(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
            StoreError::Conflict(name.to_owned())
        }
        NotWritten::Api(error) => StoreError::Api(error),
        NotWritten::NotLeading(error) => StoreError::NotLeading(error),
    }
}

fn unreadable(names: &LineageNames, cause: String) -> StoreError {
    StoreError::Unreadable { secret: names.secret.clone(), cause }
}
