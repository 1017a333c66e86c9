//! Which line a command is about.

use std::fmt;

use clap::Args;

use crate::cli::signer_object;
use addon_signer_core::policy::GatewayCertificate;

/// The arguments that name a line.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub(super) struct LineArgs {
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

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineName {
    /// That of the AddOnSigner with this name.
    Signer(String),
    /// One of the gateway.
    Gateway(GatewayCertificate),
}

/// As the commands take it.
impl fmt::Display for LineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signer(name) => name,
            Self::Gateway(GatewayCertificate::Serving) => "--serving",
            Self::Gateway(GatewayCertificate::Client) => "--gateway-client",
        })
    }
}

impl LineArgs {
    /// The line; `None` if the arguments name none.
    pub(super) fn name(&self) -> Option<LineName> {
        if self.serving {
            return Some(LineName::Gateway(GatewayCertificate::Serving));
        }
        if self.gateway_client {
            return Some(LineName::Gateway(GatewayCertificate::Client));
        }
        self.signer.clone().map(LineName::Signer)
    }
}
