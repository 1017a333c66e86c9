//! Where the authorities of a lineage come from, if the hub does not make them: a Secret that somebody fills and
//! certificates for the hub's CSRs, from an administrator (both in `brought`) or cert-manager (`cert_manager`).
//! Whatever comes is checked before it may wait to sign; until then the lineage goes on with what it has.

mod brought;
mod cert_manager;
mod pending;

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::authorities::lineage_report::NOT_USED;
use crate::authorities::store::{AuthorityStore, LineageNames, StoreError};
use crate::authorities::versions::WatchedObjects;
use crate::lease::Leads;
use addon_signer_api::authority::AuthoritySource;
use addon_signer_api::rules::{AuthorityPlan, SignerConfig};
use addon_signer_core::ca::authority::{Authority, AuthorityId};
use addon_signer_core::ca::bundle::Purpose;
use addon_signer_core::ca::chain::{Certified, Demands, Roots};
use addon_signer_core::ca::lineage::Lineage;
use addon_signer_core::identity::ClusterName;
use addon_signer_core::policy::{GatewayCertificate, GatewayRules, SignerRules};
use addon_signer_core::timestamp::Timestamp;

/// The most characters of a sentence about an authority from outside.
const LONGEST_SENTENCE: usize = 1_000;

/// The flag that names the roots that agents may trust.
const FLAG: &str = "--serving-roots";

/// What to report if Vault is to issue authorities.
const OF_VAULT: &str = "The hub asks Vault only through cert-manager: set spec.authority.issuer to the type \
                        CertManager, with an issuer of cert-manager that is your Vault \
                        (docs/runbooks/company-root.md)";

/// Where the authorities of a lineage come from, and which certificates they must be able to issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SupplyPlan {
    /// Where they come from.
    pub source: AuthoritySource,
    /// What others trust of them.
    pub trusted: Trusted,
    /// How long the longest certificate may be valid.
    pub longest: Duration,
    /// The purpose of the certificates.
    pub purpose: Purpose,
    /// The DNS names in them.
    pub dns_names: Vec<String>,
    /// The addresses in them.
    pub addresses: Vec<IpAddr>,
}

/// Where the authorities of the gateway's serving certificate come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingSource {
    /// Where they come from.
    pub source: AuthoritySource,
    /// What agents trust of them.
    pub trusted: Trusted,
}

/// What others trust of an authority from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trusted {
    /// The authority itself.
    #[default]
    Authority,
    /// Its root: then another authority of the same root needs no new trust, but every CA of that root can act as the
    /// gateway. So it must be one of these roots; if none are given, it must be a root that is trusted already.
    Root(Option<Roots>),
}

impl Trusted {
    /// Gives the authority the anchor that others trust.
    fn anchor(&self, certified: Certified, lineage: Option<&Lineage>) -> Result<Certified, String> {
        let Self::Root(named) = self else { return Ok(certified) };
        let certified = certified.trusted_by_root().map_err(|error| error.to_string())?;
        let present: Roots = lineage.into_iter().flat_map(by_root).collect();
        if named.as_ref().unwrap_or(&present).has(certified.anchor()) {
            return Ok(certified);
        }
        let root: Roots = [certified.anchor()].into_iter().collect();
        Err(match named {
            Some(named) => format!("its root is {root}, and {FLAG} names only {named}"),
            None if present.is_empty() => format!("its root is {root}, and {FLAG} must name each root of agents"),
            None => format!("its root is {root}, and without {FLAG} agents trust no other than {present}"),
        })
    }

    /// The roots of the lineage that no administrator has named, as a sentence.
    pub(super) fn unnamed(&self, lineage: &Lineage) -> Option<String> {
        let Self::Root(named) = self else { return None };
        let is_named = |root: &Authority| named.as_ref().is_some_and(|named| named.has(root));
        let unnamed: Roots = by_root(lineage).filter(|root| !is_named(root)).collect();
        (!unnamed.is_empty()).then(|| {
            format!(
                "Agents trust the root {unnamed}, which {FLAG} does not name. It must name each root that agents may \
                 trust; others are refused."
            )
        })
    }
}

/// The roots through which authorities of the lineage are trusted.
fn by_root(lineage: &Lineage) -> impl Iterator<Item = &Authority> {
    let certified = lineage.members().iter().map(|member| &member.certified);
    certified.filter(|certified| certified.is_trusted_by_root()).map(Certified::anchor)
}

impl SupplyPlan {
    /// The plan of an AddOnSigner's lineage.
    pub(crate) fn of_signer(config: &SignerConfig) -> Self {
        let SignerRules { addons, convention, max_duration, .. } = &config.rules;
        // Any cluster will do: name constraints concern only the ends of names.
        let cluster: Option<ClusterName> = "cluster1".parse().ok(); // a constant that is a label always parses
        let names = cluster.iter().flat_map(|of| addons.iter().flat_map(|addon| convention.dns_names(of, addon)));
        Self {
            source: config.source.clone(),
            trusted: Trusted::Authority, // gateways pin the authority
            longest: *max_duration,
            purpose: Purpose::Client,
            dns_names: names.collect(),
            addresses: Vec::new(),
        }
    }

    /// The plan of a lineage of the gateway. Only the serving authorities come from `source`.
    pub(crate) fn of_gateway(certificate: GatewayCertificate, rules: &GatewayRules, serving: ServingSource) -> Self {
        let (ServingSource { source, trusted }, purpose) = match certificate {
            GatewayCertificate::Serving => (serving, Purpose::Server),
            GatewayCertificate::Client => (ServingSource::default(), Purpose::Client),
        };
        Self {
            source,
            trusted,
            longest: rules.duration,
            purpose,
            dns_names: rules.dns_names.iter().cloned().collect(),
            addresses: rules.ip_addresses.iter().copied().collect(),
        }
    }
}

/// What a source offers to a lineage.
#[derive(Debug, Default)]
pub(super) enum Supply {
    /// The hub makes authorities itself.
    #[default]
    SelfSigned,
    /// A new authority that may be used.
    New(Box<External>),
    /// Nothing new, and what a due rotation waits for.
    Nothing(String),
    /// Nothing new, but an issuer or administrator was asked; a rotation waits for this.
    Asked(String),
    /// Why the offered authority is not used.
    Refused(String),
}

impl Supply {
    /// With sentences of limited length, because they quote outside sources in objects that administrators and gateways
    /// read.
    fn bounded(self) -> Self {
        let cut = |text: String| match text.char_indices().nth(LONGEST_SENTENCE) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        };
        match self {
            Self::SelfSigned | Self::New(_) => self,
            Self::Nothing(what) => Self::Nothing(cut(what)),
            Self::Asked(what) => Self::Asked(cut(what)),
            Self::Refused(why) => Self::Refused(cut(why)),
        }
    }
}

/// An authority from outside, with its key.
pub(super) struct External {
    /// The authority and its chain.
    pub(super) certified: Certified,
    /// Its key, PKCS#8.
    pub(super) pkcs8: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certified, pkcs8: _ } = self;
        write!(f, "External({}, key private)", certified.authority().id())
    }
}

/// What the source must know.
pub(super) struct Question<'q> {
    pub(super) names: &'q LineageNames,
    pub(super) plan: &'q SupplyPlan,
    pub(super) authority: &'q AuthorityPlan,
    /// The lineage; `None` before it has begun.
    pub(super) lineage: Option<&'q Lineage>,
    /// The certificates that an administrator has brought, in PEM.
    pub(super) brought: Option<&'q str>,
    /// Whether a step of the lineage needs an authority now, so that an issuer may be asked for one.
    pub(super) wanted: bool,
    pub(super) now: Timestamp,
}

/// The answer of a source.
#[derive(Debug)]
pub(super) struct SupplyAnswer {
    pub(super) supply: Supply,
    /// The CSR of the next authority, in PEM, for the issuer of its certificate.
    pub(super) request: Option<String>,
}

impl From<Supply> for SupplyAnswer {
    fn from(supply: Supply) -> Self {
        Self { supply, request: None }
    }
}

/// Why a source has no answer.
enum NoAnswer {
    Store(StoreError),
    /// One sentence without a period.
    Refused(String),
}

impl From<StoreError> for NoAnswer {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Question<'_> {
    /// Asks the lineage's source.
    ///
    /// # Errors
    /// [`StoreError`] if a Secret could not be read or written.
    pub(super) async fn ask(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        objects: &WatchedObjects,
    ) -> Result<SupplyAnswer, StoreError> {
        let answered = match &self.plan.source {
            AuthoritySource::SelfSigned => Ok(Supply::SelfSigned.into()),
            AuthoritySource::Secret(name) => self.imported(store, name).await.map(SupplyAnswer::from),
            AuthoritySource::Request => self.requested(store, leads).await,
            AuthoritySource::CertManager(issuer) => {
                self.by_cert_manager(store, leads, issuer).await.map(SupplyAnswer::from)
            }
            AuthoritySource::Vault => Err(NoAnswer::Refused(OF_VAULT.to_owned())),
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(NoAnswer::Refused(why)) => Supply::Refused(why).into(),
            Err(NoAnswer::Store(error)) => return Err(error),
        };
        Ok(SupplyAnswer { supply: self.owned(answer.supply, objects).bounded(), ..answer })
    }

    /// Two lineages never share a key: a certificate would then be an identity of both.
    fn owned(&self, supply: Supply, objects: &WatchedObjects) -> Supply {
        let Supply::New(given) = supply else { return supply };
        let id = given.certified.authority().id();
        match objects.own(id, self.names) {
            Ok(()) => Supply::New(given),
            Err(why) => Supply::Refused(format!("The authority {id}{NOT_USED}{why}")),
        }
    }

    /// Checks the certificates that `origin` has brought for this key.
    fn examine(
        &self,
        origin: &str,
        (chain, roots): (&[CertificateDer<'static>], &[CertificateDer<'static>]),
        (public_key, pkcs8): (&[u8], Zeroizing<Vec<u8>>),
    ) -> Supply {
        if let Some(known) = self.known(&AuthorityId::of(public_key), chain) {
            return known(origin);
        }
        let SupplyPlan { longest, purpose, dns_names, addresses, .. } = self.plan;
        let demands = Demands {
            now: self.now,
            longest: *longest,
            renew_before: self.authority.renew_before,
            purpose: *purpose,
            dns_names,
            addresses,
        };
        let checked = Certified::check(chain, roots, public_key, &demands).map_err(|error| error.to_string());
        match checked.and_then(|certified| self.plan.trusted.anchor(certified, self.lineage)) {
            Ok(certified) => Supply::New(Box::new(External { certified, pkcs8 })),
            Err(why) => not_used(origin, &why),
        }
    }

    /// What to report about an authority that the lineage has or had.
    fn known(&self, id: &AuthorityId, chain: &[CertificateDer<'static>]) -> Option<impl Fn(&str) -> Supply> {
        let lineage = self.lineage?;
        let member = lineage.member(id);
        let another = member.is_some_and(|member| chain.first() != Some(member.authority.certificate()));
        let is_gone = lineage.gone().contains(id);
        let id = id.clone();
        (member.is_some() || is_gone).then_some(move |origin: &str| match (another, is_gone) {
            (true, _) => {
                let why = format!(
                    "it has another certificate for the key of {id}, and each authority has a key of its own \
                     (cert-manager: privateKey.rotationPolicy Always)"
                );
                not_used(origin, &why)
            }
            (false, true) => not_used(origin, &format!("{id} has left this lineage before")),
            (false, false) => Supply::Nothing(format!("a new authority in {origin}, which still has {id}")),
        })
    }

    /// A pair from a backup would return the lineage to a key that may have been replaced for a reason. Authorities
    /// that the hub made itself say nothing about the issuer's order.
    fn older(&self, new: &Certified) -> Option<String> {
        let active = self.lineage?.active().filter(|active| !active.certified.above().is_empty())?;
        let is_older = new.authority().not_before() < active.authority.not_before();
        is_older.then(|| format!("it is older than {}, which signs", active.authority.id()))
    }
}

/// Refuses the authority in `origin`.
fn not_used(origin: &str, why: &dyn Display) -> Supply {
    Supply::Refused(unused(origin, why))
}

fn unused(origin: &str, why: &dyn Display) -> String {
    format!("The authority in {origin}{NOT_USED}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_about_what_came_is_cut() {
        let refused = |text: String| match Supply::Refused(text).bounded() {
            Supply::Refused(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("é".repeat(1_000)).chars().count(), 1_000);
        assert_eq!(refused("é".repeat(100_000)).chars().count(), 1_001);
    }
}
