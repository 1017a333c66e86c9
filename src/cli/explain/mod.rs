//! `addon-signer gateway explain`: whether the gateway forwards a request, where to, and why, by the gateway's own
//! code. It reads the objects with the caller's kubeconfig and sends nothing to the gateway.

mod args;
mod backends;
mod certificate;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::check::routes_check::{left_out, name_of, reported_by_hub};
use crate::cli::caller::CommandUser;
use crate::output::Rows;
use addon_signer_api::route::{CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS};
use addon_signer_api::route_rules::route_plan;
use addon_signer_api::trust::signer_trust;
use addon_signer_api::{AddOnRoute, AddOnSigner, Guarded};
use addon_signer_core::conditions::NO_HOSTNAME;
use addon_signer_core::gateway::access::{self, Caller, NoAccess, RequestHead, RequestTarget};
use addon_signer_core::gateway::attachment::Labels;
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::path::SafePath;
use addon_signer_core::gateway::route::{BackendAnchors, Route, RouteName, RouteTable};
use addon_signer_core::gateway::routing::{Parent, References, Resolved, RoutePlan, Verdict, World, resolve};
use addon_signer_core::oldest::MOST_ROUTES;
use addon_signer_core::registry::Registry;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::SignerTrust;
use addon_signer_gateway::{problem_of, problem_of_client};
use addon_signer_hub::registrations::registry::{discover, look_up};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubernetes;
use addon_signer_platform::listing::{self, Selector};
use args::ExplainArgs;
pub(super) use args::GatewayCommand;
use backends::{backends, named_services};
use certificate::{client, lacking};

/// The explanation, as `--output json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    /// Whether the gateway forwards the request or answers it itself. Not while the agent has no certificate.
    passes: bool,
    /// The problem that the client gets if the request is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<RefusalName>,
    /// What the agent waits for, if the hub reports that it has no certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
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
    /// What the outcome depends on and was not read, in sentences.
    assumed: Vec<String>,
}

/// A refusal: the status, and the name of the problem.
#[derive(Debug, Serialize)]
struct RefusalName {
    status: u16,
    name: &'static str,
}

/// Runs the command.
///
/// # Errors
/// The API server cannot be asked, or no AddOnSigner has the addon.
pub(super) async fn run(GatewayCommand::Explain(args): GatewayCommand) -> anyhow::Result<()> {
    let client = kubernetes::client(&args.access).await?;
    let existing = Existing::read(&client, &args).await?;
    let explanation = existing.explain(&args)?;
    Ok(args.output.print(&explanation, Explanation::table)?)
}

impl Explanation {
    fn table(&self) -> String {
        let mut rows = Rows::new(&["WHAT", "ANSWER"]);
        let outcome = match &self.problem {
            Some(RefusalName { status, name }) => format!("refused with {status} ({name})"),
            None if self.waits_for.is_some() => "passes once the agent has a certificate".to_owned(),
            None => "passes".to_owned(),
        };
        rows.add(["request", &outcome]);
        rows.add(["signer", &self.signer]);
        for (what, value) in [("route", &self.route), ("path", &self.path), ("backend", &self.backend)] {
            if let Some(value) = value {
                rows.add([what, value]);
            }
        }
        if let Some(waits_for) = &self.waits_for {
            rows.add(["waits for", waits_for]);
        }
        for why in &self.why {
            rows.add(["why", &capitalised(why)]);
        }
        for assumed in &self.assumed {
            rows.add(["assumed", assumed]);
        }
        rows.render()
    }
}

/// A sentence with a capital, unless it begins with a name such as `spoke1/telemetry`.
fn capitalised(sentence: &str) -> String {
    let is_name = sentence.split(' ').next().is_some_and(|word| word.contains('/'));
    match sentence.split_at_checked(1).filter(|_| !is_name) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => sentence.to_owned(),
    }
}

/// The objects that decide.
struct Existing {
    signers: Vec<Arc<SignerTrust>>,
    plans: Vec<RoutePlan>,
    /// AddOnRoutes without effect, such as those that cannot be read: their names, their AddOnSigners if those can be
    /// read, and why.
    unreadable: Vec<(RouteName, Option<String>, String)>,
    /// The hub's reports about backends that it cannot use.
    unresolved: BTreeMap<RouteName, String>,
    namespaces: BTreeMap<String, Labels>,
    references: References,
    /// The addon on the cluster, and nothing else.
    registry: Registry,
    /// What its agent waits for, by the hub's report.
    waits_for: Option<String>,
    /// The API server's time.
    now: Timestamp,
}

impl Existing {
    async fn read(client: &Client, args: &ExplainArgs) -> anyhow::Result<Self> {
        let signers = list::<Guarded<AddOnSigner>>(client).await?.into_iter();
        // Without effect if it cannot be read.
        let signers = signers.filter_map(|it| signer_trust(&it.read().ok()?).ok()?.map(Arc::new)).collect();
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
            let unusable = reported_by_hub(&route, CONDITION_RESOLVED_REFS).map(|(_, cause)| cause);
            unresolved.extend(unusable.map(|cause| (name.clone(), cause)));
            // Only the hub knows all host names of its gateway.
            let elsewhere = reported_by_hub(&route, CONDITION_ACCEPTED).filter(|(reason, _)| *reason == NO_HOSTNAME);
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
        let api = discover(client).await?;
        let waits_for = lacking(client, api, args).await?;
        let registry = look_up(client, api, &args.cluster, &args.addon).await;
        let registry = registry.context("cannot get the ManagedCluster and the ManagedClusterAddOn")?;
        let now = CommandUser::ask(client).await.now.unwrap_or_else(|| Clock::default().now());
        Ok(Self { signers, plans, unreadable, unresolved, namespaces, references, registry, waits_for, now })
    }

    fn explain(&self, args: &ExplainArgs) -> anyhow::Result<Explanation> {
        let mut owners = self.signers.iter().filter(|signer| signer.addons.contains(&args.addon));
        let Some(signer) = owners.next() else {
            bail!("no AddOnSigner with an authority has the addon {}: see `kubectl get ads`", args.addon)
        };
        let names = self.names(args);
        let (table, verdicts) = self.table(&names);
        let (mut why, mut assumed) = (Vec::new(), Vec::new());
        let client = client(signer, args, self.now)?;
        let (route, refused) = match access::eligibility(&client, &self.registry) {
            Err(cause) => (None, Some((cause.to_string(), problem_of_client(&cause)))),
            Ok(()) => {
                assumed = self.assumed(&client, args);
                let Decided { route, outcome } = self.decide(&table, &names, &client, args);
                (route, outcome.err().map(|cause| (cause.to_string(), problem_of(&cause))))
            }
        };
        let problem = refused.map(|(cause, (status, name))| {
            why.push(format!("{cause}."));
            RefusalName { status, name }
        });
        let is_allowed = problem.is_none();
        if let Some(route) = &route {
            let number = table.of(&signer.name, &args.addon).len();
            let name = &route.name;
            why.push(format!(
                "Of the addon's paths, that of the AddOnRoute {name} is the longest that matches; in all: {number}."
            ));
        } else if is_allowed {
            why.push("The gateway answers this path itself.".to_owned());
        }
        if is_allowed && route.is_some() {
            let sentence = "The request has no header or body that is refused, and reaches no limit; its backend \
                            answers, and the hub's --backend-addresses and ClusterTrustBundles allow it.";
            assumed.push(sentence.to_owned());
        }
        why.extend(self.out_of_effect(&verdicts, signer));
        if let Some(other) = owners.next() {
            why.push(format!("The AddOnSigner {} has the addon too; its agents have routes of their own.", other.name));
        }
        Ok(Explanation {
            passes: is_allowed && self.waits_for.is_none(),
            problem,
            waits_for: self.waits_for.clone(),
            signer: signer.name.clone(),
            path: route.as_ref().map(|route| route.path.to_string()),
            backend: route.as_ref().and_then(|route| route.backend.as_ref().ok()).map(|backend| {
                format!("{} ({}), addresses: {}", backend.authority, backend.protocol, backend.addresses.len())
            }),
            route: route.map(|route| route.name.to_string()),
            why,
            assumed,
        })
    }

    /// The names of the gateway. If they are not known, they include the request's host, and all that AddOnSigners
    /// list.
    fn names(&self, args: &ExplainArgs) -> Vec<Host> {
        if !args.gateway_name.is_empty() {
            return args.gateway_name.clone();
        }
        let named = self.signers.iter().flat_map(|signer| &signer.attachment.hostnames);
        // All AddOnSigners share the first name of a gateway.
        let first = [Host::Name(String::new())];
        first.into_iter().chain(Host::of_authority(args.authority())).chain(named.cloned()).collect()
    }

    /// What an eligible client's request depends on and cannot be read.
    fn assumed(&self, client: &Peer, args: &ExplainArgs) -> Vec<String> {
        let ExplainArgs { addon, cluster, .. } = args;
        let from = self.registry.valid_from(cluster, addon).unwrap_or(client.not_before);
        let signer = &client.signer.name;
        let is_claimed = self.signers.iter().any(|signer| !signer.attachment.hostnames.is_empty());
        let not_first = if is_claimed { ", and not its first one" } else { "" };
        let host = args.authority();
        let host = format!("The host {host} is a name of the gateway{not_first}; --gateway-name has this checked.");
        let certificate =
            format!("The agent has a valid certificate of the AddOnSigner {signer}, which begins at {from} or later.");
        let certificate = self.waits_for.is_none().then_some(certificate);
        certificate.into_iter().chain(args.gateway_name.is_empty().then_some(host)).collect()
    }

    /// The table of a gateway with these names.
    fn table(&self, names: &[Host]) -> (RouteTable, BTreeMap<RouteName, Verdict>) {
        let parents: Vec<Parent<'_>> = self.signers.iter().map(|signer| Parent::from(&**signer)).collect();
        let (namespaces, references, before) = (&self.namespaces, &self.references, &BTreeMap::new());
        let world = World { parents: &parents, names, namespaces, references, before };
        let Resolved { table, verdicts, .. } = resolve(&self.plans, &world);
        (table, verdicts)
    }

    fn decide(&self, table: &RouteTable, names: &[Host], client: &Peer, args: &ExplainArgs) -> Decided {
        let ExplainArgs { addon, cluster, method, .. } = args;
        let signer = &client.signer.name;
        let asked = access::host(args.authority(), names, table, signer).and_then(|host| {
            let path = SafePath::parse(args.url.path())?;
            let target = access::target(addon, &path)?;
            Ok((host, path, target))
        });
        let (host, path, skip) = match asked {
            Ok((host, path, RequestTarget::Backend(skip))) => (host, path, skip),
            Ok((_, _, RequestTarget::WhoAmI | RequestTarget::Bundle)) => {
                return Decided { route: None, outcome: access::read_only(method) };
            }
            Err(refusal) => return Decided { route: None, outcome: Err(refusal) },
        };
        let caller = Caller { signer, addon, cluster, cluster_set: self.registry.cluster_set(cluster) };
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
    fn out_of_effect(&self, verdicts: &BTreeMap<RouteName, Verdict>, signer: &SignerTrust) -> Vec<String> {
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

async fn list<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let objects = listing::all(Api::<K>::all(client.clone()), Selector::all()).await;
    objects.with_context(|| format!("cannot list {}", K::plural(&())))
}
