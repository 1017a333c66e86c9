//! Decides when a Next authority may sign: on evidence that its anchor is trusted wherever it must be (invariant I5).

use std::sync::Arc;

use tokio::sync::watch;

use crate::api::rules::AuthorityPlan;
use crate::hub::authorities::board::Board;
use crate::hub::authorities::holders::Holders;
use crate::hub::authorities::waiver::Waiver;
use crate::hub::distribution::plan::Distribution;
use addon_signer_core::ca::line::Line;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::{SignerTrust, Trust};

/// Who must trust a Next authority before it signs.
pub enum Gate {
    /// Client line: the gateway has put a configuration with the anchor into effect.
    Gateway {
        /// The name of the AddOnSigner.
        signer: String,
        /// What the gateway has in effect.
        applied: watch::Receiver<Arc<Trust>>,
        /// What was seen of that for this signer when it was waited for.
        seen: Option<Arc<SignerTrust>>,
    },
    /// Serving line: every addon with standing has the trust bundle, by a ManifestWork or as its own agents have shown.
    /// Of an addon that gets no ManifestWork and does not show what it has, every certificate has expired that was
    /// published with an older trust bundle.
    Holders {
        /// When certificates end.
        board: Board,
        /// How far the ManifestWorks are.
        distributed: watch::Receiver<Distribution>,
        /// Who has shown the present trust bundle, while the ledger knows everybody.
        holders: watch::Receiver<Option<Holders>>,
    },
}

impl Gate {
    /// The gate of a client line.
    pub(in crate::hub) fn of_gateway(signer: &str, applied: watch::Receiver<Arc<Trust>>) -> Self {
        Self::Gateway { signer: signer.to_owned(), applied, seen: None }
    }

    /// How authorities of the line are made now: those of the serving line follow the lives of agents' certificates.
    pub(super) fn plan(&self, plan: AuthorityPlan) -> AuthorityPlan {
        match self {
            Self::Gateway { .. } => plan,
            Self::Holders { board, .. } => plan.for_holders(board.longest_life()),
        }
    }

    /// Whether the Next authority may sign, with what an administrator waived; if not, what it waits for.
    pub(super) fn opens(&self, line: &Line, waiver: Option<&Waiver>, now: Timestamp) -> Result<(), String> {
        let Some(next) = line.next() else { return Ok(()) };
        match self {
            Self::Gateway { signer, applied, .. } => {
                let applied = applied.borrow();
                let trusted = applied
                    .signer(signer)
                    .is_some_and(|known| known.client_anchors.authorities().contains(&next.authority));
                if trusted { Ok(()) } else { Err("the gateway to trust the new authority".to_owned()) }
            }
            Self::Holders { board, distributed, holders } => {
                let Some(at) = next.activate_after else {
                    return Err(board.last_leaf().err().unwrap_or_else(|| "the new anchor to be published".to_owned()));
                };
                let without = Waiver::of(waiver, &next.authority);
                let digest = line.bundle().map(|bundle| bundle.digest()).unwrap_or_default();
                let (holders, distribution) = (holders.borrow(), distributed.borrow());
                let holders = holders.as_ref().filter(|holders| holders.are_of(&digest));
                let need_not_wait = |key: &AddOnKey, is_first: bool| {
                    // A first ManifestWork replaces no older anchors, so it matters only to agents that may have some.
                    let is_new = |holders: &Holders| is_first && holders.nobody_lacks(key);
                    let need_not_wait = |holders: &Holders| holders.have_shown(key) || is_new(holders);
                    without.contains(&key.cluster) || holders.is_some_and(need_not_wait)
                };
                let named = |key: &AddOnKey| holders.map_or_else(|| key.to_string(), |holders| holders.named(key));
                let brought = distribution.has_brought(&next.authority, need_not_wait, named);
                if at < now {
                    return brought;
                }
                let end = format!("the last certificate given out without it expires at {at}");
                let held = match holders {
                    Some(holders) => {
                        holders.have_all(&distribution, &without, now).map_err(|waiting| format!("{waiting}; {end}"))
                    }
                    None => Err(format!("agents to hold the new anchor: {end}")),
                };
                let waiting: Vec<String> = [brought, held].into_iter().filter_map(Result::err).collect();
                if waiting.is_empty() { Ok(()) } else { Err(waiting.join("; ")) }
            }
        }
    }

    /// Waits until the answer of [`Self::opens`] may have changed; returns `false` if it never will again.
    pub(super) async fn changed(&mut self) -> bool {
        match self {
            // What others are trusted for is no news here.
            Self::Gateway { signer, applied, seen } => {
                while applied.changed().await.is_ok() {
                    let now = applied.borrow_and_update().signer(signer).cloned();
                    if now != *seen {
                        *seen = now;
                        return true;
                    }
                }
                false
            }
            // The keeper looks at least every quarter of a minute, which is soon enough for the others.
            Self::Holders { holders, .. } => holders.changed().await.is_ok(),
        }
    }
}
