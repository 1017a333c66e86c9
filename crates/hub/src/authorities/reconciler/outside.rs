//! Gets authorities from outside, and remembers what the source last offered.

use super::{LineagePlan, LineageReconciler, ReconcileError};
use crate::authorities::asked::RequestedSteps;
use crate::authorities::lineage_report::NOT_USED;
use crate::authorities::state::OutsideReport;
use crate::authorities::store::StoreError;
use crate::authorities::supply::{External, Question, Supply, SupplyAnswer, SupplyPlan};
use crate::authorities::versions::{LineageObjects, ObjectVersion};
use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::lineage::{Evidence, Lineage, Step};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::errors::explain;

/// What this process found when it last asked the source.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// What there was; before the first look as if the hub made authorities itself.
    supply: Supply,
    /// The CSR of the next authority, in PEM.
    pub(super) request: Option<String>,
    /// The authority that was taken since the source was last asked.
    pub(super) given: Option<AuthorityId>,
    checked: Option<Checked>,
}

/// The inputs of the source's answer, apart from the time.
#[derive(Debug, PartialEq, Eq)]
struct Checked {
    secret: Option<ObjectVersion>,
    plan: SupplyPlan,
    import: Option<String>,
    wanted: bool,
}

impl Outside {
    /// Whether authorities come from outside.
    fn is_used(&self) -> bool {
        !matches!(self.supply, Supply::SelfSigned)
    }

    /// Whether there is a new authority for the lineage.
    pub(super) fn offers(&self, lineage: &Lineage) -> bool {
        matches!(&self.supply, Supply::New(given) if lineage.member(given.certified.authority().id()).is_none())
    }

    /// The new authority; `None` if the hub makes it itself. Each is returned once.
    ///
    /// # Errors
    /// What has to happen before there is one.
    pub(super) fn take(&mut self) -> Result<Option<External>, String> {
        self.checked = None; // the source may have something to clear away
        match &self.supply {
            Supply::SelfSigned => return Ok(None),
            Supply::New(_) => {}
            Supply::Nothing(what) | Supply::Asked(what) => return Err(format!("The lineage waits for {what}")),
            Supply::Refused(why) => return Err(why.clone()),
        }
        let taken = std::mem::replace(&mut self.supply, Supply::Nothing("a new authority".to_owned()));
        let Supply::New(given) = taken else { return Err("The lineage waits for a new authority".to_owned()) };
        self.given = Some(given.certified.authority().id().clone());
        Ok(Some(*given))
    }

    /// Asks the source again: the lineage may have dropped the authority that the source has.
    pub(super) fn check_again(&mut self) {
        self.checked = None;
    }

    /// Whether there is a new authority, or the hub can make one.
    pub(super) fn can_give(&self) -> bool {
        matches!(self.supply, Supply::SelfSigned | Supply::New(_))
    }

    /// Whether the source's last answer is still valid. After a refusal it is not, because the cause may pass with
    /// time; nor while an issuer is being asked.
    pub(super) fn has_checked(
        &self,
        plan: &LineagePlan,
        asked: &RequestedSteps,
        seen: Option<&LineageObjects>,
        wanted: bool,
    ) -> bool {
        match (&plan.supply.source, &self.supply) {
            (AuthoritySource::SelfSigned, Supply::SelfSigned) => true,
            (AuthoritySource::SelfSigned, _) | (_, Supply::SelfSigned | Supply::Asked(_) | Supply::Refused(_)) => false,
            (_, Supply::New(_) | Supply::Nothing(_)) => {
                self.checked.as_ref() == Some(&Checked::new(plan, asked, seen, wanted))
            }
        }
    }

    /// What administrators should know; `None` if the hub makes authorities.
    pub(super) fn report(&self, plan: &SupplyPlan, lineage: &Lineage) -> Option<OutsideReport> {
        let refused = match &self.supply {
            Supply::Refused(why) => Some(why.clone()),
            _ => None,
        };
        let unnamed_root = plan.trusted.unnamed(lineage);
        self.is_used().then(|| OutsideReport { refused, request: self.request.clone(), unnamed_root })
    }
}

impl Checked {
    fn new(plan: &LineagePlan, asked: &RequestedSteps, seen: Option<&LineageObjects>, wanted: bool) -> Self {
        let secret = seen.and_then(|seen| seen.source.clone());
        Self { secret, plan: plan.supply.clone(), import: asked.import.clone(), wanted }
    }
}

impl LineageReconciler {
    /// The Secret from which the lineage's authorities come.
    pub(super) fn source(&self) -> Option<String> {
        match &self.lineage.plan.borrow().supply.source {
            AuthoritySource::SelfSigned | AuthoritySource::Vault => None,
            AuthoritySource::Secret(name) => Some(name.clone()),
            AuthoritySource::Request | AuthoritySource::CertManager(_) => Some(self.lineage.names.pending()),
        }
    }

    /// Whether an issuer may be asked for an authority: a step that is due needs one.
    pub(super) fn wants(&self, lineage: &Lineage, plan: &LineagePlan, asked: &RequestedSteps, now: Timestamp) -> bool {
        let evidence = Evidence { offered: false, ..self.evidence(lineage, plan, asked, now) };
        let is_asked = matches!(plan.supply.source, AuthoritySource::CertManager(_));
        is_asked && lineage.next_step(&evidence).needs_authority(lineage)
    }

    /// Asks the source for an authority from outside.
    pub(super) async fn check_outside(
        &mut self,
        plan: &LineagePlan,
        asked: &RequestedSteps,
        seen: Option<&LineageObjects>,
        lineage: Option<&Lineage>,
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        let wanted = lineage.is_none_or(|lineage| self.wants(lineage, plan, asked, now));
        let question = Question {
            names: &self.lineage.names,
            plan: &plan.supply,
            authority: &plan.authority,
            lineage,
            brought: asked.import.as_deref(),
            wanted,
            now,
        };
        let leads = self.links.hub.leading.leads()?;
        let answer = match question.ask(&self.links.store, &leads, &self.links.objects).await {
            // An existing lineage continues with the authorities that it has.
            Err(StoreError::Api(error)) if lineage.is_some() => {
                let why = explain(&error);
                let sentence = format!("The next authority{NOT_USED}its issuer could not be asked: {why}");
                SupplyAnswer { supply: Supply::Refused(sentence), request: self.outside.request.take() }
            }
            answer => answer?,
        };
        self.outside = Outside {
            supply: answer.supply,
            request: answer.request,
            given: None,
            checked: Some(Checked::new(plan, asked, seen, wanted)),
        };
        Ok(())
    }

    /// The step of the lineage, if there is an authority for it.
    pub(super) fn step(&self, lineage: &Lineage, evidence: &Evidence<'_>) -> Step {
        match &self.outside.supply {
            Supply::SelfSigned | Supply::New(_) => lineage.next_step(evidence),
            Supply::Nothing(what) | Supply::Asked(what) => lineage.next_step_without_authority(evidence, what),
            Supply::Refused(_) => lineage.next_step_without_authority(evidence, "a usable authority from the issuer"),
        }
    }
}
