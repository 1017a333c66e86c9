//! Checks the addons on all clusters.

use super::{Finding, Inspection, Verdict};
use crate::cli::certs::LedgerSource;
use crate::cli::status::{AgentState, Gathered, Row, Selection, gather};
use addon_signer_platform::errors::explain;

const ABOUT: &str = "addons on clusters";

impl Inspection {
    /// Whether every eligible addon has a valid certificate.
    pub(super) async fn certificates(&self, ledger: anyhow::Result<LedgerSource>) -> Vec<Finding> {
        vec![match gather(&self.client, ledger, &self.namespace, &Selection::default()).await {
            Ok(gathered) => finding(&gathered),
            Err(error) => Finding::new(Verdict::Unknown, ABOUT, explain(error.as_ref())),
        }]
    }
}

fn finding(gathered: &Gathered) -> Finding {
    if let Some(why) = &gathered.no_ledger {
        let sentence = format!("it is not known which of them have certificates: {why}");
        return Finding::new(Verdict::Unknown, ABOUT, sentence);
    }
    let live: Vec<&Row> = gathered.rows.iter().filter(|row| row.state != AgentState::NotEligible).collect();
    // The worst come first.
    let bad: Vec<_> = live.iter().take_while(|row| row.state <= AgentState::NoCertificate).collect();
    let Some(worst) = bad.first() else {
        return Finding::good(ABOUT, format!("all {} that are eligible have valid certificates", live.len()));
    };
    Finding::bad(
        ABOUT,
        format!(
            "{} of {} have no valid certificate or had their last CSR refused: `addon-signer status` lists them; \
             {}/{} is waiting for {}",
            bad.len(),
            live.len(),
            worst.cluster,
            worst.addon,
            worst.waits_for.as_deref().unwrap_or_default(),
        ),
    )
}
