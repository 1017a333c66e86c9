//! Labels, annotations and conditions that other programs and people rely on. Changing one is a breaking change.

use crate::table;

table! {
    /// Labels and annotations. The columns are what it is, and on which object.
    pub LABELS of pub &str;
    /// With any value but `false`: the addon's agents get no certificate and cannot use the gateway.
    ANNOTATION_SUSPENDED = "addon-signer.io/suspended" => "annotation", "ManagedClusterAddOn";
    /// A time of RFC 3339; certificates that begin before it are revoked.
    ANNOTATION_REVOKE_BEFORE = "addon-signer.io/revoke-before" => "annotation", "ManagedClusterAddOn";
    /// That time, a space, and who asked; `certs revoke` writes it.
    ANNOTATION_REVOKED_BY = "addon-signer.io/revoked-by" => "annotation", "ManagedClusterAddOn";
    /// The gateway's trust bundle as PEM, which the agent must trust; the hub writes it together with the certificate.
    ANNOTATION_TRUST_BUNDLE = "addon-signer.io/trust-bundle" => "annotation", "CertificateSigningRequest";
    /// The `signerName` whose authorities it has; an AddOnSigner of the same name with another `signerName` does not
    /// get them.
    ANNOTATION_SIGNER_NAME = "addon-signer.io/signer-name" => "annotation", "Secret of an AddOnSigner's authorities";
    /// A new value asks for a rotation; `ca rotate` writes it.
    ANNOTATION_ROTATE = "addon-signer.io/rotate" => "annotation", OF_LINEAGES;
    /// The clusters, or the backends, for which the gateway's next authority does not wait, and who asked for that;
    /// `ca advance` writes it.
    ANNOTATION_ADVANCE = "addon-signer.io/advance-without" => "annotation", "the same ConfigMaps";
    /// The authority to roll back, the time, and who asked; `ca rollback` writes it. It has an effect while that
    /// authority waits to sign or signs; if the hub refuses, `Rotating` says why.
    ANNOTATION_ROLL_BACK = "addon-signer.io/roll-back" => "annotation", OF_LINEAGES;
    /// The ids of its authorities, and of the last eight that left it: no other lineage takes their keys.
    ANNOTATION_AUTHORITIES = "addon-signer.io/authorities" => "annotation", "Secret of authorities";
    /// The name of the AddOnSigner whose `authority.issuer.secretName` names it; without it the Secret is not used.
    ANNOTATION_AUTHORITY_OF = "addon-signer.io/authority-of" => "annotation", "Secret with an authority";
    /// Who brings a certificate for the CSR of `ca csr`, and when; on the next lines the certificate and those above
    /// it. `ca import` writes it.
    ANNOTATION_IMPORT = "addon-signer.io/import-authority" => "annotation", "AddOnSigner or ConfigMap `addon-signer-trust`";
    /// In each line an authority to taint, the time, and who asked; `ca taint` writes it. Removing it does not end the
    /// taint.
    ANNOTATION_TAINT = "addon-signer.io/taint" => "annotation", OF_LINEAGES;
    /// In each line an authority to remove at once with its key, the time, and who asked; `ca revoke` writes it.
    /// Removing it takes back nothing that the hub has read.
    ANNOTATION_REVOKE_AUTHORITY = "addon-signer.io/revoke-authority" => "annotation", OF_LINEAGES;
    /// The addon to whose agent it brings the trust bundle. The hub maintains every ManifestWork
    /// `addon-signer-<addon>-trust` that has it.
    LABEL_HUB_TRUST = "addon-signer.io/hub-trust" => "label", "ManifestWork";
    /// The user for whom OCM's gRPC server made the CSR; see `--grpc-proxy-account`.
    ANNOTATION_CSR_USER = "open-cluster-management.io/csr-user" => "annotation", "CertificateSigningRequest";
    /// The cluster; where it is set, it must be the requester's. It is only a hint, because every client can set it.
    LABEL_CLUSTER_NAME = "open-cluster-management.io/cluster-name" => "label", "CertificateSigningRequest";
    /// The addon; where it is set, it must be the subject's. It is only a hint, because every client can set it.
    LABEL_ADDON_NAME = "open-cluster-management.io/addon-name" => "label", "CertificateSigningRequest";
    /// `client`, `serving` or `gateway-client`.
    LABEL_LINE = "addon-signer.io/line" => "label", "Secrets and ConfigMaps of authorities";
    /// Name of the AddOnSigner; absent for the gateway's.
    LABEL_SIGNER = "addon-signer.io/signer" => "label", "Secrets and ConfigMaps of authorities";
    /// `true`: the Lease of a gateway in a process of its own.
    LABEL_GATEWAY = "addon-signer.io/gateway" => "label", "Lease";
    /// The ids of the authorities that this gateway has in effect, separated by spaces.
    ANNOTATION_TRUSTS = "addon-signer.io/trusts" => "annotation", "Lease";
    /// `true`: the value `ledger.postgres` of the chart lets the hub reach PostgreSQL in it.
    LABEL_LEDGER = "addon-signer.io/ledger" => "label", "Namespace";
    /// `true`: the NetworkPolicy of the chart lets the gateway reach backends in it.
    LABEL_UPSTREAM = "addon-signer.io/upstream" => "label", "Namespace";
    /// `true`: the NetworkPolicy of the chart lets pods in it read the metrics.
    LABEL_METRICS = "addon-signer.io/metrics" => "label", "Namespace";
}

/// The objects with the annotations that ask the hub for something about authorities.
const OF_LINEAGES: &str = "AddOnSigner or ConfigMap `addon-signer-trust` or `addon-signer-backend-trust`";

/// Header of the answer of `GET /v1/bundle`: within how many seconds the caller should renew its certificate.
pub const HEADER_RENEW_WITHIN: &str = "x-addon-signer-renew-within";
/// Condition type of a ManagedClusterAddOn: false while the hub does not write its registrations, because another
/// program keeps changing them.
pub const CONDITION_ADDON_REGISTERED: &str = "addon-signer.io/Registered";
/// The tracing target of decisions. The audit log has only events with this target.
pub const AUDIT_TARGET: &str = "audit";
/// The tracing target of calls that have ended. The access log has only events with this target.
pub const ACCESS_TARGET: &str = "access";
