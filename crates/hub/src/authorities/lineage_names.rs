//! The names of the objects of a lineage, and whose certificates it signs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;

use super::stored::owner;
use addon_signer_api::Lenient;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::lineage::Lineage;
use addon_signer_core::names::{
    ANNOTATION_AUTHORITIES, ANNOTATION_SIGNER_NAME, BACKEND_AUTHORITIES, CLIENT_AUTHORITIES, CLIENT_CONFIG_MAP,
    LABEL_LINEAGE, LABEL_SIGNER, PENDING_AUTHORITY, SERVING_AUTHORITIES,
};
pub use addon_signer_core::names::{BACKEND_CONFIG_MAP, SERVING_CONFIG_MAP};
use addon_signer_core::policy::GatewayCertificate;

/// Whose certificates a lineage signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineageKind {
    /// Those of the agents of one AddOnSigner. The gateway trusts it, and its AddOnSigner reports it.
    Signer,
    /// One of the gateway. Agents or backends trust it, and its ConfigMap reports it.
    Gateway(GatewayCertificate),
}

/// The names of the objects that hold one lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineageNames {
    /// Which lineage it is.
    pub kind: LineageKind,
    /// The Secret.
    pub secret: String,
    /// The ConfigMap with the anchors.
    pub config_map: String,
    /// Prefix of the authorities' common names.
    pub authority: String,
    /// The labels of all objects of the lineage.
    pub(super) labels: BTreeMap<String, String>,
    /// `spec.signerName` of the AddOnSigner.
    signer_name: Option<String>,
}

impl LineageNames {
    /// The client lineage of an AddOnSigner with this name and this signer name.
    pub fn client(signer: &str, signer_name: &str) -> Self {
        Self {
            kind: LineageKind::Signer,
            signer_name: Some(signer_name.to_owned()),
            secret: CLIENT_AUTHORITIES.replace("<AddOnSigner>", signer),
            config_map: CLIENT_CONFIG_MAP.replace("<AddOnSigner>", signer),
            authority: format!("addon-signer client CA {signer}"),
            labels: labels("client", Some(signer)),
        }
    }

    /// The lineage of a certificate of the gateway. No AddOnSigner's lineage has objects with these names: its objects'
    /// names end with `-client-authorities` and `-client-ca`.
    pub fn gateway(certificate: GatewayCertificate) -> Self {
        let (secret, config_map, authority, lineage) = match certificate {
            GatewayCertificate::Serving => {
                (SERVING_AUTHORITIES, SERVING_CONFIG_MAP, "addon-signer serving CA", "serving")
            }
            GatewayCertificate::Client => {
                (BACKEND_AUTHORITIES, BACKEND_CONFIG_MAP, "addon-signer gateway client CA", "gateway-client")
            }
        };
        Self {
            kind: LineageKind::Gateway(certificate),
            secret: secret.to_owned(),
            config_map: config_map.to_owned(),
            authority: authority.to_owned(),
            labels: labels(lineage, None),
            signer_name: None,
        }
    }

    /// The Secret with the key of the next authority while that has no certificate.
    pub(crate) fn pending(&self) -> String {
        PENDING_AUTHORITY.replace("<Secret>", &self.secret)
    }

    /// The CertificateRequest of the next authority, whose key has this id.
    pub(crate) fn certificate_request(&self, id: &AuthorityId) -> String {
        format!("{}-{id}", self.secret)
    }

    /// Its ConfigMap, before it is created.
    pub(super) fn new_config_map(&self) -> Lenient<ConfigMap> {
        let metadata = ObjectMeta {
            name: Some(self.config_map.clone()),
            labels: Some(self.labels.clone()),
            ..ObjectMeta::default()
        };
        Lenient::from(ConfigMap { metadata, ..ConfigMap::default() })
    }

    /// The label `signer` of the lineage's metrics.
    pub(crate) fn metrics_label(&self) -> &str {
        match self.kind {
            LineageKind::Signer => self.lineage(),
            LineageKind::Gateway(certificate) => certificate.name(),
        }
    }

    /// The owner of the lineage's authorities: the signer name, or the name of a lineage of the gateway.
    pub(super) fn owner(&self) -> &str {
        self.signer_name.as_deref().unwrap_or_else(|| self.lineage())
    }

    /// The owner of the authorities in a Secret, if they are not this lineage's. An administrator may have copied
    /// another Secret's content, with its annotations or without.
    pub(super) fn other_owner(&self, secret: &Secret) -> Option<String> {
        let annotations = secret.metadata.annotations.as_ref();
        let annotated = annotations.and_then(|all| all.get(ANNOTATION_SIGNER_NAME)).cloned();
        [annotated, owner(secret)].into_iter().flatten().find(|theirs| theirs != self.owner())
    }

    /// The annotations of the Secret of this lineage, with the existing others.
    pub(super) fn annotations(
        &self,
        lineage: &Lineage,
        mut there: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        there.extend(self.signer_name.clone().map(|name| (ANNOTATION_SIGNER_NAME.to_owned(), name)));
        let members = lineage.members().iter().map(|member| member.authority.id());
        let ids: Vec<_> = members.chain(lineage.gone()).map(AuthorityId::as_str).collect();
        there.insert(ANNOTATION_AUTHORITIES.to_owned(), ids.join(" "));
        there
    }

    /// The lineage as `ca status` names it: its AddOnSigner, `(serving)` or `(gateway-client)`.
    pub fn lineage(&self) -> &str {
        match self.kind {
            LineageKind::Signer => self.labels.get(LABEL_SIGNER).map_or("", String::as_str),
            LineageKind::Gateway(GatewayCertificate::Serving) => "(serving)",
            LineageKind::Gateway(GatewayCertificate::Client) => "(gateway-client)",
        }
    }
}

fn labels(lineage: &str, signer: Option<&str>) -> BTreeMap<String, String> {
    let managed = ("app.kubernetes.io/managed-by".to_owned(), "addon-signer".to_owned());
    let mut labels = BTreeMap::from([managed, (LABEL_LINEAGE.to_owned(), lineage.to_owned())]);
    if let Some(signer) = signer {
        labels.insert(LABEL_SIGNER.to_owned(), signer.to_owned());
    }
    labels
}
