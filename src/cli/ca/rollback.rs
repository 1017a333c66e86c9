//! `ca rollback`: undoes the last step of a rotation.

use anyhow::bail;

use super::connection::{Ca, ChangeArgs};
use super::report::LineageReport;
use crate::cli::caller::CommandUser;
use addon_signer_api::status::{AuthorityState, AuthorityStatus};
use addon_signer_core::names::ANNOTATION_ROLL_BACK;
use addon_signer_hub::authorities::asked::AuthorityRequest;
use addon_signer_hub::authorities::report::refusal;
use addon_signer_platform::clock::Clock;

pub(super) async fn rollback(ChangeArgs { lineage, report: args }: ChangeArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let (name, before, active) = ca.begun(&lineage).await?;
    let older = |old: &&AuthorityStatus| {
        before.in_state(AuthorityState::Active).is_some_and(|it| old.not_before <= it.not_before)
    };
    let old = before.authorities.iter().filter(|it| it.state == AuthorityState::Old).find(older);
    let (id, sentence) = match (before.in_state(AuthorityState::Next), old) {
        (Some(next), _) => (next.id.clone(), format!("drop {}. {active} keeps signing.", next.id)),
        (None, Some(_)) => {
            let sentence = "let the previous authority sign again. Certificates signed by";
            (active.clone(), format!("{sentence} {active} stay valid until they expire."))
        }
        (None, None) => bail!(
            "{active} of {lineage} cannot be rolled back: no older authority could sign. \
             `addon-signer ca rotate {name}` replaces it",
            lineage = before.lineage
        ),
    };
    let user = CommandUser::ask(&ca.client).await.user;
    let request = AuthorityRequest::text(&id, Clock::default().now(), &user);
    ca.annotate(&name, &before, ANNOTATION_ROLL_BACK, |_| request.clone()).await?;
    args.asked(&before, &id, &format!("Asked the hub to {sentence}"))?;
    if !args.watch {
        return Ok(());
    }
    // What is said of another authority is about an earlier request.
    let refusal = refusal(&id);
    let is_refused = |report: &LineageReport| report.problem.as_ref().is_some_and(|it| it.contains(&refusal));
    let is_done = |report: &LineageReport| {
        let is_current = |state| report.in_state(state).is_some_and(|authority| authority.id == id);
        !is_current(AuthorityState::Next) && !is_current(AuthorityState::Active)
    };
    let ends = |report: &LineageReport| is_done(report) || is_refused(report);
    let now = ca.follow(&name, args.output, None, ends, ends).await?;
    if is_done(&now) { Ok(()) } else { bail!(now.problem.unwrap_or_default()) }
}
