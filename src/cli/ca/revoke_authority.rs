//! `ca revoke`: removes an authority with its key at once.

use std::io::{BufRead, IsTerminal, stdin};

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};

use super::affected::Affected;
use super::connection::{Ca, ReportArgs};
use super::report::{LineageName, LineageReport};
use crate::cli::signer_object;
use crate::output::{Format, ask};
use addon_signer_api::status::AuthorityState;
use addon_signer_core::names::ANNOTATION_REVOKE_AUTHORITY;
use addon_signer_core::policy::GatewayCertificate;

/// Arguments of `ca revoke`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct RevokeArgs {
    /// The AddOnSigner's name.
    #[arg(value_parser = signer_object, requires = "authority")]
    signer: Option<String>,
    /// Its authority, as `ca status` names it; required with SIGNER.
    #[arg(requires = "signer")]
    authority: Option<String>,
    /// An authority of the gateway's certificate for agents.
    #[arg(long, value_name = "AUTHORITY", conflicts_with = "authority")]
    serving: Option<String>,
    /// An authority of the certificate that the gateway shows to backends.
    #[arg(long, value_name = "AUTHORITY", conflicts_with = "authority")]
    gateway_client: Option<String>,
    /// Do not ask, and go on even if agents would be locked out.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    report: ReportArgs,
}

impl RevokeArgs {
    /// The lineage and the authority.
    fn named(&self) -> Option<(LineageName, String)> {
        let gateway = |id: &Option<String>, of| id.clone().map(|id| (LineageName::Gateway(of), id));
        gateway(&self.serving, GatewayCertificate::Serving)
            .or_else(|| gateway(&self.gateway_client, GatewayCertificate::Client))
            .or_else(|| self.signer.clone().map(LineageName::Signer).zip(self.authority.clone()))
    }
}

pub(super) async fn revoke(args: RevokeArgs) -> anyhow::Result<()> {
    let (name, id) = args.named().context("name the AddOnSigner and its authority")?;
    let ca = Ca::connect(&args.report.connection).await?;
    let (before, active) = ca.begun_lineage(&name).await?;
    before.authority(&id).with_context(|| before.unknown(&id))?;
    if !args.yes {
        let affected = Affected::by_loss(&ca, &name, &before, &id).await;
        let affected = affected.context("not revoked; --yes revokes without this")?;
        confirm(&ca, &before, &id, &affected, args.report.output)?;
    }
    ca.ask(&name, &before, ANNOTATION_REVOKE_AUTHORITY, &id).await?;
    let sentence =
        format!("Asked the hub to revoke {id} of {}. {}", before.lineage, then(&name, &before, &id, &active));
    args.report.asked(&before, &id, &sentence)?;
    follow_loss(&ca, &name, &args.report, &id).await
}

/// With `--watch`, shows each change until the authority is removed.
pub(super) async fn follow_loss(ca: &Ca, name: &LineageName, args: &ReportArgs, id: &str) -> anyhow::Result<()> {
    if !ca.follows(args).await {
        return Ok(());
    }
    let is_gone = |report: &LineageReport| report.authority(id).is_none();
    let has_begun = |report: &LineageReport| report.authority(id).is_none_or(|authority| authority.to_revoke);
    ca.follow(name, args.output, None, is_gone, has_begun).await.map(drop)
}

/// Shows which agents the revocation would lock out, and asks the administrator to type the id again. Without a
/// terminal it refuses if any agent may be locked out.
fn confirm(ca: &Ca, before: &LineageReport, id: &str, affected: &Affected, output: Format) -> anyhow::Result<()> {
    let cluster = &ca.cluster;
    if !stdin().is_terminal() {
        let sentence =
            || format!("{}; --yes revokes {id} of {} on {cluster} all the same", affected.count(), before.lineage);
        return if affected.is_nobody() { Ok(()) } else { Err(affected.refused(output, sentence())) };
    }
    ask(&format!("{}To revoke {id} of {} on {cluster}, type this id again: ", affected.as_table(), before.lineage));
    is_typed(id, &mut stdin().lock())
}

/// Whether the administrator types this id.
pub(super) fn is_typed(id: &str, input: &mut impl BufRead) -> anyhow::Result<()> {
    let mut typed = String::new();
    input.read_line(&mut typed).context("the id cannot be read")?;
    if typed.trim() != id {
        bail!("that is not {id}: nothing was changed");
    }
    Ok(())
}

/// A sentence on what follows.
fn then(name: &LineageName, before: &LineageReport, id: &str, active: &str) -> String {
    let signs = match before.in_state(AuthorityState::Next) {
        _ if id != active => format!("{active} keeps signing."),
        Some(next) => format!("{} signs at once.", next.id),
        None if before.is_issued => {
            let signs = if matches!(name, LineageName::Signer(_)) { "signs nothing more" } else { "still signs" };
            format!("It {signs}, and stays trusted until another authority has come from the issuer.")
        }
        None => "A new one signs at once.".to_owned(),
    };
    match before.is_trusted_by_root {
        true => format!("{signs} Agents trust its root: whoever has the key can still act as the gateway."),
        false => signs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_id_revokes() {
        let typed = |text: &str| is_typed("ef63119891b3cf28", &mut text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(typed("ef63119891b3cf28\n"), Ok(()));
        for other in ["\n", "", "ef63\n", "y\n", "yes\n"] {
            assert_eq!(typed(other), Err("that is not ef63119891b3cf28: nothing was changed".to_owned()));
        }
    }
}
