//! Which AddOnRoutes are in effect: from their specifications, and from the Services, namespaces and AddOnSigners that
//! exist. One pure function makes the gateway's table and the conditions of each AddOnRoute.

mod refs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::attachment::{Attachment, Labels};
use super::host::Host;
use super::path::PathPattern;
use super::route::{Backend, Clusters, Route, RouteLimits, RouteName, RouteTable};
use crate::conditions::{
    CONFLICTED, INVALID, NO_HOSTNAME, NO_PARENT, NOT_ALLOWED, REASON_PENDING, TOO_MANY_NAMESPACES, TOO_MANY_PATHS,
    UNSUPPORTED_VALUE,
};
use crate::identity::AddOnName;
use crate::timestamp::Timestamp;
use crate::trust::SignerTrust;

pub use refs::{BackendRef, BackendTarget, Backends, CaRef, Endpoints, References, ServiceFacts, ServicePort, TlsPlan};

/// How many paths one addon may have: each request is compared with all of them. Those that stay out of effect because
/// they are read alike count too, because each is compared with all older ones.
pub const MOST_PATHS: usize = 256;

/// In how many namespaces AddOnRoutes may name Services. There are two watches for each, all watches share one
/// connection with all requests, and an API server allows 100 streams on it (kube-apiserver,
/// `--http2-max-streams-per-connection`).
pub const MOST_NAMESPACES: usize = 24;

/// What an AddOnRoute asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePlan {
    /// Which one.
    pub name: RouteName,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// The name of the AddOnSigner.
    pub signer: String,
    /// Of its addons these; all if empty.
    pub addons: Arc<BTreeSet<AddOnName>>,
    /// The clusters whose agents may send requests.
    pub clusters: Arc<Clusters>,
    /// At which names of the gateway; at all if empty.
    pub hostnames: Arc<BTreeSet<Host>>,
    /// The paths.
    pub paths: Vec<PathPlan>,
    /// Where requests go.
    pub backend: BackendRef,
    /// What requests may take.
    pub limits: RouteLimits,
}

impl RoutePlan {
    /// What is kept of one that may not attach: what its status needs, and enough to notice when it may.
    #[must_use]
    pub fn without_paths(self) -> Self {
        let backend = BackendRef { tls: self.backend.tls.map(TlsPlan::without_ca), ..self.backend };
        let (addons, clusters) = (Arc::default(), Arc::new(Clusters::All));
        Self { addons, clusters, paths: Vec::new(), backend, ..self }
    }
}

/// A path of an AddOnRoute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPlan {
    /// The paths.
    pub path: PathPattern,
    /// The allowed methods, in upper case.
    pub methods: BTreeSet<String>,
    /// Whether a DELETE may have content.
    pub delete_with_content: bool,
}

/// Why a condition of an AddOnRoute is false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteProblem {
    /// In CamelCase: the Gateway API's reason, where it has one.
    pub reason: &'static str,
    /// One sentence without a period.
    pub cause: String,
}

impl RouteProblem {
    fn new(reason: &'static str, cause: impl Into<String>) -> Self {
        Self { reason, cause: cause.into() }
    }

    /// Whether the only problem is that something was not read yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.reason == REASON_PENDING
    }
}

/// The conditions of an AddOnRoute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may attach to its AddOnSigner.
    pub accepted: Result<(), RouteProblem>,
    /// Whether its backend was found. The hub does not search it for a route that is not accepted.
    pub resolved: Result<(), RouteProblem>,
    /// Whether the backend has an address to connect to.
    pub has_endpoint: bool,
    /// Whether all its paths are in effect.
    pub programmed: Result<(), RouteProblem>,
}

/// An AddOnSigner, as far as routes attach to it.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'w> {
    /// Its name.
    pub name: &'w str,
    /// Its addons.
    pub addons: &'w BTreeSet<AddOnName>,
    /// Which routes may attach.
    pub attachment: &'w Attachment,
}

impl<'w> From<&'w SignerTrust> for Parent<'w> {
    fn from(signer: &'w SignerTrust) -> Self {
        Self { name: &signer.name, addons: &signer.addons, attachment: &signer.attachment }
    }
}

/// What exists.
#[derive(Debug, Clone, Copy)]
pub struct World<'w> {
    /// The AddOnSigners that are served.
    pub parents: &'w [Parent<'w>],
    /// The names of the gateway.
    pub names: &'w [Host],
    /// The labels of all namespaces.
    pub namespaces: &'w BTreeMap<String, Labels>,
    /// Services and CA certificates.
    pub references: &'w References,
    /// The backends that routes had before. One stays in effect until the backend that its route names now was read.
    pub before: &'w BTreeMap<RouteName, Arc<Backend>>,
}

/// The Services that accepted AddOnRoutes name, by namespaces.
pub type WantedServices = BTreeMap<String, BTreeSet<String>>;

/// What follows from all AddOnRoutes.
#[derive(Debug)]
pub struct Resolved {
    /// The routes in effect.
    pub table: RouteTable,
    /// The conditions of each AddOnRoute. One that may attach, but whose paths were not kept, has none, because it must
    /// be read again.
    pub verdicts: BTreeMap<RouteName, Verdict>,
    /// What must be read for them.
    pub wanted: WantedServices,
}

/// The routes in effect, the conditions of each AddOnRoute, and which Services they need.
#[must_use]
pub fn resolve<'p>(plans: impl IntoIterator<Item = &'p RoutePlan>, world: &World<'_>) -> Resolved {
    let mut plans: Vec<&RoutePlan> = plans.into_iter().collect();
    plans.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
    let mut table = RouteTable::of_signers(world.parents.iter().map(|signer| signer.name));
    for signer in world.parents {
        // The first name is open to the agents of all AddOnSigners, so none can claim it.
        for hostname in world.names.iter().skip(1).filter(|name| signer.attachment.hostnames.contains(*name)) {
            table.reserve_host(hostname, signer.name);
        }
    }
    let (mut wanted, mut compared) = (WantedServices::new(), Compared::new());
    let mut of = |plan: &RoutePlan| attach(plan, world, &mut table, &mut wanted, &mut compared);
    let verdicts = plans.into_iter().filter_map(|plan| Some((plan.name.clone(), of(plan)?))).collect();
    Resolved { table, verdicts, wanted }
}

/// How many paths of each addon of an AddOnSigner were compared with older ones, in effect or not.
type Compared<'w> = BTreeMap<&'w str, BTreeMap<AddOnName, usize>>;

/// Adds what an AddOnRoute asks for to the table. Older ones are in it already.
fn attach<'w>(
    plan: &RoutePlan,
    world: &World<'w>,
    table: &mut RouteTable,
    wanted: &mut WantedServices,
    compared: &mut Compared<'w>,
) -> Option<Verdict> {
    let (signer, addons) = match accept(plan, world) {
        Ok(_) if plan.paths.is_empty() => return None,
        Ok(accepted) => accepted,
        Err(problem) => {
            let why = "the AddOnRoute is not accepted";
            let resolved = Err(RouteProblem::new(REASON_PENDING, format!("{why}, so its backend was not looked for")));
            let programmed = Err(RouteProblem::new(INVALID, why));
            return Some(Verdict { accepted: Err(problem), resolved, has_endpoint: false, programmed });
        }
    };
    let backend = backend(plan, world, wanted);
    let resolved = backend.as_ref().map(|_| ()).map_err(Clone::clone);
    let has_endpoint = backend.as_ref().is_ok_and(|backend| !backend.addresses.is_empty());
    let (mut lost, mut older) = (None, None);
    let compared = compared.entry(signer.name).or_default();
    for PathPlan { path, methods, delete_with_content } in &plan.paths {
        if let Some(problem) = count(&addons, compared) {
            lost = lost.or(Some(problem));
            break;
        }
        let older: &Vec<_> = older.get_or_insert_with(|| older_beside(plan, signer.name, &addons, table));
        if let Some(problem) = read_alike(path, &plan.name, older) {
            lost = lost.or(Some(problem));
            continue;
        }
        lost = lost.or_else(|| same_path(path, older));
        let route = Route {
            name: plan.name.clone(),
            created: plan.created,
            addons: Arc::clone(&addons),
            clusters: Arc::clone(&plan.clusters),
            hostnames: Arc::clone(&plan.hostnames),
            path: path.clone(),
            methods: methods.clone(),
            delete_with_content: *delete_with_content,
            backend: backend.as_ref().map(Arc::clone).map_err(|problem| problem.cause.clone()),
            limits: plan.limits,
        };
        table.add(signer.name, &Arc::new(route));
    }
    let unresolved = |problem: RouteProblem| {
        let reason = if problem.is_pending() { REASON_PENDING } else { INVALID };
        RouteProblem::new(reason, "its backend cannot be used, as ResolvedRefs says: requests are answered with 503")
    };
    let programmed = lost.map_or_else(|| resolved.clone().map_err(unresolved), Err);
    Some(Verdict { accepted: Ok(()), resolved, has_endpoint, programmed })
}

/// The backend of an accepted AddOnRoute.
fn backend(plan: &RoutePlan, world: &World<'_>, wanted: &mut WantedServices) -> Result<Arc<Backend>, RouteProblem> {
    let namespace = &plan.name.namespace;
    if let BackendTarget::Service { name, .. } = &plan.backend.target {
        if wanted.len() >= MOST_NAMESPACES && !wanted.contains_key(namespace) {
            let cause = format!(
                "older AddOnRoutes name Services in {MOST_NAMESPACES} other namespaces, which is the most \
                 (spec.backend.service)"
            );
            return Err(RouteProblem::new(TOO_MANY_NAMESPACES, cause));
        }
        wanted.entry(namespace.clone()).or_default().insert(name.clone());
    }
    let found = world.references.find(namespace, &plan.backend);
    found.or_else(|problem| {
        let before = world.before.get(&plan.name).filter(|_| problem.is_pending());
        before.cloned().ok_or(problem)
    })
}

/// The AddOnSigner of an AddOnRoute, and the addons whose agents may send requests.
fn accept<'w>(plan: &RoutePlan, world: &World<'w>) -> Result<(Parent<'w>, Arc<BTreeSet<AddOnName>>), RouteProblem> {
    let RoutePlan { name: RouteName { namespace, .. }, signer: name, .. } = plan;
    let signer = world.parents.iter().find(|parent| parent.name == name).copied().ok_or_else(|| {
        RouteProblem::new(NO_PARENT, format!("there is no AddOnSigner {name} that the hub serves (spec.signer)"))
    })?;
    if !signer.attachment.allows(namespace, world.namespaces.get(namespace)) {
        let cause = format!(
            "the AddOnSigner {name} does not let the namespace {namespace} attach routes (its spec.gateway.routesFrom)"
        );
        return Err(RouteProblem::new(NOT_ALLOWED, cause));
    }
    for hostname in &*plan.hostnames {
        let cause = if !signer.attachment.hostnames.contains(hostname) {
            format!("the AddOnSigner {name} does not have {hostname} in its spec.gateway.hostnames (spec.hostnames)")
        } else if !world.names.contains(hostname) {
            format!("{hostname} is none of the hub's --gateway-name (spec.hostnames)")
        } else {
            continue;
        };
        return Err(RouteProblem::new(NO_HOSTNAME, cause));
    }
    if let Some(addon) = plan.addons.difference(signer.addons).next() {
        let cause = format!("the addon {addon} is not one of the AddOnSigner {name} (spec.addOns)");
        return Err(RouteProblem::new(UNSUPPORTED_VALUE, cause));
    }
    let addons = if plan.addons.is_empty() { Arc::new(signer.addons.clone()) } else { Arc::clone(&plan.addons) };
    plan.paths.iter().find_map(|plan| repeated_prefix(&plan.path, &addons)).map_or(Ok((signer, addons)), Err)
}

/// A path with the prefix that the gateway removes (`access::target`). Only requests for /addons/ADDON/addons/ADDON
/// could match it; an owner who means them has the path /addons, so nothing becomes impossible.
fn repeated_prefix(path: &PathPattern, addons: &BTreeSet<AddOnName>) -> Option<RouteProblem> {
    let path = path.to_string();
    let below = path.strip_prefix("/addons/")?;
    let (addon, rest) = below.split_once('/').unwrap_or((below, ""));
    addons.iter().any(|own| own.as_str() == addon).then(|| {
        let cause = format!(
            "the path {path} must be /{rest}, because the gateway removes /addons/{addon} before it compares; it may \
             be /addons if the backend has such paths (spec.match)"
        );
        RouteProblem::new(UNSUPPORTED_VALUE, cause)
    })
}

/// Counts a path of each of the addons, unless one has as many as it may.
fn count(addons: &BTreeSet<AddOnName>, compared: &mut BTreeMap<AddOnName, usize>) -> Option<RouteProblem> {
    let is_full = |addon: &&AddOnName| compared.get(*addon).is_some_and(|count| *count >= MOST_PATHS);
    if let Some(addon) = addons.iter().find(is_full) {
        let cause = format!("older AddOnRoutes have {MOST_PATHS} paths of the addon {addon}, which is the most");
        return Some(RouteProblem::new(TOO_MANY_PATHS, cause));
    }
    addons.iter().for_each(|addon| *compared.entry(addon.clone()).or_default() += 1);
    None
}

/// Whether a path must stay out of the table (`docs/paths.md`, rule 1).
fn read_alike(own: &PathPattern, of: &RouteName, older: &[Arc<Route>]) -> Option<RouteProblem> {
    let is_of_others = |older: &Route| older.name.namespace != of.namespace;
    let is_alike = |older: &&Arc<Route>| is_of_others(older) && own.is_only_read_below(&older.path);
    let Route { name, path, .. } = &**older.iter().find(is_alike)?;
    let cause = format!(
        "some backends read the path {own} as one at or below {path} of the older AddOnRoute {name}: it has no effect"
    );
    Some(RouteProblem::new(CONFLICTED, cause))
}

/// Whether an older AddOnRoute decides about requests of this one.
fn same_path(own: &PathPattern, older: &[Arc<Route>]) -> Option<RouteProblem> {
    let Route { name, path, .. } = &**older.iter().find(|older| older.path.is_same_as(own))?;
    let cause = if path == own {
        format!("the path {path} is that of the older AddOnRoute {name}, which gets its requests")
    } else {
        format!(
            "some backends read the path {own} as {path} of the older AddOnRoute {name}: requests for both are refused"
        )
    };
    Some(RouteProblem::new(CONFLICTED, cause))
}

/// The paths in effect that may have an addon, a host and a cluster in common with an AddOnRoute, each once, however
/// many addons both have. Clusters, which may be a thousand of each, are compared once with those of each AddOnRoute.
fn older_beside(plan: &RoutePlan, signer: &str, addons: &BTreeSet<AddOnName>, table: &RouteTable) -> Vec<Arc<Route>> {
    let may_meet =
        |older: &Route| overlap(&older.hostnames, &plan.hostnames) && clusters_overlap(&older.clusters, &plan.clusters);
    let (mut meets, mut seen, mut beside) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for older in addons.iter().flat_map(|addon| table.of(signer, addon)) {
        if seen.insert(Arc::as_ptr(older)) && *meets.entry(&older.name).or_insert_with(|| may_meet(older)) {
            beside.push(Arc::clone(older));
        }
    }
    beside
}

/// Whether two sets have a member in common. An empty one has all.
fn overlap<T: Ord>(one: &BTreeSet<T>, other: &BTreeSet<T>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}

/// Whether a cluster may be in both. Which clusters are in a set may change at any time.
fn clusters_overlap(one: &Clusters, other: &Clusters) -> bool {
    match (one, other) {
        (Clusters::Names(one), Clusters::Names(other)) => !one.is_disjoint(other),
        (Clusters::Sets(one), Clusters::Sets(other)) => !one.is_disjoint(other),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
