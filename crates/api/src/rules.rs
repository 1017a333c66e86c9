//! Converts an AddOnSigner to the core's types. What the schema could not check is checked here, and an error names the
//! field. A signer whose AddOnSigner is invalid signs nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::authority::{AuthoritySource, IssuerType};
use crate::ocm::created_at;
use crate::signer::{AddOnSigner, AddOnSignerSpec, Approval, GatewaySpec, RegistrationMode, RoutesFrom, TrustMode};
use crate::status::{AddOnSignerStatus, CONDITION_READY, DUPLICATE_SIGNER_NAME};
use addon_signer_core::ca::lineage::RESERVE_AHEAD;
use addon_signer_core::gateway::attachment::{Attachment, Requirement};
use addon_signer_core::gateway::host::{Host, NoHost};
use addon_signer_core::identity::{Convention, IdentityError, SignerName};
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::ownership::Candidate;
use addon_signer_core::policy::{MIN_LIFETIME, SignerRules};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::units::parse_duration;

/// The longest lifetime of an agent's certificate, whatever the configuration says: a year, as in the schema.
const MAX_LIFETIME: Duration = Duration::from_secs(8760 * 3600);

/// The minimum of `authority.renewBefore`: an authority signs nothing in its last minutes, and its successor needs
/// time.
const MIN_RENEW_BEFORE: Duration = Duration::from_secs(3600);

/// A field of `spec` that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("spec.{field} is refused: {cause}")]
pub struct InvalidField {
    /// Path below `spec`.
    pub field: &'static str,
    /// One sentence without a period.
    pub cause: String,
}

/// How authorities of a lineage are created and when they are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthorityPlan {
    /// The kind of a new key.
    pub key: KeyKind,
    /// The lifetime of a new authority.
    pub duration: Duration,
    /// How long before it expires it is replaced.
    pub renew_before: Duration,
    /// How much later that is after a rollback.
    pub deferral: Duration,
}

impl AuthorityPlan {
    /// The plan of the gateway's lineage: a holder of a certificate with the lifetime `longest` gets the anchor of the
    /// next authority as long before its first use as without such certificates.
    #[must_use]
    pub fn for_holders(self, longest: Duration) -> Self {
        let wait = longest + longest / RESERVE_AHEAD;
        Self { duration: self.duration + wait, renew_before: self.renew_before + wait, ..self }
    }
}

/// An AddOnSigner that can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerConfig {
    /// `metadata.generation` of the object: which version of the rules this is. 0 until it is known.
    pub generation: i64,
    /// What may be signed.
    pub rules: SignerRules,
    /// Whether the hub itself approves CSRs.
    pub approves: bool,
    /// Whether the hub writes `status.registrations`.
    pub registers: bool,
    /// Whether ManifestWorks bring the trust bundle to the clusters of its addons.
    pub brings_trust: bool,
    /// Whether a ClusterTrustBundle publishes the trust bundle to the pods of the hub cluster.
    pub publishes_trust: bool,
    /// When the signer's authorities are replaced, and how the hub makes them.
    pub authority: AuthorityPlan,
    /// Where they come from.
    pub source: AuthoritySource,
    /// Which AddOnRoutes may attach.
    pub attachment: Attachment,
}

impl SignerConfig {
    /// Reads `spec`. `grpc_proxy` is the hub's own setting, the same for every signer.
    ///
    /// # Errors
    /// The first [`InvalidField`].
    pub fn read(spec: &AddOnSignerSpec, grpc_proxy: Option<&str>) -> Result<Self, InvalidField> {
        let signer_name =
            spec.signer_name.parse().map_err(|error: IdentityError| invalid("signerName", &error.to_string()))?;
        let renew_before = duration("authority.renewBefore", &spec.authority.renew_before)?;
        let authority = AuthorityPlan {
            key: spec.authority.key.kind(),
            duration: duration("authority.duration", &spec.authority.duration)?,
            renew_before,
            deferral: renew_before / 4,
        };
        let rules = rules(spec, signer_name, grpc_proxy)?;
        if rules.max_duration >= authority.duration {
            return Err(invalid("authority.duration", "it must be longer than certificate.maxDuration"));
        }
        if authority.renew_before < MIN_RENEW_BEFORE {
            return Err(invalid("authority.renewBefore", "it must be at least 1h"));
        }
        if authority.renew_before >= authority.duration {
            return Err(invalid("authority.renewBefore", "it must be shorter than authority.duration"));
        }
        let attachment = attachment(&spec.gateway)?;
        let approves = spec.approval == Approval::Automatic;
        let registers = spec.registration == RegistrationMode::Managed;
        let brings_trust = spec.trust.manifest_work == TrustMode::Auto;
        let publishes_trust = spec.trust.cluster_trust_bundle == TrustMode::Auto;
        let issuer = &spec.authority.issuer;
        let names_secret =
            issuer.secret_name.as_ref().map(|name| !name.is_empty() && issuer.kind == IssuerType::Imported);
        if names_secret == Some(false) {
            return Err(invalid("authority.issuer.secretName", "it is for the type Imported, and never empty"));
        }
        let source = issuer.source().map_err(|field| invalid(field, "this type of issuer needs it"))?;
        Ok(Self {
            generation: 0,
            rules,
            approves,
            registers,
            brings_trust,
            publishes_trust,
            authority,
            source,
            attachment,
        })
    }
}

/// Whether another AddOnSigner had the signer name when the status was written. The authorities in such a status are
/// from before that.
fn is_duplicate(status: &AddOnSignerStatus) -> bool {
    status.conditions.iter().any(|it| it.type_ == CONDITION_READY && it.reason == DUPLICATE_SIGNER_NAME)
}

/// What an AddOnSigner names and what it owned before, whether it can be served or not.
pub fn candidate(object: &AddOnSigner) -> Candidate {
    let status = object.status.as_ref();
    Candidate {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        created: created_at(&object.metadata).unwrap_or(Timestamp::from_unix(i64::MAX)),
        signer_name: object.spec.signer_name.clone(),
        addons: object.spec.add_ons.iter().cloned().collect(),
        successor: object.spec.successor.clone(),
        had_signer_name: status.is_some_and(|status| !status.authorities.is_empty() && !is_duplicate(status)),
        had: status.map(|status| status.add_ons.clone()).unwrap_or_default(),
    }
}

fn rules(
    spec: &AddOnSignerSpec,
    signer_name: SignerName,
    grpc_proxy: Option<&str>,
) -> Result<SignerRules, InvalidField> {
    let identity = &spec.identity;
    let convention = Convention::new(&identity.user, &identity.groups, &identity.dns_names)
        .and_then(|convention| convention.check_signer(&signer_name).map(|()| convention))
        .map_err(|error| invalid("identity", &error.to_string()))?;
    let addons = spec.add_ons.iter().map(|name| name.parse()).collect::<Result<_, IdentityError>>();
    let shortest = duration("certificate.duration", &spec.certificate.duration)?;
    let longest = duration("certificate.maxDuration", &spec.certificate.max_duration)?;
    if shortest < MIN_LIFETIME || shortest > longest {
        return Err(invalid("certificate.duration", "it must be at least 10m and at most certificate.maxDuration"));
    }
    if longest > MAX_LIFETIME {
        return Err(invalid("certificate.maxDuration", "it must be at most 8760h"));
    }
    if spec.add_ons.is_empty() || spec.certificate.keys.is_empty() {
        let field = if spec.add_ons.is_empty() { "addOns" } else { "certificate.keys" };
        return Err(invalid(field, "it must name at least one"));
    }
    if identity.requesters.is_empty() {
        return Err(invalid("identity.requesters", "it must name at least one"));
    }
    Ok(SignerRules {
        signer_name,
        addons: addons.map_err(|error| invalid("addOns", &error.to_string()))?,
        convention,
        requesters: identity.requesters.iter().map(|kind| kind.kind()).collect(),
        organizational_units: identity.organizational_units.iter().cloned().collect(),
        keys: spec.certificate.keys.iter().map(|key| key.kind()).collect(),
        duration: shortest,
        max_duration: longest,
        grpc_proxy: grpc_proxy.map(str::to_owned),
    })
}

fn attachment(spec: &GatewaySpec) -> Result<Attachment, InvalidField> {
    let GatewaySpec { routes_from: RoutesFrom { namespaces, selector }, hostnames } = spec;
    Ok(Attachment {
        namespaces: namespaces.iter().cloned().collect(),
        selector: selector.as_ref().map(requirements).transpose()?,
        hostnames: hosts("gateway.hostnames", hostnames)?,
    })
}

pub(crate) fn hosts(field: &'static str, names: &[String]) -> Result<BTreeSet<Host>, InvalidField> {
    names.iter().map(|name| name.parse().map_err(|cause: NoHost| invalid(field, &cause.to_string()))).collect()
}

fn requirements(selector: &LabelSelector) -> Result<Vec<Requirement>, InvalidField> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| Ok(Requirement::In(key.clone(), [value.clone()].into())));
    labels.chain(selector.match_expressions.iter().flatten().map(requirement)).collect()
}

fn requirement(expression: &LabelSelectorRequirement) -> Result<Requirement, InvalidField> {
    let LabelSelectorRequirement { key, operator, values } = expression;
    let key = key.clone();
    let values = || values.iter().flatten().cloned().collect();
    match operator.as_str() {
        "In" => Ok(Requirement::In(key, values())),
        "NotIn" => Ok(Requirement::NotIn(key, values())),
        "Exists" => Ok(Requirement::Exists(key)),
        "DoesNotExist" => Ok(Requirement::DoesNotExist(key)),
        other => {
            let cause = format!("the operator {other:?} is none of In, NotIn, Exists, DoesNotExist");
            Err(invalid("gateway.routesFrom.selector", &cause))
        }
    }
}

fn duration(field: &'static str, text: &str) -> Result<Duration, InvalidField> {
    parse_duration(text).map_err(|error| invalid(field, &error.to_string()))
}

fn invalid(field: &'static str, cause: &str) -> InvalidField {
    InvalidField { field, cause: cause.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::IssuerType;

    fn mk_spec() -> AddOnSignerSpec {
        serde_json::from_value(serde_json::json!({"signerName": "example.com/telemetry", "addOns": ["telemetry"]}))
            .unwrap()
    }

    fn field(change: impl FnOnce(&mut AddOnSignerSpec)) -> &'static str {
        let mut spec = mk_spec();
        change(&mut spec);
        SignerConfig::read(&spec, None).unwrap_err().field
    }

    #[test]
    fn what_another_one_has_had_since_is_not_had() {
        let mut object = AddOnSigner::new("a", mk_spec());
        let mut had = |reason: &str| {
            let at = "2026-11-23T00:00:00Z";
            let authority = serde_json::json!({"id": "x", "state": "Active", "notBefore": at, "notAfter": at});
            let ready = serde_json::json!({"type": "Ready", "status": "False", "reason": reason, "message": "",
                                           "lastTransitionTime": at});
            let status = serde_json::json!({"authorities": [authority], "conditions": [ready]});
            object.status = serde_json::from_value(status).unwrap();
            candidate(&object).had_signer_name
        };
        assert!(had("LedgerAway"));
        assert!(!had("DuplicateSignerName"));
    }

    #[test]
    fn defaults_are_readable() {
        let config = SignerConfig::read(&mk_spec(), None).unwrap();
        assert!(config.approves);
        assert!(config.registers);
        assert_eq!(config.rules.keys.len(), 6);
        assert_eq!(config.rules.duration, Duration::from_secs(86_400));
        assert_eq!(config.authority.key, KeyKind::EcdsaP256);
    }

    #[test]
    fn a_bad_field_is_named() {
        assert_eq!(field(|spec| spec.signer_name = "kubernetes.io/kubelet-serving".into()), "signerName");
        assert_eq!(field(|spec| spec.add_ons = vec!["Bad_Name".into()]), "addOns");
        assert_eq!(field(|spec| spec.add_ons.clear()), "addOns");
        assert_eq!(field(|spec| spec.identity.user = "{cluster}{addon}".into()), "identity");
        assert_eq!(field(|spec| spec.identity.groups = vec!["{agent}".into()]), "identity");
        assert_eq!(field(|spec| spec.identity.requesters.clear()), "identity.requesters");
        assert_eq!(field(|spec| spec.certificate.duration = "5m".into()), "certificate.duration");
        assert_eq!(field(|spec| spec.certificate.duration = "200h".into()), "certificate.duration");
        assert_eq!(field(|spec| spec.certificate.max_duration = "9000h".into()), "certificate.maxDuration");
        assert_eq!(field(|spec| spec.certificate.keys.clear()), "certificate.keys");
        assert_eq!(field(|spec| spec.authority.duration = "100h".into()), "authority.duration");
        assert_eq!(field(|spec| spec.authority.renew_before = "8760h".into()), "authority.renewBefore");
        assert_eq!(field(|spec| spec.authority.renew_before = "soon".into()), "authority.renewBefore");
        assert_eq!(field(|spec| spec.authority.renew_before = "59m".into()), "authority.renewBefore");
        assert_eq!(field(|spec| spec.authority.issuer.kind = IssuerType::CertManager), "authority.issuer.issuerRef");
        assert_eq!(field(|spec| spec.authority.issuer.kind = IssuerType::Vault), "authority.issuer.vault");
    }

    #[test]
    fn the_gateways_authority_has_time_for_the_longest_certificate() {
        let days = |days: u32| Duration::from_secs(86_400) * days;
        let plan =
            AuthorityPlan { key: KeyKind::EcdsaP256, duration: days(365), renew_before: days(90), deferral: days(22) };
        let longest = plan.for_holders(MAX_LIFETIME);
        assert_eq!(longest.renew_before, days(90) + MAX_LIFETIME + MAX_LIFETIME / 8);
        assert_eq!(longest.duration - longest.renew_before, days(365 - 90), "as many rotations as before");
        assert_eq!(longest.deferral, plan.deferral, "so that all of them still get it in time");
    }

    #[test]
    fn a_selector_of_namespaces_is_read() {
        let read = |selector: serde_json::Value| {
            let mut spec = mk_spec();
            let gateway = serde_json::json!({"routesFrom": {"namespaces": ["a"], "selector": selector}});
            spec.gateway = serde_json::from_value(gateway).unwrap();
            SignerConfig::read(&spec, None).map(|config| config.attachment).map_err(|error| error.field)
        };
        let labels: addon_signer_core::gateway::attachment::Labels = [("team".to_owned(), "x".to_owned())].into();
        let found = read(serde_json::json!({
            "matchLabels": {"team": "x"}, "matchExpressions": [{"key": "closed", "operator": "DoesNotExist"}]
        }));
        let found = found.unwrap();
        assert!(found.allows("a", None) && found.allows("b", Some(&labels)));
        assert!(!found.allows("b", Some(&Default::default())));
        assert!(
            !SignerConfig::read(&mk_spec(), None).unwrap().attachment.allows("a", Some(&labels)),
            "none by default"
        );
        let odd = serde_json::json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        assert_eq!(read(odd), Err("gateway.routesFrom.selector"));
    }
}
