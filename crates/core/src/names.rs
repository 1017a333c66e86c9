//! Labels, annotations and conditions that other programs and people rely on. Changing one is a breaking change.

use crate::table;

table! {
    /// Labels and annotations. The columns are what it is, and on which object.
    pub LABELS of pub &str;
    /// With any value but `false`: the addon's agents get no certificate and cannot use the gateway.
    ANNOTATION_SUSPENDED = "addon-signer.io/suspended" => "annotation", "ManagedClusterAddOn";
    /// A time of RFC 3339; certificates that begin before it are revoked.
    ANNOTATION_REVOKE_BEFORE = "addon-signer.io/revoke-before" => "annotation", "ManagedClusterAddOn";
    /// That time, a space, and the user who asked; `certs revoke` writes it.
    ANNOTATION_REVOKED_BY = "addon-signer.io/revoked-by" => "annotation", "ManagedClusterAddOn";
    /// The gateway's trust bundle as PEM, which the agent must trust; the hub writes it together with the certificate.
    ANNOTATION_TRUST_BUNDLE = "addon-signer.io/trust-bundle" => "annotation", "CertificateSigningRequest";
    /// The `signerName` whose authorities it has; an AddOnSigner of the same name with another `signerName` does not
    /// get them.
    ANNOTATION_SIGNER_NAME = "addon-signer.io/signer-name" => "annotation", "Secret of an AddOnSigner's authorities";
    /// A new value asks for a rotation; `ca rotate` writes it.
    ANNOTATION_ROTATE = "addon-signer.io/rotate" => "annotation", OF_LINEAGES;
    /// The clusters, or the backends, for which the gateway's next authority does not wait, and the user who asked;
    /// `ca advance` writes it.
    ANNOTATION_ADVANCE = "addon-signer.io/advance-without" => "annotation", "ConfigMap of the gateway";
    /// The authority to roll back, the time, and the requester; `ca rollback` writes it. It has an effect while that
    /// authority waits to sign or signs; if the hub refuses, `Rotating` says why.
    ANNOTATION_ROLL_BACK = "addon-signer.io/roll-back" => "annotation", OF_LINEAGES;
    /// The ids of its authorities, and of the last eight that left it: no other lineage takes their keys.
    ANNOTATION_AUTHORITIES = "addon-signer.io/authorities" => "annotation", "Secret of authorities";
    /// The name of the AddOnSigner whose `authority.issuer.secretName` names it; without it the Secret is not used.
    ANNOTATION_AUTHORITY_OF = "addon-signer.io/authority-of" => "annotation", "Secret with an authority";
    /// Who brings a certificate for the CSR of `ca csr`, and when; on the next lines the certificate and those above
    /// it. `ca import` writes it.
    ANNOTATION_IMPORT = "addon-signer.io/import-authority" => "annotation", "AddOnSigner, or `addon-signer-trust`";
    /// On each line an authority to taint, the time, and the requester; `ca taint` writes it. Removing it does not end
    /// the taint.
    ANNOTATION_TAINT = "addon-signer.io/taint" => "annotation", OF_LINEAGES;
    /// On each line an authority to remove at once with its key, the time, and the requester; `ca revoke` writes it.
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
    LABEL_LINEAGE = "addon-signer.io/line" => "label", "Secrets and ConfigMaps of authorities";
    /// Name of the AddOnSigner; absent for the gateway's.
    LABEL_SIGNER = "addon-signer.io/signer" => "label", "Secrets and ConfigMaps of authorities";
    /// `true`: the Lease of a gateway in a process of its own.
    LABEL_GATEWAY = "addon-signer.io/gateway" => "label", "Lease";
    /// The ids of the authorities that this gateway has in effect, separated by spaces.
    ANNOTATION_TRUSTS = "addon-signer.io/trusts" => "annotation", "Lease";
    /// The version of the hub that leads, and its `holderIdentity`: it is not valid for another holder.
    ANNOTATION_VERSION = "addon-signer.io/version" => "annotation", "Lease";
    /// `true`: the value `ledger.postgres` of the chart lets the hub reach PostgreSQL in it.
    LABEL_LEDGER = "addon-signer.io/ledger" => "label", "Namespace";
    /// `true`: the NetworkPolicy of the chart lets the gateway reach backends in it.
    LABEL_UPSTREAM = "addon-signer.io/upstream" => "label", "Namespace";
    /// `true`: the NetworkPolicy of the chart lets pods in it read the metrics.
    LABEL_METRICS = "addon-signer.io/metrics" => "label", "Namespace";
}

/// The objects with the annotations that request actions on authorities.
const OF_LINEAGES: &str = "AddOnSigner, or a ConfigMap of the gateway";

table! {
    /// Objects, by their names as kubectl accepts them. The columns are the kind, and where it is.
    pub OBJECTS of pub &str;
    /// Certificate authorities of an AddOnSigner, with their keys: `line.json`, `<id>.crt`, `<id>.key`.
    CLIENT_AUTHORITIES = "<AddOnSigner>-client-authorities" => "secret", HUB;
    /// Their certificates: `ca.crt`.
    CLIENT_CONFIG_MAP = "<AddOnSigner>-client-ca" => "configmap", HUB;
    /// Certificate authorities of the gateway's certificate, as those of an AddOnSigner.
    SERVING_AUTHORITIES = "addon-signer-serving-authorities" => "secret", HUB;
    /// The gateway's trust bundle: `ca.crt`; what `ca status` prints of it: `status.json`.
    SERVING_CONFIG_MAP = "addon-signer-trust" => "configmap", HUB;
    /// Certificate authorities of the certificate that the gateway shows to backends; once an AddOnRoute needs it.
    BACKEND_AUTHORITIES = "addon-signer-backend-authorities" => "secret", HUB;
    /// Their certificates: `ca.crt`; what `ca status` prints of them: `status.json`.
    BACKEND_CONFIG_MAP = "addon-signer-backend-trust" => "configmap", HUB;
    /// The key of the next authority of one of these Secrets while it waits for its certificate from `ca import` or
    /// cert-manager: `tls.key`, `request.csr`. Emptied or replaced when the authority is there.
    PENDING_AUTHORITY = "<Secret>-pending" => "secret", HUB;
    /// The key that signs checkpoints of the ledger: `ed25519.key`.
    LEDGER_OBJECT = "addon-signer-ledger" => "secret", HUB;
    /// The newest checkpoint: `head.json`; a checkpoint that the ledger contradicts: `contradicted-head.json`.
    LEDGER_CONFIG_MAP = LEDGER_OBJECT => "configmap", HUB;
    /// Which hub leads.
    LEASE_NAME = "addon-signer" => "lease", HUB;
    /// A gateway in a process of its own, with the label `addon-signer.io/gateway`: that it lives, and what it trusts.
    GATEWAY_LEASE = "<replica>" => "lease", HUB;
    /// The gateway's trust bundle, of the signer `addon-signer.io/gateway-serving`.
    TRUST_BUNDLE = "addon-signer.io:gateway-serving:trust" => "clustertrustbundle", "the hub cluster";
    /// It writes the next one.
    TRUST_WORK = "addon-signer-<addon>-trust" => "manifestwork", "the namespace of each cluster on the hub";
    /// The gateway's trust bundle, `ca.crt`.
    TRUST_CONFIG_MAP = "<addon>-hub-trust" => "configmap", "the addon's install namespace on the managed cluster";
    /// What addon-signer-agent keeps: `tls.crt`, `tls.key`, `ca.crt`.
    AGENT_SECRET = "<addon>-client-cert" => "secret", "the namespace of `--secret-namespace`";
}

/// Where an object is.
const HUB: &str = "the hub's namespace";

table! {
    /// The gateway's paths.
    pub GATEWAY_PATHS of pub &str;
    /// The client's identity as JSON: `cluster`, `addon`, `agent`, `user`, `groups`, `signer`, `issuer`, `serial`,
    /// `notAfter`.
    WHOAMI = "/v1/whoami";
    /// The gateway's trust bundle as PEM, with its digest as `ETag`. `If-None-Match` with that tag is answered with
    /// 304. The header `X-Addon-Signer-Renew-Within: SECONDS` tells the holder of a certificate from a tainted
    /// authority to renew at a random moment within that time.
    BUNDLE = "/v1/bundle";
    /// What the backend of the AddOnRoute answers; only for the client's own addon.
    OF_ADDON = "/addons/<addon>/...";
    /// Every other path: the client's own addon, because gRPC's clients cannot put anything before a path.
    OTHERS = "/...";
}

/// Header of the response to `GET /v1/bundle`: within how many seconds the client should renew its certificate.
pub const HEADER_RENEW_WITHIN: &str = "x-addon-signer-renew-within";
/// Condition type of a ManagedClusterAddOn: false while the hub does not write its registrations, because another
/// program keeps changing them.
pub const CONDITION_ADDON_REGISTERED: &str = "addon-signer.io/Registered";
/// Condition type of a ManagedClusterAddOn: whether the addon has a certificate that gateways accept. A cluster may
/// write it too, so it is a report, and nothing is decided by it.
pub const CONDITION_CERTIFICATE: &str = "addon-signer.io/Certificate";
/// The tracing target of decisions. The audit log has only events with this target.
pub const AUDIT_TARGET: &str = "audit";
/// The tracing target of requests that have ended. The access log has only events with this target.
pub const ACCESS_TARGET: &str = "access";

/// A row of such a table.
#[derive(Debug, Clone, Copy)]
pub struct Named<T: 'static> {
    /// The value of the constant.
    pub value: T,
    /// Further columns.
    pub more: &'static [&'static str],
    /// The docstring.
    pub meaning: &'static str,
}

/// Declares constants and the table of them: `pub TABLE of pub Type; /// Its meaning. NAME = value => "column"; …`.
#[macro_export]
macro_rules! table {
    ($(#[$about:meta])* $of_table:vis $table:ident of $vis:vis $type:ty;
     $($(#[doc = $doc:literal])+ $name:ident = $value:expr $(=> $($more:expr),+)?;)+) => {
        $($(#[doc = $doc])+ $vis const $name: $type = $value;)+
        $(#[$about])*
        $of_table const $table: &[$crate::names::Named<$type>] = &[$($crate::names::Named {
            value: $name, more: &[$($($more),+)?], meaning: concat!($($doc),+),
        }),+];
    };
}

/// Declares an enum whose variants have names, and a function that returns the name:
/// `pub enum Type { /// Its meaning. Variant = "name", … } /// Its use. pub fn name(self) -> &'static str;`.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $type:ident { $($(#[$meaning:meta])* $variant:ident = $name:literal,)+ }
     $(#[$usage:meta])* $of:vis fn $function:ident(self) -> &'static str;) => {
        $(#[$about])*
        $vis enum $type { $($(#[$meaning])* $variant,)+ }

        impl $type {
            /// All of them.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            $(#[$usage])*
            #[must_use]
            $of fn $function(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.$function())
            }
        }
    };
}
