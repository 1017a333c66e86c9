//! `addon-signer gateway explain`: which route decides about a request, and why, by the gateway's own code. It reads
//! the objects with the caller's kubeconfig and sends nothing to the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use hyper::{Method, Uri};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::check::routes_check::{left_out, name_of, said_by_hub};
use crate::output::{Format, Rows};
use addon_signer_api::ocm::{cluster_set, managed_cluster_resource};
use addon_signer_api::route::{CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS};
use addon_signer_api::route_rules::{endpoints, route_plan, service_facts, service_of, slices_of};
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::status::CONDITION_READY;
use addon_signer_api::{AddOnRoute, AddOnSigner, Guarded};
use addon_signer_core::conditions::NO_HOSTNAME;
use addon_signer_core::gateway::access::{self, Caller, NoAccess, RequestHead, RequestTarget};
use addon_signer_core::gateway::attachment::{Attachment, Labels};
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::path::SafePath;
use addon_signer_core::gateway::route::{BackendAnchors, Route, RouteName, RouteTable};
use addon_signer_core::gateway::routing::{
    self, Backends, Parent, References, Resolved, RoutePlan, Verdict, WantedServices, World, resolve,
};
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_core::oldest::MOST_ROUTES;
use addon_signer_gateway::problem_of;
use addon_signer_platform::kubeconfig::Access;
use addon_signer_platform::kubernetes;
use addon_signer_platform::listing::{self, Selector};

/// Explain what the gateway does.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum GatewayCommand {
    /// Say which AddOnRoute decides about a request, and why, by the gateway's own code, without sending the request.
    ///
    /// It reads AddOnSigners, AddOnRoutes, Services, EndpointSlices, namespaces and the ManagedCluster. It assumes that
    /// the host is a --gateway-name of the hub, that --backend-addresses allows all addresses, and that the certificate
    /// of the addon is good and may be used. The exit code is 0 whether or not the request passes.
    Explain(ExplainArgs),
}

/// Arguments of `gateway explain`.
#[derive(Debug, Clone, Args)]
pub(super) struct ExplainArgs {
    /// The cluster of the agent that sends the request.
    #[arg(long)]
    cluster: ClusterName,
    /// The addon that sends the request.
    #[arg(long)]
    addon: AddOnName,
    /// The method, such as POST, which every request of gRPC has.
    #[arg(value_name = "METHOD")]
    method: Method,
    /// The URL as the agent writes it, such as https://gateway.example:8443/addons/telemetry/api/v1/receive; the path
    /// of gRPC is /SERVICE/METHOD.
    #[arg(value_name = "URL")]
    url: Uri,
    #[command(flatten)]
    access: Access,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// The explanation, as `--output json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    /// Whether the gateway forwards the request or answers it itself.
    passes: bool,
    /// The problem that the client gets if the request is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<RefusalName>,
    /// The AddOnSigner of the client's certificate.
    signer: String,
    /// The AddOnRoute that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// Its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The backend that gets the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    /// The reasons, in sentences.
    why: Vec<String>,
}

/// A refusal: the status, and the name of the problem.
#[derive(Debug, Serialize)]
struct RefusalName {
    status: u16,
    name: &'static str,
}

impl From<&NoAccess> for RefusalName {
    fn from(refusal: &NoAccess) -> Self {
        let (status, name) = problem_of(refusal);
        Self { status, name }
    }
}

/// Runs the command.
///
/// # Errors
/// The API server cannot be asked, or no AddOnSigner serves the addon.
pub(super) async fn run(GatewayCommand::Explain(args): GatewayCommand) -> anyhow::Result<()> {
    let client = kubernetes::client(&args.access).await?;
    let existing = Existing::read(&client, &args.cluster).await?;
    let explanation = existing.explain(&args)?;
    Ok(args.output.print(&explanation, Explanation::table)?)
}

impl Explanation {
    fn table(&self) -> String {
        let mut rows = Rows::new(&["WHAT", "ANSWER"]);
        let outcome = match &self.problem {
            Some(RefusalName { status, name }) => format!("refused with {status} ({name})"),
            None => "passes".to_owned(),
        };
        rows.add(["request", &outcome]);
        rows.add(["signer", &self.signer]);
        for (what, value) in [("route", &self.route), ("path", &self.path), ("backend", &self.backend)] {
            if let Some(value) = value {
                rows.add([what, value]);
            }
        }
        for why in &self.why {
            let mut letters = why.chars();
            let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
            rows.add(["why", &format!("{first}{}", letters.as_str())]);
        }
        rows.render()
    }
}

/// An AddOnSigner that the hub serves.
struct ServedSigner {
    name: String,
    addons: BTreeSet<AddOnName>,
    attachment: Attachment,
}

/// The objects that decide.
struct Existing {
    signers: Vec<ServedSigner>,
    plans: Vec<RoutePlan>,
    /// AddOnRoutes without effect, such as those that cannot be read: their names, their AddOnSigners if those can be
    /// read, and why.
    unreadable: Vec<(RouteName, Option<String>, String)>,
    /// The hub's reports about backends that it cannot use.
    unresolved: BTreeMap<RouteName, String>,
    namespaces: BTreeMap<String, Labels>,
    references: References,
    cluster_set: Option<String>,
}

impl Existing {
    async fn read(client: &Client, cluster: &ClusterName) -> anyhow::Result<Self> {
        let signers = list::<Guarded<AddOnSigner>>(client).await?;
        let signers = signers.into_iter().filter_map(|it| served(it.read().ok()?)).collect(); // unreadable: not Ready
        let (mut plans, mut unreadable, mut unresolved) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut routes = list::<Guarded<AddOnRoute>>(client).await?;
        routes.retain(|route| route.meta().deletion_timestamp.is_none());
        let left_out = left_out(&routes);
        for route in routes {
            let name = name_of(&route);
            if left_out.contains(&name) {
                unreadable.push((name, None, format!("the namespace has {MOST_ROUTES} older ones, which is the most")));
                continue;
            }
            let route = match route.read() {
                Ok(route) => route,
                Err(error) => {
                    unreadable.push((name, None, error));
                    continue;
                }
            };
            let unusable = said_by_hub(&route, CONDITION_RESOLVED_REFS).map(|(_, cause)| cause);
            unresolved.extend(unusable.map(|cause| (name.clone(), cause)));
            // Only the hub knows all host names of its gateway.
            let elsewhere = said_by_hub(&route, CONDITION_ACCEPTED).filter(|(reason, _)| *reason == NO_HOSTNAME);
            match route_plan(&route) {
                Ok(plan) => match elsewhere {
                    Some((_, cause)) => unreadable.push((name, Some(plan.signer), cause)),
                    None => plans.push(plan),
                },
                Err(error) => unreadable.push((name, Some(route.spec.signer), error.to_string())),
            }
        }
        let namespaces = list::<PartialObjectMeta<Namespace>>(client).await?.into_iter();
        let namespaces = namespaces.map(|namespace| (namespace.name_any(), namespace.labels().clone())).collect();
        let mut references = References::default();
        for (namespace, services) in named_services(&plans) {
            references.backends.insert(namespace.clone(), backends(client, &namespace, services).await?);
        }
        // The hub's --backend-addresses and the content of ClusterTrustBundles are unknown here; the hub's own verdict
        // is in the condition ResolvedRefs.
        let bundles = plans.iter().filter_map(|plan: &RoutePlan| plan.backend.bundle());
        references.bundles = bundles.map(|name| (name.to_owned(), Ok(BackendAnchors::default()))).collect();
        let all = ["0.0.0.0/0", "::/0"];
        references.networks = all.iter().filter_map(|network| network.parse().ok()).collect(); // both are networks
        let clusters = Api::<DynamicObject>::all_with(client.clone(), &managed_cluster_resource());
        let cluster_set = clusters.get_opt(cluster.as_str()).await?.and_then(|cluster| cluster_set(&cluster));
        Ok(Self { signers, plans, unreadable, unresolved, namespaces, references, cluster_set })
    }

    fn explain(&self, args: &ExplainArgs) -> anyhow::Result<Explanation> {
        let mut owners = self.signers.iter().filter(|signer| signer.addons.contains(&args.addon));
        let Some(signer) = owners.next() else {
            bail!("no AddOnSigner that is Ready has the addon {}: see `kubectl get ads`", args.addon)
        };
        let authority = args.url.authority().map_or("", |authority| authority.as_str());
        let (table, verdicts) = self.table(authority);
        let mut why = Vec::new();
        let Decided { route, outcome } = self.decide(&table, signer, args);
        let problem = outcome.err().map(|refusal| {
            why.push(format!("{refusal}."));
            RefusalName::from(&refusal)
        });
        let passes = problem.is_none();
        if let Some(route) = &route {
            let number = table.of(&signer.name, &args.addon).len();
            let name = &route.name;
            why.push(format!(
                "Of the addon's paths, that of the AddOnRoute {name} is the longest that matches; in all: {number}."
            ));
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

    /// The table of a gateway whose host names include the request's host, and all that AddOnSigners list.
    fn table(&self, authority: &str) -> (RouteTable, BTreeMap<RouteName, Verdict>) {
        let parents: Vec<Parent<'_>> = self
            .signers
            .iter()
            .map(|ServedSigner { name, addons, attachment }| Parent { name, addons, attachment })
            .collect();
        let claimed = self.signers.iter().flat_map(|signer| &signer.attachment.hostnames);
        // All AddOnSigners share the first name of a gateway.
        let names: Vec<Host> = [Host::Name(String::new())]
            .into_iter()
            .chain(Host::of_authority(authority))
            .chain(claimed.cloned())
            .collect();
        let (namespaces, references, before) = (&self.namespaces, &self.references, &BTreeMap::new());
        let world = World { parents: &parents, names: &names, namespaces, references, before };
        let Resolved { table, verdicts, .. } = resolve(&self.plans, &world);
        (table, verdicts)
    }

    fn decide(&self, table: &RouteTable, signer: &ServedSigner, args: &ExplainArgs) -> Decided {
        let ExplainArgs { addon, cluster, method, .. } = args;
        let authority = args.url.authority().map_or("", |authority| authority.as_str());
        let names = Vec::from_iter(Host::of_authority(authority));
        let asked = access::host(authority, &names, table, &signer.name).and_then(|host| {
            let path = SafePath::parse(args.url.path())?;
            let target = access::target(addon, &path)?;
            Ok((host, path, target))
        });
        let (host, path, skip) = match asked {
            Ok((host, path, RequestTarget::Backend(skip))) => (host, path, skip),
            Ok((_, _, RequestTarget::WhoAmI | RequestTarget::Bundle)) => {
                return Decided { route: None, outcome: Ok(()) };
            }
            Err(refusal) => return Decided { route: None, outcome: Err(refusal) },
        };
        let caller = Caller { signer: &signer.name, addon, cluster, cluster_set: self.cluster_set.as_deref() };
        let head = RequestHead { caller, host: &host, method, path: path.below(skip) };
        let outcome = access::route(table, &head).and_then(|route| {
            access::backend(route)?;
            let cause = self.unresolved.get(&route.name).cloned();
            cause.map_or(Ok(()), |cause| Err(NoAccess::NoBackend { route: route.name.clone(), cause }))
        });
        // No route decides about a path that several routes may mean.
        let route = head.decided_by(table).filter(|_| !matches!(outcome, Err(NoAccess::Path(_))));
        Decided { route: route.cloned(), outcome }
    }

    /// Sentences about AddOnRoutes of this AddOnSigner that are not in effect.
    fn out_of_effect(&self, verdicts: &BTreeMap<RouteName, Verdict>, signer: &ServedSigner) -> Vec<String> {
        let of_signer =
            |name: &RouteName| self.plans.iter().any(|plan| plan.name == *name && plan.signer == signer.name);
        let refused = verdicts.iter().filter(|(name, _)| of_signer(name)).filter_map(|(name, verdict)| {
            let Verdict { accepted, resolved, programmed, .. } = verdict;
            let problem = accepted.as_ref().err().or(resolved.as_ref().err()).or(programmed.as_ref().err())?;
            Some(format!("The AddOnRoute {name} is not wholly in effect: {}.", problem.cause))
        });
        let may_be_of = |of: &Option<String>| of.as_ref().is_none_or(|of| *of == signer.name);
        let unreadable = self.unreadable.iter().filter(|(_, of, _)| may_be_of(of));
        let unreadable = unreadable.map(|(name, _, cause)| format!("The AddOnRoute {name} has no effect: {cause}."));
        refused.chain(unreadable).collect()
    }
}

/// The route that decides, and the outcome of the request.
struct Decided {
    route: Option<Arc<Route>>,
    outcome: Result<(), NoAccess>,
}

/// An AddOnSigner that is Ready, with the addons that it owns.
fn served(signer: AddOnSigner) -> Option<ServedSigner> {
    let status = signer.status.as_ref()?;
    let is_ready = status.conditions.iter().any(|it| it.type_ == CONDITION_READY && it.status == "True");
    let config = SignerConfig::read(&signer.spec, None).ok().filter(|_| is_ready)?; // a bad spec is not Ready
    let mut addons = config.rules.addons;
    addons.retain(|addon| status.add_ons.contains(addon.as_str()));
    Some(ServedSigner { name: signer.name_any(), addons, attachment: config.attachment })
}

/// The Services that AddOnRoutes name, by namespaces.
fn named_services(plans: &[RoutePlan]) -> WantedServices {
    let mut named = WantedServices::new();
    for plan in plans {
        if let routing::BackendTarget::Service { name, .. } = &plan.backend.target {
            named.entry(plan.name.namespace.clone()).or_default().insert(name.clone());
        }
    }
    named
}

/// These Services of a namespace with their endpoints, as the hub reads them.
async fn backends(client: &Client, namespace: &str, names: BTreeSet<String>) -> anyhow::Result<Backends> {
    let mut found = Backends::default();
    let services: Api<Guarded<Service>> = Api::namespaced(client.clone(), namespace);
    let slices: Api<Guarded<EndpointSlice>> = Api::namespaced(client.clone(), namespace);
    let of_names = Selector::labels(&slices_of(names.iter().map(String::as_str)));
    for name in names {
        let named = Selector::fields(&format!("metadata.name={name}"));
        let service = listing::any(&services, &named).await;
        let service = service.with_context(|| format!("cannot list services in {namespace}"))?;
        let service = service.and_then(|service| service.object.0.ok()); // an unreadable Service counts as missing
        found.services.insert(name, service.map(service_facts));
    }
    let listed = listing::each(slices, of_names, |slice| {
        let (name, Ok(slice)) = (slice.name_any(), slice.object.0) else { return };
        let Some(service) = service_of(&slice).map(str::to_owned) else { return };
        found.endpoints.entry(service).or_default().insert(name, Arc::new(endpoints(slice)));
    });
    listed.await.with_context(|| format!("cannot list endpointslices in {namespace}"))?;
    Ok(found)
}

async fn list<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let objects = listing::all(Api::<K>::all(client.clone()), Selector::all()).await;
    objects.with_context(|| format!("cannot list {}", K::plural(&())))
}
