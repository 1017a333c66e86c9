//! `ca rollback`: the way back from a rotation.

use anyhow::bail;
use clap::{ArgGroup, Args};
use tokio::time::Instant;

use super::connection::{Ca, ConnectionArgs, LOOK, PATIENCE};
use super::line::LineArgs;
use super::report::as_table;
use crate::cli::caller::CommandUser;
use crate::output::print;
use addon_signer_api::status::AuthorityState;
use addon_signer_core::names::ANNOTATION_ROLL_BACK;
use addon_signer_hub::authorities::asked::RollBack;
use addon_signer_platform::clock::Clock;

/// Arguments of `ca rollback`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct RollbackArgs {
    #[command(flatten)]
    line: LineArgs,
    /// Return once the hub has done it.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn rollback(args: RollbackArgs) -> anyhow::Result<()> {
    let Some(name) = args.line.name() else { bail!("name the AddOnSigner, or --serving or --gateway-client") };
    let ca = Ca::connect(&args.connection).await?;
    let before = ca.line(&name).await?;
    let Some(active) = before.in_state(AuthorityState::Active) else {
        bail!("{} has no authority yet: is the hub running? {}", before.line, before.problem.unwrap_or_default());
    };
    let (id, sentence) = match (before.in_state(AuthorityState::Next), before.in_state(AuthorityState::Old)) {
        (Some(next), _) => {
            (&next.id, format!("drop {}, which has signed nothing; {} goes on signing", next.id, active.id))
        }
        (None, Some(_)) => {
            let sentence = "let the authority before it sign again; its certificates stay valid until they expire";
            (&active.id, format!("stop signing with {}, and {sentence}", active.id))
        }
        (None, None) => bail!(
            "there is no way back for {line}: the authority before {id} is gone with its key. \
             `addon-signer ca rotate {name}` replaces {id} with a new one",
            id = active.id,
            line = before.line
        ),
    };
    let user = CommandUser::ask(&ca.client).await.user;
    ca.annotate(&name, ANNOTATION_ROLL_BACK, &RollBack::text(id, Clock::default().now(), &user)).await?;
    eprintln!("Asked the hub to {sentence}.");
    if !args.watch {
        return Ok(());
    }
    let started = Instant::now();
    loop {
        let now = ca.line(&name).await?;
        let is_current = |state| now.in_state(state).is_some_and(|authority| authority.id == *id);
        if !is_current(AuthorityState::Next) && !is_current(AuthorityState::Active) {
            print(&as_table(&[now]));
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            bail!(
                "the hub has not done it within {} s: is one running, and does the authority before {id} live for \
                 another day? `addon-signer ca status {name}` shows it",
                PATIENCE.as_secs()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}
