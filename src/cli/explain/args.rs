//! The arguments of `gateway explain`.

use clap::{Args, Subcommand};
use hyper::{Method, Uri};

use crate::output::Format;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_platform::kubeconfig::Access;

/// Explain what the gateway does.
#[derive(Debug, Clone, Subcommand)]
pub(in crate::cli) enum GatewayCommand {
    /// Say whether the gateway forwards a request, where to, and why, by the gateway's own code, without sending it.
    ///
    /// It reads AddOnSigners, AddOnRoutes, Services, EndpointSlices, namespaces, the ManagedCluster and the
    /// ManagedClusterAddOn. What it cannot read, such as the agent's certificate, it assumes, and says so. The exit
    /// code is 0 whether or not the request passes.
    Explain(ExplainArgs),
}

/// Arguments of `gateway explain`.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct ExplainArgs {
    /// The cluster of the agent that sends the request.
    #[arg(long)]
    pub(super) cluster: ClusterName,
    /// The addon that sends the request.
    #[arg(long)]
    pub(super) addon: AddOnName,
    /// The method, such as POST, which every request of gRPC has.
    #[arg(value_name = "METHOD")]
    pub(super) method: Method,
    /// The URL as the agent writes it, such as https://gateway.example:8443/addons/telemetry/api/v1/receive; the path
    /// of gRPC is /SERVICE/METHOD.
    #[arg(value_name = "URL", value_parser = url)]
    pub(super) url: Uri,
    /// The names of the gateway, as the hub has them and in that order; may be repeated. Without them the URL's host is
    /// taken for a name of the gateway.
    #[arg(long, value_name = "NAME_OR_IP", value_delimiter = ',')]
    pub(super) gateway_name: Vec<Host>,
    #[command(flatten)]
    pub(super) access: Access,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) output: Format,
}

fn url(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().map_err(|error| error.to_string())?;
    match url.authority() {
        Some(_) => Ok(url),
        None => Err("it has no host: write the whole URL, such as https://gateway.example/addons/telemetry".to_owned()),
    }
}

impl ExplainArgs {
    pub(super) fn authority(&self) -> &str {
        self.url.authority().map_or("", |authority| authority.as_str())
    }
}
