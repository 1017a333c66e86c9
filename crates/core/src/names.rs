//! Labels, annotations and conditions that other programs and people rely on. Changing one is a breaking change.

/// On a ManagedClusterAddOn: its agents get no certificate and cannot use the gateway.
pub const ANNOTATION_SUSPENDED: &str = "addon-signer.io/suspended";
/// On a ManagedClusterAddOn: certificates of its agents that begin before this time are revoked.
pub const ANNOTATION_REVOKE_BEFORE: &str = "addon-signer.io/revoke-before";
/// On a ManagedClusterAddOn: who set [`ANNOTATION_REVOKE_BEFORE`]. `certs revoke` writes that time, a space, the user.
pub const ANNOTATION_REVOKED_BY: &str = "addon-signer.io/revoked-by";
/// On a CSR: the serving anchors (PEM) that the agent must trust, written together with the certificate.
pub const ANNOTATION_TRUST_BUNDLE: &str = "addon-signer.io/trust-bundle";
/// On an AddOnSigner, or on the ConfigMap of a lineage of the gateway: a new value asks for a rotation.
pub const ANNOTATION_ROTATE: &str = "addon-signer.io/rotate";
/// On an AddOnSigner, or on the ConfigMap of a lineage of the gateway: the authority to roll back, and who asks for
/// that.
pub const ANNOTATION_ROLL_BACK: &str = "addon-signer.io/roll-back";
/// On an AddOnSigner, or on the ConfigMap of a lineage of the gateway: who brings a certificate for the CSR of the
/// next authority, and on the lines after that the certificate and those above it, in PEM.
pub const ANNOTATION_IMPORT: &str = "addon-signer.io/import-authority";
/// Annotation of an AddOnSigner, or of the ConfigMap of a lineage of the gateway: the authority whose key somebody else
/// may know, the time, and who says so.
pub const ANNOTATION_TAINT: &str = "addon-signer.io/taint";
/// Annotation of the same objects: the authority that is to be gone at once, the time, and who asks.
pub const ANNOTATION_REVOKE_AUTHORITY: &str = "addon-signer.io/revoke-authority";
/// On the Secret of a lineage: the ids of its authorities, so that another lineage can tell that it has their keys.
pub const ANNOTATION_AUTHORITIES: &str = "addon-signer.io/authorities";
/// On the Secret of a client lineage: the signer name of its AddOnSigner. A different AddOnSigner of that name does not
/// get the lineage.
pub const ANNOTATION_SIGNER_NAME: &str = "addon-signer.io/signer-name";
/// On a Secret of which an AddOnSigner takes its authority: the name of that AddOnSigner.
pub const ANNOTATION_AUTHORITY_OF: &str = "addon-signer.io/authority-of";
/// On the ConfigMap of the serving anchors: the clusters for which a new authority does not wait, and who asked for
/// that.
pub const ANNOTATION_ADVANCE: &str = "addon-signer.io/advance-without";
/// Header of the answer of `GET /v1/bundle`: within how many seconds the caller should renew its certificate.
pub const HEADER_RENEW_WITHIN: &str = "x-addon-signer-renew-within";
/// On a CSR made by OCM's gRPC proxy: the user on whose behalf it was made.
pub const ANNOTATION_CSR_USER: &str = "open-cluster-management.io/csr-user";
/// Label of a CSR: the cluster. It is only a hint, because anybody can set it.
pub const LABEL_CLUSTER_NAME: &str = "open-cluster-management.io/cluster-name";
/// Label of a CSR: the addon. It is only a hint, because anybody can set it.
pub const LABEL_ADDON_NAME: &str = "open-cluster-management.io/addon-name";
/// Label of Secrets and ConfigMaps of a lineage of authorities: `client` or `serving`.
pub const LABEL_LINEAGE: &str = "addon-signer.io/line";
/// Label of Secrets and ConfigMaps of a client lineage: the AddOnSigner's name.
pub const LABEL_SIGNER: &str = "addon-signer.io/signer";
/// Label of the Lease of a gateway in a process of its own.
pub const LABEL_GATEWAY: &str = "addon-signer.io/gateway";
/// On the Lease of a gateway: the ids of the authorities that it trusts, separated by spaces.
pub const ANNOTATION_TRUSTS: &str = "addon-signer.io/trusts";
/// Label of a ManifestWork that brings the trust bundle to a cluster: the addon's name.
pub const LABEL_HUB_TRUST: &str = "addon-signer.io/hub-trust";
/// Condition type of a ManagedClusterAddOn: false while the hub does not write its registrations, because another
/// program keeps changing them.
pub const CONDITION_ADDON_REGISTERED: &str = "addon-signer.io/Registered";
/// The tracing target of decisions. The audit log has only events with this target.
pub const AUDIT_TARGET: &str = "audit";
/// The tracing target of calls that have ended. The access log has only events with this target.
pub const ACCESS_TARGET: &str = "access";
