//! The conditions that the hub writes, and their reasons. The columns of a reason are its conditions and their status.

use crate::names::{CONDITION_ADDON_REGISTERED, CONDITION_CERTIFICATE};
use crate::table;

/// Condition type: the object is valid and its CSRs are signed.
pub const CONDITION_READY: &str = "Ready";
/// Condition type: the Secret with the authorities can be read.
pub const CONDITION_AUTHORITY_HEALTHY: &str = "AuthorityHealthy";
/// Condition type: the authority that the issuer offers is used, or why it is not. Only where the hub does not issue
/// authorities itself.
pub const CONDITION_AUTHORITY_ISSUED: &str = "AuthorityIssued";
/// Condition type: addons that it names belong to another AddOnSigner, which it does not serve.
pub const CONDITION_ADDONS_CONFLICTED: &str = "AddOnsConflicted";
/// Condition type: a rotation of the authority is under way.
pub const CONDITION_ROTATING: &str = "Rotating";
/// Condition type: the hub or the addon-manager has OCM's agents request this signer's certificates.
pub const CONDITION_REGISTERED: &str = "Registered";
/// Condition type: every cluster of the addons has the current trust bundle by its ManifestWork.
pub const CONDITION_TRUST_DISTRIBUTED: &str = "TrustDistributed";
/// Condition type: the ClusterTrustBundle has the current trust bundle.
pub const CONDITION_TRUST_PUBLISHED: &str = "TrustPublished";
/// Condition type: only the hub can set the trust bundle that agents take from their CSRs.
pub const CONDITION_TRUST_BUNDLE_PROTECTED: &str = "TrustBundleProtected";
/// Condition type: CSRs of this signer have certificates that another program signed.
pub const CONDITION_FOREIGN: &str = "ForeignCertificates";

/// Condition type: the AddOnSigner lets this AddOnRoute attach (Gateway API, `RouteConditionAccepted`).
pub const CONDITION_ACCEPTED: &str = "Accepted";
/// Condition type: the backend and its CA were found (Gateway API, `RouteConditionResolvedRefs`).
pub const CONDITION_RESOLVED_REFS: &str = "ResolvedRefs";
/// Condition type: the gateway has all its paths in effect (Gateway API, `GatewayConditionProgrammed`).
pub const CONDITION_PROGRAMMED: &str = "Programmed";

/// Condition type of OCM: the addon is registered.
pub const CONDITION_REGISTRATION_APPLIED: &str = "RegistrationApplied";

/// Condition type: the CSR waits because its addon or its cluster got too many certificates.
pub const RATE_LIMITED: &str = "RateLimited";
/// Condition type: the CSR waits because its certificate would be revoked.
pub const REVOKED: &str = "Revoked";
/// Condition type: the CSR is not signed, because the ledger holds something else for it.
pub const RECORD_UNUSABLE: &str = "RecordUnusable";
/// Condition type: the CSR waits because any client could have changed the user for whom OCM's gRPC server made it.
pub const PROXY_UNPROVEN: &str = "ProxyUnproven";

/// A status of conditions.
pub const TRUE: &str = "True";
/// A status of conditions.
pub const FALSE: &str = "False";
/// A status of conditions.
pub const UNKNOWN: &str = "Unknown";

table! {
    /// The reasons of an AddOnSigner's conditions.
    pub OF_SIGNERS of pub &str;
    /// The hub validates and signs the CSRs of this signer. It signs the first one only once every gateway trusts its
    /// authority; until then the message says `The first certificate waits for`.
    SIGNING = "Signing" => CONDITION_READY, TRUE;
    /// As `Signing`, but agents may not trust the gateway: its certificate authority was activated without evidence
    /// (rotate-a-ca.md#without-evidence).
    GATEWAY_FORCED = "GatewayAuthorityForced" => CONDITION_READY, TRUE;
    /// As `Signing`, but agents trust a root that `--serving-roots` does not name (company-root.md).
    ROOT_UNNAMED = "GatewayRootUnnamed" => CONDITION_READY, TRUE;
    /// The hub has not read the certificate authorities yet, or has not asked whether it may sign.
    STARTING = "Starting" => CONDITION_READY, FALSE;
    /// The spec cannot be used; the message names the field. The AddOnSigner has no effect: it signs nothing, and the
    /// gateway lets none of its agents in until the field is fixed.
    INVALID_SPEC = "InvalidSpec" => CONDITION_READY, FALSE;
    /// The name of the AddOnSigner has more than 63 characters, or is `gateway-serving` or `gateway-client`.
    INVALID_NAME = "InvalidName" => CONDITION_READY, FALSE;
    /// Another AddOnSigner had this `signerName` first.
    DUPLICATE_SIGNER_NAME = "DuplicateSignerName" => CONDITION_READY, FALSE;
    /// All of `addOns` belong to other AddOnSigners, which had them first.
    ADDONS_OF_OTHERS = "AddOnsOfOthers" => CONDITION_READY, FALSE;
    /// 256 AddOnSigners have certificate authorities, which is the most; the message says what to do.
    TOO_MANY_SIGNERS = "TooManySigners" => CONDITION_READY, FALSE;
    /// The hub's account may not sign, or not approve, for this `signerName`, so it makes no certificate authority. It
    /// asks again every 15 seconds.
    NOT_PERMITTED = "NotPermitted" => CONDITION_READY, FALSE;
    /// The authority that would sign has less than ten minutes left, and its issuer has sent no other
    /// (company-root.md): CSRs wait.
    AUTHORITY_EXPIRED = "AuthorityExpired" => CONDITION_READY, FALSE;
    /// The authority that would sign is tainted (rotate-a-ca.md#taint-an-authority): CSRs wait until another one signs.
    TAINTED = "ActiveTainted" => CONDITION_READY, FALSE;
    /// The ledger cannot be written to, so nothing is signed; the hub reports it within 15 seconds.
    LEDGER_AWAY = "LedgerAway" => CONDITION_READY, FALSE;
    /// The authorities of the gateway's certificate cannot be read, so there is no trust bundle to give out.
    GATEWAY_BROKEN = "GatewayAuthorityBroken" => CONDITION_READY, FALSE;
    /// The Secret with the authorities is gone while certificates may be in use (lost-ca.md).
    AUTHORITY_MISSING = "AuthorityMissing" => CONDITION_READY, CONDITION_AUTHORITY_HEALTHY, FALSE;
    /// The Secret with the authorities cannot be read, or has those of another lineage: an AddOnSigner with another
    /// `signerName` had this name before, or an administrator mixed up Secrets (lost-ca.md).
    AUTHORITY_UNREADABLE = "AuthorityUnreadable" => CONDITION_READY, CONDITION_AUTHORITY_HEALTHY, FALSE;
    /// The API server did not answer, and the hub has not read the authorities before.
    AUTHORITY_UNAVAILABLE = "AuthorityUnavailable" => CONDITION_READY, CONDITION_AUTHORITY_HEALTHY, FALSE;
    /// The hub's clock is ahead of the API server's, so the hub makes no first certificate authority.
    CLOCK_AHEAD = "ClockAhead" => CONDITION_READY, CONDITION_AUTHORITY_HEALTHY, FALSE;
    /// The issuer has sent no authority yet (company-root.md); the message says what is awaited or wrong.
    AUTHORITY_NOT_ISSUED = "AuthorityNotIssued" => CONDITION_READY, CONDITION_AUTHORITY_HEALTHY, FALSE;
    /// A step of the authorities failed; the message says which.
    AUTHORITY_FAILED = "AuthorityFailed" => CONDITION_READY, CONDITION_AUTHORITY_HEALTHY, FALSE;
    /// The Secret with the authorities can be read.
    READABLE = "Readable" => CONDITION_AUTHORITY_HEALTHY, TRUE;
    /// Only if the hub does not issue authorities itself: every authority that the issuer has offered is or was in use.
    ISSUED = "Issued" => CONDITION_AUTHORITY_ISSUED, TRUE;
    /// The authority that the issuer offers now is not used; the message says why.
    NOT_USED = "NotUsed" => CONDITION_AUTHORITY_ISSUED, FALSE;
    /// Some of `addOns` belong to other AddOnSigners, which had them first; the message names some and says what to do.
    /// This one is not served for them.
    SOME_OF_OTHERS = ADDONS_OF_OTHERS => CONDITION_ADDONS_CONFLICTED, TRUE;
    /// The message says what the next step waits for, such as the hub's clock.
    WAITING = "Waiting" => CONDITION_ROTATING, TRUE;
    /// The authority that signs was activated without evidence that every gateway trusts it
    /// (rotate-a-ca.md#without-evidence).
    FORCED = "Forced" => CONDITION_ROTATING, TRUE;
    /// The hub takes the next step of the rotation.
    STEPPING = "Stepping" => CONDITION_ROTATING, TRUE;
    /// One authority signs, and no other is trusted.
    SETTLED = "Settled" => CONDITION_ROTATING, FALSE;
    /// The hub keeps this signer in `status.registrations` of its addons.
    WRITTEN = "Written" => CONDITION_REGISTERED, TRUE;
    /// OCM's addon-manager registers the addons, and their AddOnTemplates name this signer.
    NAMED_BY_TEMPLATE = "NamedByTemplate" => CONDITION_REGISTERED, TRUE;
    /// The AddOnTemplates do not name this signer; the addons' agents must send CSRs themselves, which
    /// `identity.requesters` allows and each of these templates makes possible (`type: KubeClient`).
    ASKED_BY_ADDON = "AskedByAddOn" => CONDITION_REGISTERED, TRUE;
    /// An AddOnTemplate in use does not name this signer, names it with a `subject.user`, or does not exist; where
    /// addons may send CSRs themselves, it also lacks `type: KubeClient`.
    TEMPLATE_LACKS_SIGNER = "TemplateLacksSigner" => CONDITION_REGISTERED, FALSE;
    /// An AddOnTemplate in use names this signer for an addon that is not in `addOns`, so that its CSRs are denied.
    ADDON_NOT_OF_SIGNER = "AddOnNotOfSigner" => CONDITION_REGISTERED, FALSE;
    /// OCM makes names of `signerName` that Kubernetes refuses: a volume `cert-<signerName>` of more than 63 characters
    /// in the pods of an AddOnTemplate, or a Secret `<addon>-<signerName>-client-cert` of more than 253.
    SIGNER_NAME_TOO_LONG = "SignerNameTooLong" => CONDITION_REGISTERED, FALSE;
    /// Another program keeps removing this signer from `status.registrations`. The hub puts it back after pauses that
    /// grow from 1 minute to 6 hours.
    REASON_TAKEN_AWAY = "TakenAway" => CONDITION_REGISTERED, FALSE;
    /// The API server refuses what the hub writes into `status.registrations`.
    REGISTRATION_FAILED = "WriteFailed" => CONDITION_REGISTERED, FALSE;
    /// The hub cannot read ClusterManagementAddOns or AddOnTemplates, and writes no registrations until it can.
    TEMPLATES_UNREAD = "TemplatesUnread" => CONDITION_REGISTERED, FALSE;
    /// Every cluster of the addons has applied the present trust bundle by its ManifestWork.
    DISTRIBUTED = "Distributed" => CONDITION_TRUST_DISTRIBUTED, TRUE;
    /// Some have not; the message counts them and names three.
    DISTRIBUTING = "Distributing" => CONDITION_TRUST_DISTRIBUTED, FALSE;
    /// The same, and the API server has refused the hub's last write of one of their ManifestWorks, or did not answer;
    /// the message gives the last failure.
    WORK_FAILED = REGISTRATION_FAILED => CONDITION_TRUST_DISTRIBUTED, FALSE;
    /// All except those that get none: their agents run on a hosting cluster, or in a namespace whose name is not
    /// valid. Ship the bundle there yourself: a rotation waits for them until they show it or their certificates
    /// expire.
    PLACELESS = "Placeless" => CONDITION_TRUST_DISTRIBUTED, FALSE;
    /// The ClusterTrustBundle has the present trust bundle.
    PUBLISHED = "Published" => CONDITION_TRUST_PUBLISHED, TRUE;
    /// The API server refused the hub's last write of it, or did not answer, or another client keeps changing it; the
    /// message says which.
    NOT_PUBLISHED = "NotPublished" => CONDITION_TRUST_PUBLISHED, FALSE;
    /// Only the hub can set the trust bundle that agents take from their CSRs.
    POLICY_IN_FORCE = "PolicyInForce" => CONDITION_TRUST_BUNDLE_PROTECTED, TRUE;
    /// The ValidatingAdmissionPolicy is not in force: it or its binding is missing, does not deny, or does not know the
    /// hub's account (trust.md#trust-in-csrs, trust.md#trust-on-every-cluster). Without that of `trust.manifestWorks`
    /// the hub, which has the right to write any ManifestWork, writes none.
    POLICY_MISSING = "PolicyMissing" => CONDITION_TRUST_BUNDLE_PROTECTED, CONDITION_TRUST_DISTRIBUTED, FALSE;
    /// The hub cannot tell whether that policy is in force: another program refuses the dry run, or the API server does
    /// not answer it; the message says which. Once the hub has not seen the policy of `trust.manifestWorks` in force
    /// for twenty minutes, it writes no ManifestWorks.
    POLICY_UNKNOWN = "PolicyUnknown" => CONDITION_TRUST_BUNDLE_PROTECTED, CONDITION_TRUST_DISTRIBUTED, FALSE;
    /// The policy lets another account set the trust bundle than the hub has, so that no certificate can be given out;
    /// the message names both.
    REFUSES_HUB = "PolicyRefusesHub" => CONDITION_READY, CONDITION_TRUST_BUNDLE_PROTECTED, FALSE;
    /// CSRs have certificates that none of this signer's authorities signed, so that the gateway refuses them; the
    /// message names some (certificates.md#certificates-by-another-program).
    SIGNED_BY_ANOTHER = "SignedByAnother" => CONDITION_FOREIGN, TRUE;
}

table! {
    /// The reasons of an AddOnRoute's conditions: those of the Gateway API where it has one.
    pub OF_ROUTES of pub &str;
    /// The AddOnSigner lets it attach.
    ACCEPTED = CONDITION_ACCEPTED => CONDITION_ACCEPTED, TRUE;
    /// The hub serves no AddOnSigner with the name in `signer`.
    NO_PARENT = "NoMatchingParent" => CONDITION_ACCEPTED, FALSE;
    /// The AddOnSigner's `gateway.routesFrom` does not include this namespace.
    NOT_ALLOWED = "NotAllowedByListeners" => CONDITION_ACCEPTED, FALSE;
    /// One of `hostnames` is not in the AddOnSigner's `gateway.hostnames`, or is not a `--gateway-name` of the hub.
    NO_HOSTNAME = "NoMatchingListenerHostname" => CONDITION_ACCEPTED, FALSE;
    /// A field has a value that the hub cannot use; the message names the field.
    UNSUPPORTED_VALUE = "UnsupportedValue" => CONDITION_ACCEPTED, FALSE;
    /// The backend was found.
    RESOLVED = CONDITION_RESOLVED_REFS => CONDITION_RESOLVED_REFS, TRUE;
    /// The backend was found, but it has no ready endpoint, so that its requests get a 503.
    REASON_NO_ENDPOINT = "NoReadyEndpoint" => CONDITION_RESOLVED_REFS, CONDITION_PROGRAMMED, TRUE;
    /// It is not accepted, so the hub has not looked for its backend; or the hub has not read the backend yet, and the
    /// one before stays in effect.
    REASON_PENDING = "Pending" => CONDITION_RESOLVED_REFS, CONDITION_PROGRAMMED, UNKNOWN;
    /// There is no such Service, or it has no such TCP port.
    BACKEND_NOT_FOUND = "BackendNotFound" => CONDITION_RESOLVED_REFS, FALSE;
    /// The Service is an ExternalName, one of its endpoints has an address that no backend may have
    /// (gateway.md#addresses-of-backends), the hub may not read Services in this namespace (`gateway.backendNamespaces`
    /// of the chart), or `backend.address` is in no network of `--backend-addresses`.
    REF_NOT_PERMITTED = "RefNotPermitted" => CONDITION_RESOLVED_REFS, FALSE;
    /// The gateway does not know the port's `appProtocol`, `backend.tls` does not fit the protocol, or gRPC would go
    /// over HTTP/1.1; the message says which `backend.protocol` to set.
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol" => CONDITION_RESOLVED_REFS, FALSE;
    /// The backend speaks TLS, and `backend.tls` is missing, or its ClusterTrustBundle does not exist or cannot be
    /// used.
    INVALID_CA = "InvalidCACertificateRef" => CONDITION_RESOLVED_REFS, FALSE;
    /// Older AddOnRoutes name Services in 24 other namespaces.
    TOO_MANY_NAMESPACES = "LimitExceeded" => CONDITION_RESOLVED_REFS, FALSE;
    /// All its paths are in effect.
    PROGRAMMED = CONDITION_PROGRAMMED => CONDITION_PROGRAMMED, TRUE;
    /// It is not accepted and has no effect; or its backend cannot be used (`ResolvedRefs` is `False`), so that its
    /// requests get a 503.
    INVALID = "Invalid" => CONDITION_PROGRAMMED, FALSE;
    /// An older AddOnRoute has one of its paths, for some of the same addons, hosts and clusters, and gets those
    /// requests; or some backends read one of its paths as that of such an AddOnRoute (paths.md), and the message says
    /// what follows. Its other paths are in effect.
    CONFLICTED = "Conflicted" => CONDITION_PROGRAMMED, FALSE;
    /// Older AddOnRoutes already have 256 paths of an addon, in effect or `Conflicted`; the paths beyond that have no
    /// effect.
    TOO_MANY_PATHS = TOO_MANY_NAMESPACES => CONDITION_PROGRAMMED, FALSE;
}

table! {
    /// The reasons of a ManagedClusterAddOn's conditions.
    pub OF_ADDONS of pub &str;
    /// The hub registered the addon. It adds the condition only where there is none.
    PERMISSION_APPLIED = "SetPermissionApplied" => CONDITION_REGISTRATION_APPLIED, TRUE;
    /// The hub leaves `status.registrations` to a program that keeps changing it; removed when that program has
    /// stopped.
    LEFT_TO_ANOTHER = REASON_TAKEN_AWAY => CONDITION_ADDON_REGISTERED, FALSE;
    /// The message says until when the certificate is valid, and which authority signed it.
    CERTIFICATE_ISSUED = ISSUED => CONDITION_CERTIFICATE, TRUE;
    /// The same, but the addon's last CSR was refused; the message says why.
    RENEWAL_REFUSED = "RenewalRefused" => CONDITION_CERTIFICATE, TRUE;
    /// The cluster is not accepted, or the addon is suspended, being deleted or unreadable.
    NOT_ELIGIBLE = "NotEligible" => CONDITION_CERTIFICATE, FALSE;
    /// The addon's certificates are revoked, and it has made no CSR since; or they are revoked until a later time.
    CERTIFICATES_REVOKED = REVOKED => CONDITION_CERTIFICATE, FALSE;
    /// The addon's last CSR was refused; the message says why.
    CSR_REFUSED = "Refused" => CONDITION_CERTIFICATE, FALSE;
    /// The addon's last CSR waits; the message says for what.
    CSR_PENDING = REASON_PENDING => CONDITION_CERTIFICATE, FALSE;
    /// No AddOnSigner has the signer name of the addon's last CSR.
    NO_SUCH_SIGNER = "UnknownSigner" => CONDITION_CERTIFICATE, FALSE;
    /// Gateways do not trust the authority of the addon's certificate any more.
    AUTHORITY_OF_CERTIFICATE_GONE = AUTHORITY_REMOVED => CONDITION_CERTIFICATE, FALSE;
    /// The addon's certificate expired within the last week, and the addon has made no CSR since.
    CERTIFICATE_EXPIRED = "Expired" => CONDITION_CERTIFICATE, FALSE;
    /// The addon's agent has made no CSR, or none since its ManagedClusterAddOn or ManagedCluster was created.
    NO_CSR = "NoRequest" => CONDITION_CERTIFICATE, FALSE;
}

table! {
    /// The reasons of a CertificateSigningRequest's conditions. Those of `Denied` and `Failed` are also the causes of a
    /// refusal (`policy::Refusal`).
    pub OF_CSRS of pub &str;
    /// The CSR follows the rules of its signer.
    POLICY_ALLOWS = "PolicyAllows" => "Approved", TRUE;
    /// The certificate was signed, but had expired or was revoked or untrusted before the hub could publish it; make a
    /// new CSR.
    CERTIFICATE_OUTDATED = "CertificateOutdated" => "Denied", "Failed", TRUE;
    /// The addon or its cluster received too many certificates; the CSR waits for its turn.
    TOO_MANY_REQUESTS = "TooManyRequests" => RATE_LIMITED, TRUE;
    /// No certificate of the addon may begin before a time that the hub's clock has not reached: a revocation, or when
    /// the addon was made; the CSR waits for it.
    REVOKED_UNTIL_LATER = "RevokedUntilLater" => REVOKED, TRUE;
    /// The ledger holds something other than the CSR's certificate; nothing is signed (wrong-ledger.md).
    LEDGER_ROW_UNUSABLE = "LedgerRowUnusable" => RECORD_UNUSABLE, TRUE;
    /// OCM's gRPC server made the CSR, and anyone could change whom it is for: the policy of `grpcAccount` is not in
    /// force (trust.md#agents-behind-ocms-grpc-server); the CSR waits.
    PROXY_POLICY_MISSING = POLICY_MISSING => PROXY_UNPROVEN, TRUE;
    /// The hub cannot tell whether that policy is in force; the message says what ended its dry run.
    PROXY_POLICY_UNKNOWN = POLICY_UNKNOWN => PROXY_UNPROVEN, TRUE;
}

table! {
    /// The reasons of Kubernetes Events that are no reasons of conditions. The columns are type and object.
    pub OF_EVENTS of pub &str;
    /// An authority was created as the next one.
    AUTHORITY_PREPARED = "AuthorityPrepared" => "Normal", "AddOnSigner";
    /// An authority began to sign, or signs again after a rollback.
    AUTHORITY_ACTIVATED = "AuthorityActivated" => "Normal", "AddOnSigner";
    /// An authority was removed with its key.
    AUTHORITY_REMOVED = "AuthorityRemoved" => "Normal", "AddOnSigner";
    /// An authority is tainted.
    AUTHORITY_TAINTED = "AuthorityTainted" => "Warning", "AddOnSigner";
    /// There are 512 older AddOnSigners, so this one takes no effect; written for the oldest of those.
    TOO_MANY_ADDON_SIGNERS = "TooManyAddOnSigners" => "Warning", "AddOnSigner";
    /// The API server refuses the hub's write of the status, such as that of an object that is too large to be
    /// changed. For AddOnRoutes at most one in ten minutes.
    STATUS_NOT_WRITTEN = "StatusNotWritten" => "Warning", "AddOnSigner, or the namespace of an AddOnRoute";
    /// The namespace has more than 64 AddOnRoutes that may attach, of which the younger ones take no effect.
    TOO_MANY_ADDON_ROUTES = "TooManyAddOnRoutes" => "Warning", "namespace";
}
