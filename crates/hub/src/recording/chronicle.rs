//! Records the steps of lineages of authorities in the ledger.
//!
//! A step is recorded after it is persisted and before it takes effect. If a hub ends in between, the next hub compares
//! the lineage with the ledger and records what is missing.

use std::collections::BTreeMap;

use tracing::warn;

use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::exception::Exception;
use addon_signer_core::ca::lineage::{Lineage, Member, Older, RecordedAuthority, State};
use addon_signer_core::journal::record::{AuthorityStep, Record};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{Health, Ledger, LedgerError};

/// What the ledger knows of one authority: its last step, and whether it is tainted.
type Known = (String, bool);

/// What the ledger knows of one lineage of authorities.
pub(crate) struct LineageRecord {
    ledger: Ledger,
    lineage: String,
    /// Each authority and its step, as recorded; `None` before the ledger was asked.
    known: Option<BTreeMap<AuthorityId, Known>>,
}

impl LineageRecord {
    /// A record of `lineage`, of which nothing is known yet.
    pub(crate) fn new(ledger: Ledger, lineage: &str) -> Self {
        Self { ledger, lineage: lineage.to_owned(), known: None }
    }

    /// Whether the ledger answers.
    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.ledger.health().borrow(), Health::Up { .. })
    }

    /// Whether the ledger has all steps of the lineage.
    pub(crate) fn is_known(&self, lineage: &Lineage) -> bool {
        self.known.as_ref() == Some(&steps(lineage))
    }

    /// Records what has changed in the lineage; `actor` is the user who asked for it. The `revoked` authorities are
    /// recorded as tainted too, so that none of them signs if its Secret comes from a backup. Whether an authority
    /// signs without evidence from some clusters is read from the object that has `exception`, because the response to
    /// the step itself may be lost.
    ///
    /// # Errors
    /// [`LedgerError`]; what was not recorded is recorded the next time.
    pub(crate) async fn write(
        &mut self,
        lineage: &Lineage,
        actor: &str,
        exception: Option<&Exception>,
        revoked: &[AuthorityId],
    ) -> Result<(), LedgerError> {
        let known = match self.known.take() {
            Some(known) => known,
            None => present(self.ask().await?),
        };
        let now = steps(lineage);
        for member in lineage.members().iter().filter(|member| member.tainted) {
            if known.get(member.authority.id()).is_none_or(|(_, tainted)| !tainted) {
                self.ledger.change(self.record(member, AuthorityStep::Tainted), actor).await?;
            }
        }
        for member in lineage.members().iter().filter(|member| !has_step(&known, member)) {
            let record = self.record(member, step(member.state));
            let is_without = |exception: &&Exception| {
                member.state == State::Active && !Exception::of(Some(*exception), &member.authority).is_empty()
            };
            match exception.filter(is_without) {
                Some(exception) => {
                    self.ledger.change(record, &format!("{actor}{exception}")).await?;
                    warn!(%exception, "An authority of the gateway did not wait for these clusters");
                }
                None => self.ledger.change(record, actor).await?,
            }
        }
        for (id, (_, is_tainted)) in known.iter().filter(|(id, _)| !now.contains_key(*id)) {
            let step = |step| Record::Authority {
                lineage: self.lineage.clone(),
                id: id.clone(),
                step,
                certificate: Vec::new(),
            };
            if revoked.contains(id) && !is_tainted {
                self.ledger.change(step(AuthorityStep::Tainted), actor).await?;
            }
            self.ledger.change(step(AuthorityStep::Removed), actor).await?;
        }
        self.known = Some(now);
        Ok(())
    }

    fn record(&self, member: &Member, step: AuthorityStep) -> Record {
        let (id, certificate) = (member.authority.id().clone(), member.authority.certificate().to_vec());
        Record::Authority { lineage: self.lineage.clone(), id, step, certificate }
    }

    /// Records that the anchors of the lineage are published in a ConfigMap.
    pub(crate) async fn distributed(&self, lineage: &Lineage, config_map: &str) -> Result<(), LedgerError> {
        let authorities = lineage.members().iter().map(|member| member.authority.id().clone()).collect();
        let config_map = config_map.to_owned();
        self.ledger.change(Record::Anchors { lineage: self.lineage.clone(), authorities, config_map }, "").await
    }

    /// Which parts of the lineage are older than the ledger's record of it; `again` if this process has already signed
    /// with it.
    pub(crate) async fn compare(
        &mut self,
        lineage: &Lineage,
        again: bool,
        now: Timestamp,
    ) -> Result<Option<Older>, LedgerError> {
        let recorded = self.ask().await?;
        let ends = if again { self.ledger.last_ends(now).await? } else { self.ledger.first_ends(now).await? };
        let known = |(id, (name, tainted)): (&AuthorityId, &Known)| {
            let state = [State::Next, State::Active, State::Old].into_iter().find(|state| step(*state).name() == name);
            (id.clone(), RecordedAuthority { state, leaves_expire: ends.get(id).copied(), tainted: *tainted })
        };
        let older = lineage.older_than(&recorded.iter().map(known).collect());
        self.known = Some(present(recorded));
        Ok(older)
    }

    /// Each authority of the lineage that the ledger knows, and its last step.
    async fn ask(&self) -> Result<BTreeMap<AuthorityId, Known>, LedgerError> {
        let (all, tainted) = (self.ledger.latest("authority").await?, self.ledger.latest("tainted").await?);
        let prefix = format!("{}/", self.lineage);
        let known = |(name, step): (String, String)| {
            let is_tainted = tainted.contains_key(&name);
            Some((name.strip_prefix(&prefix)?.into(), (step, is_tainted)))
        };
        Ok(all.into_iter().filter_map(known).collect())
    }
}

/// Without the authorities that were removed.
fn present(mut recorded: BTreeMap<AuthorityId, Known>) -> BTreeMap<AuthorityId, Known> {
    recorded.retain(|_, (step, _)| step != AuthorityStep::Removed.name());
    recorded
}

fn has_step(known: &BTreeMap<AuthorityId, Known>, member: &Member) -> bool {
    known.get(member.authority.id()).is_some_and(|(name, _)| name == step(member.state).name())
}

fn steps(lineage: &Lineage) -> BTreeMap<AuthorityId, Known> {
    let of = |member: &Member| (member.authority.id().clone(), (step(member.state).name().to_owned(), member.tainted));
    lineage.members().iter().map(of).collect()
}

fn step(state: State) -> AuthorityStep {
    match state {
        State::Next => AuthorityStep::Prepared,
        State::Active => AuthorityStep::Activated,
        State::Old => AuthorityStep::Retired,
    }
}
