//! cert-manager's CertificateRequest, as far as the hub writes and reads it. Source: cert-manager
//! `pkg/apis/certmanager/v1/types_certificaterequest.go`.

use k8s_openapi::ByteString;
use kube::api::{ApiResource, GroupVersionKind};
use kube::core::Object;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The group of cert-manager's own issuers.
pub const CERT_MANAGER_GROUP: &str = "cert-manager.io";

/// A CertificateRequest.
pub type CertificateRequest = Object<CertificateRequestSpec, CertificateRequestStatus>;

/// An issuer of cert-manager, or of another project that answers CertificateRequests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuerRef {
    /// Name of the issuer, which the type CertManager needs. It signs the hub's CertificateRequests, which are in the
    /// hub's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its kind: Issuer, in the hub's namespace, ClusterIssuer, which is in no namespace, or one of another project.
    #[serde(default = "default_issuer_kind")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z][A-Za-z0-9]*$"))]
    pub kind: String,
    /// The API group of its kind.
    #[serde(default = "default_issuer_group")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))]
    pub group: String,
}

/// The requested certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRequestSpec {
    /// The PKCS#10 request in PEM.
    pub request: ByteString,
    /// Whether it is for a CA.
    #[serde(default, rename = "isCA")]
    pub is_ca: bool,
    /// The usages of the key.
    #[serde(default)]
    pub usages: Vec<String>,
    /// How long the certificate should be valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The issuer that should sign it.
    pub issuer_ref: IssuerRef,
}

/// The outcome of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequestStatus {
    /// Whether it is approved, and whether it is answered.
    #[serde(default)]
    pub conditions: Vec<CertificateRequestCondition>,
    /// The certificate in PEM, and those of CAs above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<ByteString>,
    /// The root in PEM, if the issuer knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<ByteString>,
}

/// One condition of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequestCondition {
    /// `Approved`, `Denied`, `InvalidRequest` or `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    #[serde(default)]
    pub reason: String,
    /// A sentence.
    #[serde(default)]
    pub message: String,
}

/// CertificateRequests.
#[must_use]
pub fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(CERT_MANAGER_GROUP, "v1", "CertificateRequest");
    ApiResource::from_gvk_with_plural(&kind, "certificaterequests")
}

impl CertificateRequestStatus {
    /// Whether the request is approved, so that the issuer may answer it.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        self.holds("Approved").is_some()
    }

    /// Why the request will never be answered: one word, and the message of cert-manager or the issuer.
    #[must_use]
    pub fn failure(&self) -> Option<(&str, &str)> {
        let by_kind = |kind| self.holds(kind).map(|it| (it.kind.as_str(), it.message.as_str()));
        let ready = || {
            let ready = self.ready().filter(|it| it.status == "False")?;
            let is_final = ["Denied", "Failed"].contains(&ready.reason.as_str());
            is_final.then_some((ready.reason.as_str(), ready.message.as_str()))
        };
        by_kind("Denied").or_else(|| by_kind("InvalidRequest")).or_else(ready)
    }

    /// The answer: the certificate with those above it, and the root if the issuer knows it.
    #[must_use]
    pub fn answer(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let certificate = self.certificate.as_ref().filter(|_| self.holds("Ready").is_some())?;
        let ca = self.ca.as_ref().map(|ca| ca.0.trim_ascii()).filter(|ca| !ca.is_empty());
        Some((&certificate.0, ca))
    }

    /// The issuer's message while there is no answer.
    #[must_use]
    pub fn pending(&self) -> Option<&str> {
        self.ready().map(|ready| ready.message.as_str()).filter(|message| !message.is_empty())
    }

    fn ready(&self) -> Option<&CertificateRequestCondition> {
        self.conditions.iter().find(|it| it.kind == "Ready")
    }

    fn holds(&self, kind: &str) -> Option<&CertificateRequestCondition> {
        self.conditions.iter().find(|it| it.kind == kind && it.status == "True")
    }
}

fn default_issuer_kind() -> String {
    "Issuer".to_owned()
}

fn default_issuer_group() -> String {
    CERT_MANAGER_GROUP.to_owned()
}
