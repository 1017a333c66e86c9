//! Trust decisions on their way into the ledger.
//!
//! A step of a line is recorded after it is persisted and before it has an effect. What a hub did not come to record
//! before it ended, the next one finds by comparing, and records then. Changes that others make (configurations,
//! standings) are recorded as they are seen; while the ledger cannot be written to, the last state of each is kept.

use std::collections::BTreeMap;

use crate::ledger::{Ledger, LedgerError};
use addon_signer_core::ca::line::{Line, State};
use addon_signer_core::journal::record::{AuthorityStep, Record};

/// What the ledger knows of one line of authorities.
pub(crate) struct LineRecord {
    ledger: Ledger,
    line: String,
    /// Each authority and its step, as recorded; `None` before the ledger was asked.
    known: Option<BTreeMap<String, String>>,
}

impl LineRecord {
    /// Nothing is known yet of the line called `line`.
    pub(crate) fn new(ledger: Ledger, line: &str) -> Self {
        Self { ledger, line: line.to_owned(), known: None }
    }

    /// Whether the ledger knows all of this already.
    pub(crate) fn is_known(&self, line: &Line) -> bool {
        self.known.as_ref() == Some(&steps(line))
    }

    /// Records what has changed in the line; `actor` is who asked.
    ///
    /// # Errors
    /// [`LedgerError`]; what was not recorded is recorded the next time.
    pub(crate) async fn write(&mut self, line: &Line, actor: &str) -> Result<(), LedgerError> {
        let known = match self.known.take() {
            Some(known) => known,
            None => self.ask().await?,
        };
        let now = steps(line);
        for member in
            line.members().iter().filter(|member| known.get(member.authority.id()) != now.get(member.authority.id()))
        {
            let record = Record::Authority {
                line: self.line.clone(),
                id: member.authority.id().to_owned(),
                step: step(member.state),
                certificate: member.authority.certificate().to_vec(),
            };
            self.ledger.change(record, actor).await?;
        }
        for id in known.keys().filter(|id| !now.contains_key(*id)) {
            let (line, id) = (self.line.clone(), id.clone());
            let record = Record::Authority { line, id, step: AuthorityStep::Removed, certificate: Vec::new() };
            self.ledger.change(record, actor).await?;
        }
        self.known = Some(now);
        Ok(())
    }

    /// Records that the anchors of the line are where those who trust them find them.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub(crate) async fn distributed(&self, line: &Line, config_map: &str) -> Result<(), LedgerError> {
        let authorities = line.members().iter().map(|member| member.authority.id().to_owned()).collect();
        let config_map = config_map.to_owned();
        self.ledger.change(Record::Anchors { line: self.line.clone(), authorities, config_map }, "").await
    }

    async fn ask(&self) -> Result<BTreeMap<String, String>, LedgerError> {
        let all = self.ledger.latest("authority").await?;
        let prefix = format!("{}/", self.line);
        let own = all.into_iter().filter_map(|(name, step)| Some((name.strip_prefix(&prefix)?.to_owned(), step)));
        Ok(own.filter(|(_, step)| step != AuthorityStep::Removed.name()).collect())
    }
}

fn steps(line: &Line) -> BTreeMap<String, String> {
    let of = |member: &addon_signer_core::ca::line::Member| {
        (member.authority.id().to_owned(), step(member.state).name().to_owned())
    };
    line.members().iter().map(of).collect()
}

fn step(state: State) -> AuthorityStep {
    match state {
        State::Next => AuthorityStep::Prepared,
        State::Active => AuthorityStep::Activated,
        State::Old => AuthorityStep::Retired,
    }
}
