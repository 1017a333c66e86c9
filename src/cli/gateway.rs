//! `addon-signer gateway explain`: which route decides about a call, and why, by the gateway's own code. It reads the
//! objects with the caller's kubeconfig and sends nothing to the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use hyper::{Method, Uri};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::output::{Format, print, print_json, render, table};
use addon_signer_api::ocm::{cluster_set, managed_cluster_resource};
use addon_signer_api::route_refs::{endpoints, service_facts, service_of};
use addon_signer_api::route_rules::route_plan;
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::status::CONDITION_READY;
use addon_signer_api::{AddOnRoute, AddOnSigner, Guarded};
use addon_signer_core::gateway::access::{self, Call, Caller, NoAccess, Target};
use addon_signer_core::gateway::attachment::{Attachment, Labels};
use addon_signer_core::gateway::path::SafePath;
use addon_signer_core::gateway::route::{Route, RouteName, RouteTable};
use addon_signer_core::gateway::routing::{Parent, References, RoutePlan, Verdict, World, resolve};
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_gateway::problem_of;
use addon_signer_platform::kubernetes;

/// Explain what the gateway does.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum GatewayCommand {
    /// Say which route decides about a call, and why, without sending it.
    Explain(ExplainArgs),
}

/// Arguments of `gateway explain`.
#[derive(Debug, Clone, Args)]
pub(super) struct ExplainArgs {
    /// The caller's cluster.
    #[arg(long)]
    cluster: ClusterName,
    /// The caller's addon.
    #[arg(long)]
    addon: AddOnName,
    /// The method, such as POST; for a gRPC call POST.
    #[arg(value_name = "METHOD")]
    method: Method,
    /// The URL as the agent calls it, such as https://gateway.example:8443/addons/telemetry/api/v1/receive.
    #[arg(value_name = "URL")]
    url: Uri,
    /// The hub's kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's own account].
    #[arg(long, env = "ADDON_SIGNER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    /// Whether the gateway passes the call on or answers it itself.
    passes: bool,
    /// The status that the caller gets if it is refused, and the name of the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<(u16, &'static str)>,
    /// The AddOnSigner whose certificate the caller has.
    signer: String,
    /// The AddOnRoute that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// Its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Where the call goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    /// Why, in sentences.
    why: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The API server cannot be asked, or nobody serves the addon.
pub(super) async fn run(GatewayCommand::Explain(args): GatewayCommand) -> anyhow::Result<()> {
    let client = kubernetes::client(args.kubeconfig.as_deref()).await?;
    let existing = Existing::read(&client, &args.cluster).await?;
    let explanation = existing.explain(&args)?;
    match args.output {
        Format::Json => print_json(&explanation)?,
        Format::Table => print(&explanation.table()),
    }
    Ok(())
}

impl Explanation {
    fn table(&self) -> String {
        let mut rows = table(&["WHAT", "ANSWER"]);
        let outcome = match self.problem {
            Some((status, name)) => format!("refused with {status} ({name})"),
            None => "passes".to_owned(),
        };
        rows.add_row(["call", &outcome]);
        rows.add_row(["signer", &self.signer]);
        for (what, value) in [("route", &self.route), ("path", &self.path), ("backend", &self.backend)] {
            if let Some(value) = value {
                rows.add_row([what, value]);
            }
        }
        for why in &self.why {
            let mut letters = why.chars();
            let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
            rows.add_row(["why", &format!("{first}{}", letters.as_str())]);
        }
        render(&rows)
    }
}

/// An AddOnSigner that the hub serves.
struct Served {
    name: String,
    addons: BTreeSet<AddOnName>,
    attachment: Attachment,
}

/// What decides.
struct Existing {
    signers: Vec<Served>,
    plans: Vec<RoutePlan>,
    /// AddOnRoutes that cannot be read.
    unreadable: Vec<(RouteName, String)>,
    namespaces: BTreeMap<String, Labels>,
    references: References,
    cluster_set: Option<String>,
}

impl Existing {
    async fn read(client: &Client, cluster: &ClusterName) -> anyhow::Result<Self> {
        let signers = list::<Guarded<AddOnSigner>>(client).await?;
        let signers = signers.into_iter().filter_map(|signer| served(signer.read().ok()?)).collect();
        let (mut plans, mut unreadable) = (Vec::new(), Vec::new());
        for route in list::<Guarded<AddOnRoute>>(client).await? {
            let name = RouteName { namespace: route.namespace().unwrap_or_default(), name: route.name_any() };
            match route.read().and_then(|route| route_plan(&route).map_err(|error| error.to_string())) {
                Ok(plan) => plans.push(plan),
                Err(error) => unreadable.push((name, error)),
            }
        }
        let namespaces = list::<PartialObjectMeta<Namespace>>(client).await?.into_iter();
        let namespaces = namespaces.map(|namespace| (namespace.name_any(), namespace.labels().clone())).collect();
        let mut references = References::default();
        for service in list::<Guarded<Service>>(client).await? {
            let key = (service.namespace().unwrap_or_default(), service.name_any());
            references.services.extend(service.read().ok().map(|service| (key, service_facts(service))));
        }
        for slice in list::<Guarded<EndpointSlice>>(client).await? {
            let (name, Ok(slice)) = (slice.name_any(), slice.read()) else { continue };
            let Some(service) = service_of(&slice) else { continue };
            references.endpoints.entry(service).or_default().insert(name, endpoints(slice));
        }
        // The hub's --backend-addresses is not known here; its own verdict is in the condition ResolvedRefs.
        references.networks = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok()).collect();
        let clusters = Api::<DynamicObject>::all_with(client.clone(), &managed_cluster_resource());
        let cluster_set = clusters.get_opt(cluster.as_str()).await?.and_then(|cluster| cluster_set(&cluster));
        Ok(Self { signers, plans, unreadable, namespaces, references, cluster_set })
    }

    fn explain(&self, args: &ExplainArgs) -> anyhow::Result<Explanation> {
        let mut owners = self.signers.iter().filter(|signer| signer.addons.contains(&args.addon));
        let Some(signer) = owners.next() else {
            bail!("no AddOnSigner that is Ready has the addon {}: see `kubectl get ads`", args.addon)
        };
        let authority = args.url.authority().map_or("", |authority| authority.as_str());
        let (table, verdicts) = self.table(authority);
        let mut why = Vec::new();
        let decided = decide(&table, signer, args, self.cluster_set.as_deref());
        let (passes, problem, route) = match decided {
            Ok(Decision::Own) => (true, None, None),
            Ok(Decision::Route(route)) => match &route.backend {
                Ok(_) => (true, None, Some(route)),
                Err(cause) => {
                    let refusal = NoAccess::NoBackend { route: route.name.clone(), cause: cause.clone() };
                    (false, Some(problem_of(&refusal)), Some(route))
                }
            },
            Err(refusal) => {
                why.push(format!("{refusal}."));
                (false, Some(problem_of(&refusal)), self.named(&refusal, &table, signer, &args.addon))
            }
        };
        if let Some(route) = &route {
            let number = table.of(&signer.name, &args.addon).len();
            let name = &route.name;
            why.push(format!(
                "Of the addon's paths, that of the AddOnRoute {name} is the longest that matches; in all: {number}."
            ));
            why.extend(route.backend.as_ref().err().map(|cause| format!("Its backend cannot be used: {cause}.")));
        } else if passes {
            why.push("The gateway answers this path itself.".to_owned());
        }
        why.extend(self.out_of_effect(&verdicts, signer));
        if let Some(other) = owners.next() {
            why.push(format!("The AddOnSigner {} has the addon too; its agents have routes of their own.", other.name));
        }
        Ok(Explanation {
            passes,
            problem,
            signer: signer.name.clone(),
            path: route.as_ref().map(|route| route.path.to_string()),
            backend: route.as_ref().and_then(|route| route.backend.as_ref().ok()).map(|backend| {
                format!("{} ({}), addresses: {}", backend.authority, backend.protocol, backend.addresses.len())
            }),
            route: route.map(|route| route.name.to_string()),
            why,
        })
    }

    /// The table of a gateway that has the host of the call, and all that AddOnSigners list, among its names.
    fn table(&self, authority: &str) -> (RouteTable, BTreeMap<RouteName, Verdict>) {
        let parents: Vec<Parent<'_>> = self
            .signers
            .iter()
            .map(|Served { name, addons, attachment }| Parent { name, addons, attachment })
            .collect();
        let claimed = self.signers.iter().flat_map(|signer| &signer.attachment.hostnames);
        // The first name of a gateway is nobody's.
        let names: Vec<String> = [String::new(), authority.to_owned()].into_iter().chain(claimed.cloned()).collect();
        let world =
            World { parents: &parents, names: &names, namespaces: &self.namespaces, references: &self.references };
        resolve(&self.plans, &world)
    }

    /// The route that a refusal is about.
    fn named(&self, refusal: &NoAccess, table: &RouteTable, signer: &Served, addon: &AddOnName) -> Option<Arc<Route>> {
        let (NoAccess::AnotherCluster(name) | NoAccess::ClusterNotAdmitted(name)) = refusal else { return None };
        table.of(&signer.name, addon).iter().find(|route| route.name == *name).cloned()
    }

    /// Sentences about AddOnRoutes of this AddOnSigner that are not in effect.
    fn out_of_effect(&self, verdicts: &BTreeMap<RouteName, Verdict>, signer: &Served) -> Vec<String> {
        let of_signer =
            |name: &RouteName| self.plans.iter().any(|plan| plan.name == *name && plan.signer == signer.name);
        let refused = verdicts.iter().filter(|(name, _)| of_signer(name)).filter_map(|(name, verdict)| {
            let problem = verdict.accepted.as_ref().err().or(verdict.programmed.as_ref().err())?;
            Some(format!("The AddOnRoute {name} is not wholly in effect: {}.", problem.cause))
        });
        let unreadable =
            self.unreadable.iter().map(|(name, cause)| format!("The AddOnRoute {name} has no effect: {cause}."));
        refused.chain(unreadable).collect()
    }
}

enum Decision {
    /// The gateway answers itself.
    Own,
    Route(Arc<Route>),
}

fn decide(
    table: &RouteTable,
    signer: &Served,
    args: &ExplainArgs,
    cluster_set: Option<&str>,
) -> Result<Decision, NoAccess> {
    let authority = args.url.authority().map_or("", |authority| authority.as_str());
    let host = access::host(authority, &[host_name(authority)], table, &signer.name)?;
    let path = SafePath::parse(args.url.path())?;
    match access::target(&args.addon, &path)? {
        Target::WhoAmI | Target::Bundle => Ok(Decision::Own),
        Target::Backend(skip) => {
            let caller = Caller { signer: &signer.name, addon: &args.addon, cluster: &args.cluster, cluster_set };
            let call = Call { caller, host: &host, method: &args.method, path: path.below(skip) };
            access::route(table, &call).map(|route| Decision::Route(Arc::clone(route)))
        }
    }
}

/// The host without its port and brackets.
fn host_name(authority: &str) -> String {
    let name = authority.parse::<hyper::http::uri::Authority>().map(|it| it.host().to_owned()).unwrap_or_default();
    name.trim_matches(['[', ']']).to_owned()
}

/// An AddOnSigner that is Ready, with the addons that are its own.
fn served(signer: AddOnSigner) -> Option<Served> {
    let status = signer.status.as_ref()?;
    let is_ready = status.conditions.iter().any(|it| it.type_ == CONDITION_READY && it.status == "True");
    let config = SignerConfig::read(&signer.spec, None).ok().filter(|_| is_ready)?;
    let mut addons = config.rules.addons;
    addons.retain(|addon| status.add_ons.contains(addon.as_str()));
    Some(Served { name: signer.name_any(), addons, attachment: config.attachment })
}

async fn list<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let objects = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    Ok(objects.with_context(|| format!("cannot list {}", K::plural(&())))?.items)
}
