//! The addons on clusters that a change of a lineage would lock out.

use anyhow::Context;
use serde::Serialize;

use super::connection::Ca;
use super::report::{LineageName, LineageReport};
use crate::cli::certs::LedgerSource;
use crate::cli::status::{AgentState, Gathered, Row, Selection, gather};
use crate::output::{Format, Rows, ask, print_json};
use addon_signer_api::status::AuthorityState;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::timestamp::Timestamp;

const NOT_KNOWN: &str = "whom it would lock out is not known (ClusterRole and Role addon-signer-viewer show it)";

/// A command was not carried out, because agents would be locked out: exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("refused: {0}")]
pub(in crate::cli) struct Refused(pub(super) String);

/// The agents that it would lock out.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Affected {
    /// Each addon on each cluster.
    pub(super) addons: Vec<AffectedAddOn>,
    /// Why the list is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unknown: Option<String>,
}

/// An addon on a cluster that would or may be locked out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AffectedAddOn {
    pub(super) cluster: String,
    pub(super) addon: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_seen: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) valid_until: Option<Timestamp>,
    /// Whether that is certain.
    pub(super) is_known: bool,
    /// Whether the hub reports its certificate as one that would no longer be accepted. A report may be old, and a
    /// cluster may write it.
    pub(super) is_reported: bool,
}

impl AffectedAddOn {
    fn of(row: Row, loss: Loss) -> Self {
        let Row { cluster, addon, last_seen, valid_until, .. } = row;
        let (is_known, is_reported) = (loss == Loss::Certain, loss == Loss::Reported);
        Self { cluster, addon, last_seen, valid_until, is_known, is_reported }
    }

    /// Whether it would be locked out.
    fn verdict(&self) -> &'static str {
        match (self.is_known, self.is_reported) {
            (true, _) => "yes",
            (false, true) => "by the hub's report",
            (false, false) => "unknown",
        }
    }
}

/// Whether an addon would be locked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Certain,
    Possible,
    /// It would, by the hub's report.
    Reported,
    /// By the hub's report it has no certificate, or one of another authority. The report may be older than its last
    /// certificate, and a cluster may write it, so nothing is certain; but it is not worth a row.
    Unlikely,
}

impl Loss {
    /// Of an addon on a cluster, when the certificates of this authority are no longer accepted.
    fn of_authority(id: &str, row: &Row) -> Option<Self> {
        let has_none = [AgentState::NoCertificate, AgentState::Revoked].contains(&row.state);
        match row.depends_on.get(id) {
            _ if row.state == AgentState::NotEligible => None,
            Some(true) => Some(Self::Certain),
            Some(false) if row.is_recorded => Some(Self::Possible),
            Some(false) => Some(Self::Reported),
            None if row.is_recorded => None,
            None if row.depends_on.is_empty() && !has_none => Some(Self::Possible),
            None => Some(Self::Unlikely),
        }
    }
}

impl Affected {
    /// Whether no agent would be locked out.
    pub(super) fn is_nobody(&self) -> bool {
        self.addons.is_empty() && self.unknown.is_none()
    }

    /// Unknown, because the step waits for this.
    pub(super) fn unknown(waiting: &str) -> Self {
        Self { addons: Vec::new(), unknown: Some(format!("the step waits for {waiting}")) }
    }

    /// The agents that the loss of this authority would lock out.
    ///
    /// # Errors
    /// One sentence on what the API server did not list.
    pub(super) async fn by_loss(ca: &Ca, name: &LineageName, report: &LineageReport, id: &str) -> anyhow::Result<Self> {
        let is_active = report.in_state(AuthorityState::Active).is_some_and(|active| active.id == id);
        let next = report.in_state(AuthorityState::Next).filter(|_| is_active);
        match name {
            LineageName::Signer(signer) => Self::holders(ca, signer, id).await,
            // Then the gateway shows agents a certificate of another authority.
            LineageName::Gateway(GatewayCertificate::Serving) if is_active => {
                Self::without_anchor(ca, next.is_some()).await
            }
            LineageName::Gateway(GatewayCertificate::Client) if is_active => {
                let sentence = "backends do not report whether they trust another authority of the gateway";
                Ok(Self { addons: Vec::new(), unknown: Some(sentence.to_owned()) })
            }
            LineageName::Gateway(_) => Ok(Self::default()),
        }
    }

    /// The addons with an agent that depends on a certificate of this authority.
    async fn holders(ca: &Ca, signer: &str, id: &str) -> anyhow::Result<Self> {
        let mine = ca.add_ons(signer).await?;
        Self::rows(ca, |row| mine.contains(&row.addon).then(|| Loss::of_authority(id, row)).flatten()).await
    }

    /// The addons that may not trust the gateway's next authority; all of them if it is not published.
    pub(super) async fn without_anchor(ca: &Ca, is_published: bool) -> anyhow::Result<Self> {
        Self::rows(ca, |row| match row.has_trust.filter(|_| is_published) {
            _ if row.state == AgentState::NotEligible => None,
            _ if row.depends_on.is_empty() && row.is_recorded => None,
            Some(true) => None,
            Some(false) => Some(Loss::Certain),
            None if is_published => Some(Loss::Possible),
            None => Some(Loss::Certain),
        })
        .await
    }

    /// The addons for which the gateway's next authority waits: all that are eligible and have not applied its anchor.
    pub(super) async fn awaited(ca: &Ca) -> anyhow::Result<Self> {
        let judge =
            |row: &Row| (row.state != AgentState::NotEligible && row.has_trust != Some(true)).then_some(Loss::Possible);
        Self::rows(ca, judge).await
    }

    /// The addons that `judge` counts.
    async fn rows(ca: &Ca, judge: impl Fn(&Row) -> Option<Loss>) -> anyhow::Result<Self> {
        let ledger = Ok(LedgerSource::Hub(ca.client.clone()));
        let gathered = gather(&ca.client, ledger, &ca.namespace, &Selection::default()).await;
        let Gathered { rows, no_ledger, .. } = gathered.context(NOT_KNOWN)?;
        let judged: Vec<(Row, Loss)> = rows.into_iter().filter_map(|row| judge(&row).map(|loss| (row, loss))).collect();
        let unknown = no_ledger.filter(|_| !judged.is_empty());
        let affected = judged.into_iter().filter(|(_, loss)| *loss != Loss::Unlikely);
        let addons = affected.map(|(row, loss)| AffectedAddOn::of(row, loss)).collect();
        Ok(Self { addons, unknown: unknown.map(|why| format!("the ledger was not asked: {why}")) })
    }

    /// The error for this sentence; prints first which agents would be locked out.
    pub(super) fn refused(&self, output: Format, sentence: String) -> anyhow::Error {
        match output {
            Format::Table => ask(&self.as_table()),
            Format::Json => {
                if let Err(error) = print_json(self) {
                    return error.into();
                }
            }
        }
        Refused(sentence).into()
    }

    /// One row for each addon, and why the list is incomplete.
    pub(super) fn as_table(&self) -> String {
        if self.is_nobody() {
            return "Nobody would be locked out.\n".to_owned();
        }
        let mut rows = Rows::new(&["CLUSTER", "ADDON", "LAST SEEN", "CERTIFICATE ENDS", "LOCKED OUT"]);
        for addon in &self.addons {
            let time = |time: Option<Timestamp>| time.map_or_else(|| "unknown".to_owned(), |time| time.to_string());
            let (seen, ends) = (time(addon.last_seen), time(addon.valid_until));
            rows.add([&addon.cluster, &addon.addon, &seen, &ends, addon.verdict()]);
        }
        let mut text = if self.addons.is_empty() { String::new() } else { rows.render() };
        self.unknown.iter().for_each(|unknown| text.push_str(&format!("Unknown: {unknown}.\n")));
        text
    }

    /// The number of addons, for a sentence.
    pub(super) fn count(&self) -> String {
        match (self.addons.len(), &self.unknown) {
            (0, Some(unknown)) => unknown.clone(),
            (1, _) => "1 addon on a cluster would or may be locked out".to_owned(),
            (count, _) => format!("{count} addons on clusters would or may be locked out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::TrustBy;

    #[test]
    fn what_is_not_known_is_said_and_counts() {
        assert_eq!(Affected::default().as_table(), "Nobody would be locked out.\n");
        let unknown = Affected { addons: Vec::new(), unknown: Some("backends do not report".to_owned()) };
        assert!(!unknown.is_nobody());
        assert_eq!(
            (unknown.as_table(), unknown.count()),
            ("Unknown: backends do not report.\n".to_owned(), "backends do not report".to_owned())
        );
        let (cluster, addon) = ("c1".to_owned(), "a".to_owned());
        let valid_until = Some(Timestamp::from_unix(0));
        let one = AffectedAddOn { cluster, addon, last_seen: None, valid_until, is_known: false, is_reported: false };
        let some = Affected { addons: vec![one], unknown: None };
        let row = some.as_table().lines().nth(1).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(row.as_deref(), Some("c1 a unknown 1970-01-01T00:00:00Z unknown"));
    }

    #[test]
    fn the_hubs_report_says_who_depends_on_an_authority() {
        let row = |state, depends_on: &[(&str, bool)], is_recorded| Row {
            cluster: "c1".to_owned(),
            addon: "a".to_owned(),
            state,
            registered: true,
            valid_until: None,
            authority: None,
            depends_on: depends_on.iter().map(|(id, is_certain)| ((*id).to_owned(), *is_certain)).collect(),
            last_seen: None,
            has_trust: None,
            trust_by: TrustBy::Other,
            waits_for: None,
            is_recorded,
        };
        use AgentState::{Certified, NoCertificate, NotEligible, Refused, Revoked, Unknown};
        for (row, loss, verdict) in [
            (row(Certified, &[("a1", true)], true), Some(Loss::Certain), "yes"),
            (row(Certified, &[("a1", false), ("a2", true)], true), Some(Loss::Possible), "unknown"),
            (row(Certified, &[("a2", true)], true), None, ""),
            (row(NoCertificate, &[], true), None, ""),
            (row(Certified, &[("a1", false)], false), Some(Loss::Reported), "by the hub's report"),
            (row(Certified, &[("a2", false)], false), Some(Loss::Unlikely), ""),
            (row(NoCertificate, &[], false), Some(Loss::Unlikely), ""),
            (row(Revoked, &[], false), Some(Loss::Unlikely), ""),
            (row(Unknown, &[], false), Some(Loss::Possible), "unknown"),
            (row(Refused, &[], false), Some(Loss::Possible), "unknown"),
            (row(NotEligible, &[("a1", true)], true), None, ""),
        ] {
            assert_eq!(Loss::of_authority("a1", &row), loss, "{row:?}");
            if let Some(loss) = loss.filter(|loss| *loss != Loss::Unlikely) {
                assert_eq!(AffectedAddOn::of(row, loss).verdict(), verdict);
            }
        }
    }
}
