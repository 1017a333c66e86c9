//! Looks who still needs the Old authorities of a client line, so that they go as soon as nobody does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Keeper;
use crate::hub::authorities::gate::Gate;
use crate::hub::recording::checkpoints::bears_out;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::line::need::{Holders, Quiet};
use addon_signer_core::ca::line::{Line, Member, State};
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::sighting::Seen;
use addon_signer_core::timestamp::Timestamp;

/// How often the ledger is asked while there is an Old authority.
const PERIOD: Duration = Duration::from_secs(60);
/// How long the ledger may take for all its answers. Reservations wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// Why only the last expiry ends an authority whose certificates the ledger may not have.
const NOT_COVERED: &str = "because the ledger may lack certificates of it";

/// What this process has found out about the Old authorities of its line.
pub struct OldNeeds {
    registry: SharedRegistry,
    seen: Arc<Seen>,
    /// When the ledger was asked last.
    asked: Option<Timestamp>,
    quiet: BTreeMap<AuthorityId, Quiet>,
    /// What [`Evidence`](addon_signer_core::ca::line::Evidence) needs.
    pub(super) known: BTreeMap<AuthorityId, Result<(), String>>,
}

impl OldNeeds {
    /// By what the hub knows of addons, and by which certificates the gateway has seen.
    pub(in crate::hub) fn new(registry: SharedRegistry, seen: Arc<Seen>) -> Self {
        Self { registry, seen, asked: None, quiet: BTreeMap::new(), known: BTreeMap::new() }
    }
}

impl Keeper {
    /// Asks the ledger once a minute who needs the Old authorities. Those of the gateway's line are in use where no
    /// ledger sees it.
    pub(super) async fn look_at_old(&mut self) {
        let ready = self.state.borrow().ready().cloned();
        let (Some(ready), Gate::Gateway { .. }) = (ready, &self.gate) else { return };
        let (line, now) = (ready.line(), self.clock.now());
        let old: Vec<_> = line.members().iter().filter(|member| member.state == State::Old).collect();
        let is_fresh = self.old_needs.asked.is_some_and(|asked| asked <= now && now < asked.plus(PERIOD));
        let is_known = old.iter().all(|member| self.old_needs.known.contains_key(member.authority.id()));
        if is_fresh && is_known && self.old_needs.known.len() == old.len() {
            return;
        }
        let mut quiet = std::mem::take(&mut self.old_needs.quiet);
        quiet.retain(|id, _| old.iter().any(|member| member.authority.id() == id));
        let mut known = BTreeMap::new();
        let end = Instant::now() + PATIENCE;
        for member in old {
            let id = member.authority.id();
            let quiet = quiet.entry(id.clone()).or_default();
            let looking = timeout_at(end, self.is_unneeded(line, member, quiet, now)).await;
            let unneeded = looking.unwrap_or_else(|_| quiet.judge(not_answered(), now));
            known.insert(id.clone(), unneeded);
        }
        self.old_needs.quiet = quiet;
        self.old_needs.known = known;
        self.old_needs.asked = Some(now);
    }

    async fn is_unneeded(&self, line: &Line, old: &Member, quiet: &mut Quiet, now: Timestamp) -> Result<(), String> {
        let found = self.find_holders(line, old, quiet.used_after(now), now).await;
        quiet.judge(found, now)?;
        let is_whole = bears_out(&self.store.config_maps(), self.record.ledger(), old.authority.not_before()).await;
        if is_whole { Ok(()) } else { Err(NOT_COVERED.to_owned()) }
    }

    async fn find_holders(
        &self,
        line: &Line,
        old: &Member,
        used_after: Timestamp,
        now: Timestamp,
    ) -> Result<(), String> {
        let Some(ledger) = self.record.ledger_id() else { return not_answered() };
        if old.ledger.as_ref() != Some(&ledger) {
            return Err(NOT_COVERED.to_owned());
        }
        let (id, newer) = (old.authority.id(), line.newer_than(old).collect::<Vec<_>>());
        let mut leaves = Vec::new();
        if self.record.ledger().old_leaves(id, &newer, now, |leaf| leaves.push(leaf)).await.is_err() {
            return not_answered(); // the ledger's writer has logged the error
        }
        let mut holders = Holders::default();
        self.old_needs.registry.read(|registry| {
            leaves.iter().for_each(|leaf| holders.count(leaf, leaf.need(registry, used_after)));
        });
        holders.without_need()?;
        match self.old_needs.seen.last_use(id) {
            Some(at) if at >= used_after => Err("or an hour in which nobody uses it".to_owned()),
            _ => Ok(()),
        }
    }
}

fn not_answered() -> Result<(), String> {
    Err("or the ledger to say who needs it".to_owned())
}
