//! Which lineage a command is about.

use std::fmt;

use clap::Args;

use crate::cli::signer_object;
use addon_signer_core::policy::GatewayCertificate;

/// The arguments that name a lineage.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub(super) struct LineageArgs {
    /// The AddOnSigner's name.
    #[arg(value_parser = signer_object)]
    signer: Option<String>,
    /// The authority of the gateway's certificate for agents.
    #[arg(long)]
    serving: bool,
    /// The authority of the certificate that the gateway shows to backends.
    #[arg(long)]
    gateway_client: bool,
}

/// A lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineageName {
    /// That of the AddOnSigner with this name.
    Signer(String),
    /// One of the gateway.
    Gateway(GatewayCertificate),
}

/// As the commands take it.
impl fmt::Display for LineageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signer(name) => name,
            Self::Gateway(GatewayCertificate::Serving) => "--serving",
            Self::Gateway(GatewayCertificate::Client) => "--gateway-client",
        })
    }
}

impl LineageArgs {
    /// The lineage; `None` if the arguments name none.
    pub(super) fn name(&self) -> Option<LineageName> {
        if self.serving {
            return Some(LineageName::Gateway(GatewayCertificate::Serving));
        }
        if self.gateway_client {
            return Some(LineageName::Gateway(GatewayCertificate::Client));
        }
        self.signer.clone().map(LineageName::Signer)
    }
}
