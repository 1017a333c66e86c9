//! Finds out which addons on which clusters have a certificate, from the ledger, the registry and the CSRs, for the
//! conditions of ManagedClusterAddOns and the status of AddOnSigners.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::HubLinks;
use crate::certifications::Certifications;
use crate::csrs::answerers::{Answerer, Answerers};
use crate::csrs::newest::NewestCsrs;
use crate::registrations::wanted::Signers;
use crate::tasks::{HubTasks, after_the_writer, send_news};
use addon_signer_api::status::{AgentWithout, AgentsStatus};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::certification::{AgentFacts, Certification, Newest};
use addon_signer_core::identity::{AddOnKey, AddOnName};
use addon_signer_core::registry::{NotRegistered, Registry};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::Trust;
use addon_signer_ledger::{Health, Reader};

/// How often all are counted; earlier if the ledger has changed.
const ROUND: Duration = Duration::from_secs(15);
/// The shortest time between two counts.
const PAUSE: Duration = Duration::from_secs(2);
/// The pause after a count is this many times as long as the count, so that a large fleet costs little.
const SHARE: u32 = 20;
/// The longest pause after a count: the task gives a sign of life before each.
const LONGEST: Duration = Duration::from_secs(120);
/// How long the report names the end of an expired certificate.
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// How many addons without a certificate a status names.
const NAMED: usize = 10;

/// The numbers of each AddOnSigner, by its name.
pub(crate) type AgentsReport = BTreeMap<String, AgentsStatus>;

/// The other ends of the task that counts.
pub(crate) struct CountedAgents {
    /// Where the dispatcher notes CSRs.
    pub(crate) csrs: Arc<Mutex<NewestCsrs>>,
    pub(crate) states: Certifications,
    pub(crate) report: watch::Receiver<AgentsReport>,
}

/// Starts the task that counts.
pub(crate) fn start(
    tasks: &mut HubTasks,
    links: &HubLinks,
    ledger: Reader,
    signers: watch::Receiver<Option<Signers>>,
) -> CountedAgents {
    let (csrs, states) = (Arc::<Mutex<NewestCsrs>>::default(), Certifications::default());
    let (report, counted) = watch::channel(AgentsReport::new());
    let inputs = AgentsInputs { ledger, signers, csrs: Arc::clone(&csrs), states: states.clone(), report };
    tasks.spawn("certificates of agents", after_the_writer(keep(links.clone(), inputs)));
    CountedAgents { csrs, states, report: counted }
}

/// What the task reads, and where it reports.
struct AgentsInputs {
    ledger: Reader,
    signers: watch::Receiver<Option<Signers>>,
    csrs: Arc<Mutex<NewestCsrs>>,
    states: Certifications,
    report: watch::Sender<AgentsReport>,
}

/// Counts as long as the hub runs.
async fn keep(links: HubLinks, inputs: AgentsInputs) {
    let pulse = links.pulses.start("certificates of agents");
    let mut certificates = Certificates::default();
    let mut health = links.ledger.health();
    loop {
        pulse.beat();
        let began = Instant::now();
        if certificates.refresh(&links, &inputs.ledger).await {
            inputs.count(&links, &certificates.newest);
        }
        pulse.beat();
        sleep((SHARE * began.elapsed()).clamp(PAUSE, LONGEST)).await;
        // Each transaction of the ledger is a change.
        if let Ok(Err(_)) = timeout(ROUND, health.changed()).await {
            return; // the ledger's writer has ended, and with it the hub
        }
    }
}

impl AgentsInputs {
    fn count(&self, links: &HubLinks, newest: &HashMap<AddOnKey, Newest>) {
        let Some(signers) = self.signers.borrow().clone() else { return };
        let fleet = Fleet::new(&signers, &links.trust.borrow());
        let Some(addons) = links.registry.read(|registry| fleet.read(registry)) else { return };
        let mut judged = {
            let mut csrs = self.csrs.lock();
            links.registry.read(|registry| csrs.retain(|cluster, addon| registry.created(cluster, addon).is_some()));
            fleet.judge(&addons, newest, &csrs, links.clock.now())
        };
        send_news(&self.report, fleet.sum(&judged));
        if !fleet.is_whole {
            // An AddOnSigner that is invalid, or whose authorities are unknown, keeps the last report on its addons.
            let mut last = self.states.all();
            last.retain(|key, _| fleet.signers_of(&key.addon).is_empty());
            let is_there = |registry: &Registry, key: &AddOnKey| registry.created(&key.cluster, &key.addon).is_some();
            links.registry.read(|registry| last.retain(|key, _| is_there(registry, key)));
            judged.extend(last);
        }
        self.states.set(judged, fleet.is_whole);
    }
}

/// The newest certificates in the ledger.
#[derive(Default)]
struct Certificates {
    newest: HashMap<AddOnKey, Newest>,
    /// The ledger's last entry when they were read.
    read_at: Option<u64>,
}

impl Certificates {
    /// Reads them again if the ledger has changed. Returns whether they are known.
    async fn refresh(&mut self, links: &HubLinks, ledger: &Reader) -> bool {
        let Health::Up { tip, .. } = links.ledger.health().borrow().clone() else { return false };
        if self.read_at == Some(tip.seq) {
            return true;
        }
        match ledger.newest(links.clock.now().minus(WEEK)).await {
            Ok(newest) => (self.newest, self.read_at) = (newest, Some(tip.seq)),
            // The ledger's writer has logged the error.
            Err(error) => debug!(%error, "Could not read the newest certificates"),
        }
        self.read_at == Some(tip.seq)
    }
}

/// What the registry knows of one addon on one cluster.
struct Registered {
    eligibility: Result<(), NotRegistered>,
    valid_from: Option<Timestamp>,
    revoked_before: Option<Timestamp>,
}

/// The AddOnSigners in effect.
struct Fleet<'s> {
    /// The AddOnSigners of each addon: while it moves from one to its successor there are two.
    of_addon: HashMap<&'s AddOnName, Vec<&'s str>>,
    /// The authorities that gateways trust, by AddOnSigner.
    trusted: HashMap<&'s str, BTreeSet<AuthorityId>>,
    answerers: Answerers,
    /// Whether these are all AddOnSigners, and the authorities of each are known.
    is_whole: bool,
}

impl<'s> Fleet<'s> {
    fn new(signers: &'s Signers, trust: &Trust) -> Self {
        let mut fleet = Self {
            of_addon: HashMap::new(),
            trusted: HashMap::new(),
            answerers: Answerers {
                by_name: signers.refused.as_ref().clone(),
                of_others: (!signers.is_readable).then(Answerer::default),
            },
            is_whole: signers.is_whole,
        };
        for (name, config) in &*signers.served {
            let answerer = Answerer { leaves_approval: !config.approves, problem: None };
            fleet.answerers.by_name.insert(config.rules.signer_name.to_string(), answerer);
            let Some(trusted) = trust.signer(name) else {
                // No certificate could be judged.
                fleet.is_whole = false;
                continue;
            };
            let anchors = trusted.client_anchors.authorities().iter();
            fleet.trusted.insert(name, anchors.map(|anchor| anchor.id().clone()).collect());
            for addon in &config.rules.addons {
                fleet.of_addon.entry(addon).or_default().push(name);
            }
        }
        fleet
    }

    fn signers_of(&self, addon: &AddOnName) -> &[&'s str] {
        self.of_addon.get(addon).map(Vec::as_slice).unwrap_or_default()
    }

    fn is_trusted(&self, signer: &str, authority: &AuthorityId) -> bool {
        self.trusted.get(signer).is_some_and(|trusted| trusted.contains(authority))
    }

    /// The addons on clusters that have an AddOnSigner; `None` until the registry is complete. An outdated one still
    /// knows which addons were eligible last.
    fn read(&self, registry: &Registry) -> Option<HashMap<AddOnKey, Registered>> {
        let ours = registry.names().filter(|(_, addon)| self.of_addon.contains_key(addon));
        let read = ours.map(|(cluster, addon)| {
            let registered = Registered {
                eligibility: registry.listed(cluster, addon),
                valid_from: registry.valid_from(cluster, addon),
                revoked_before: registry.revoked_before(cluster, addon),
            };
            (AddOnKey { cluster: cluster.clone(), addon: addon.clone() }, registered)
        });
        registry.is_ready().then(|| read.collect())
    }

    fn judge(
        &self,
        addons: &HashMap<AddOnKey, Registered>,
        certificates: &HashMap<AddOnKey, Newest>,
        csrs: &NewestCsrs,
        now: Timestamp,
    ) -> HashMap<AddOnKey, Certification> {
        let judge = |(key, registered): (&AddOnKey, &Registered)| {
            let newest = certificates.get(key);
            let trusts = |newest: &Newest| {
                self.signers_of(&key.addon).iter().any(|signer| self.is_trusted(signer, &newest.authority))
            };
            let open = csrs.open(key, newest, registered.valid_from, &self.answerers);
            let facts = AgentFacts {
                eligibility: registered.eligibility,
                valid_from: registered.valid_from,
                revoked_before: registered.revoked_before,
                newest,
                is_trusted: newest.is_some_and(trusts),
                open: open.as_ref(),
            };
            (key.clone(), Certification::of(&facts, now))
        };
        addons.iter().map(judge).collect()
    }

    /// The numbers of each AddOnSigner. An addon that moves to a successor counts for the one that has signed its
    /// certificate.
    fn sum(&self, judged: &HashMap<AddOnKey, Certification>) -> AgentsReport {
        let mut report: BTreeMap<&str, (i64, BTreeMap<&AddOnKey, &Certification>)> =
            self.trusted.keys().map(|name| (*name, Default::default())).collect();
        for (key, state) in judged {
            for signer in self.signers_of(&key.addon) {
                let Some((certified, without)) = report.get_mut(signer) else { continue };
                match state {
                    Certification::Issued { authority, .. } => {
                        *certified += i64::from(self.is_trusted(signer, authority));
                    }
                    Certification::NotEligible(_) => {}
                    state => drop(without.insert(key, state)),
                }
            }
        }
        let named = report.into_iter().map(|(name, (certified, without))| {
            let eligible = certified + i64::try_from(without.len()).unwrap_or(i64::MAX);
            let summary = format!("{certified}/{eligible}");
            let without = without.into_iter().take(NAMED).map(|(key, state)| AgentWithout {
                name: key.to_string(),
                waits_for: state.waits_for().unwrap_or_default(),
            });
            (name.to_owned(), AgentsStatus { eligible, certified, summary, without: without.collect() })
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use addon_signer_api::rules::SignerConfig;
    use addon_signer_core::registry::{AddOnFacts, ClusterFacts};

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    fn key(cluster: &str, addon: &str) -> AddOnKey {
        AddOnKey { cluster: cluster.parse().unwrap(), addon: addon.parse().unwrap() }
    }

    fn mk_signers(is_whole: bool) -> Signers {
        let spec = json!({"signerName": "example.com/a", "addOns": ["one", "two"]});
        let config = SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap();
        let served = BTreeMap::from([("a".to_owned(), Arc::new(config))]);
        Signers { served: Arc::new(served), is_whole, ..Signers::default() }
    }

    #[test]
    fn eligible_addons_of_each_signer_are_counted_and_ten_named() {
        let mut registry = Registry::default();
        let signers = mk_signers(true);
        let mut fleet = Fleet::new(&signers, &Trust::default());
        assert!(fleet.of_addon.is_empty() && !fleet.is_whole, "the authorities of the signer are unknown");
        fleet.trusted.insert("a", BTreeSet::from(["good".into()]));
        fleet.of_addon.extend(signers.served["a"].rules.addons.iter().map(|addon| (addon, vec!["a"])));
        let mut certificates = HashMap::new();
        for n in 0..30 {
            let (cluster, facts) = (format!("c{n:02}"), ClusterFacts::ACCEPTED);
            registry.set_cluster(cluster.parse().unwrap(), Some(facts));
            let installed = if n == 29 { AddOnFacts::Suspended } else { AddOnFacts::Installed };
            registry.set_addon(cluster.parse().unwrap(), "one".parse().unwrap(), Some(installed));
            registry.set_addon(cluster.parse().unwrap(), "other".parse().unwrap(), Some(AddOnFacts::Installed));
            let newest = Newest { authority: "good".into(), not_before: NOW, not_after: NOW.plus(WEEK) };
            let removed = Newest { authority: "removed".into(), ..newest.clone() };
            certificates.insert(key(&cluster, "one"), if n % 2 == 0 { newest } else { removed });
        }
        assert!(fleet.read(&registry).is_none(), "nobody knows who is eligible");
        registry.complete_clusters(|_| true);
        registry.complete_addons(|_| true);
        let addons = fleet.read(&registry).unwrap();
        let judged = fleet.judge(&addons, &certificates, &NewestCsrs::default(), NOW);
        assert_eq!(judged.len(), 30, "the addon `other` has no AddOnSigner");
        let report = &fleet.sum(&judged)["a"];
        assert_eq!((report.eligible, report.certified, &*report.summary), (29, 15, "15/29"));
        let named: Vec<&str> = report.without.iter().map(|without| &*without.name).collect();
        assert_eq!(named.len(), NAMED);
        assert_eq!(named[..2], ["c01/one", "c03/one"]);
        assert!(report.without[0].waits_for.contains("from a present authority instead of removed"), "{report:?}");
    }

    #[test]
    fn what_was_refused_before_a_revocation_does_not_hide_it() {
        let (signers, one) = (mk_signers(true), "one".parse().unwrap());
        let mut fleet = Fleet::new(&signers, &Trust::default());
        fleet.trusted.insert("a", BTreeSet::from(["good".into()]));
        fleet.of_addon = HashMap::from([(&one, vec!["a"])]);
        let mut csrs = NewestCsrs::default();
        let refused = json!({
            "metadata": {
                "name": "r", "creationTimestamp": NOW.to_string(),
                "labels": { addon_signer_core::names::LABEL_ADDON_NAME: "one" },
            },
            "spec": {
                "signerName": "example.com/a", "username": "system:open-cluster-management:c1:x", "request": "",
                "groups": ["system:open-cluster-management:c1"],
            },
            "status": { "conditions": [{ "type": "Denied", "status": "True", "reason": "No", "message": "no." }] },
        });
        csrs.note(&serde_json::from_value(refused).unwrap(), None);
        let begun = NOW.minus(WEEK / 7);
        let newest = Newest { authority: "good".into(), not_before: begun, not_after: NOW.plus(WEEK) };
        let certificates = HashMap::from([(key("c1", "one"), newest)]);
        let minute = Duration::from_secs(60);
        for (revoked, reason) in
            [(None, "RenewalRefused"), (Some(NOW.minus(minute)), "Refused"), (Some(NOW.plus(minute)), "Revoked")]
        {
            let registered = Registered { eligibility: Ok(()), valid_from: revoked, revoked_before: revoked };
            let addons = HashMap::from([(key("c1", "one"), registered)]);
            let judged = fleet.judge(&addons, &certificates, &csrs, NOW.plus(2 * minute));
            assert_eq!(judged[&key("c1", "one")].reason(), reason, "{revoked:?}");
        }
    }

    #[test]
    fn an_addon_that_moves_counts_for_the_signer_of_its_certificate() {
        let (signers, one) = (mk_signers(true), "one".parse().unwrap());
        let mut fleet = Fleet::new(&signers, &Trust::default());
        fleet.trusted = [("a", "old"), ("b", "new")].map(|(name, id)| (name, BTreeSet::from([id.into()]))).into();
        fleet.of_addon = HashMap::from([(&one, vec!["a", "b"])]);
        let mk_registered = || Registered { eligibility: Ok(()), valid_from: None, revoked_before: None };
        let addons = ["c1", "c2", "c3"].map(|cluster| (key(cluster, "one"), mk_registered())).into();
        let newest = |id: &str| Newest { authority: id.into(), not_before: NOW, not_after: NOW.plus(WEEK) };
        let certificates = [("c1", "old"), ("c2", "new")].map(|(cluster, id)| (key(cluster, "one"), newest(id))).into();
        let judged = fleet.judge(&addons, &certificates, &NewestCsrs::default(), NOW);
        assert!(judged[&key("c1", "one")].is_certified() && judged[&key("c2", "one")].is_certified());
        let report = fleet.sum(&judged);
        assert_eq!(["a", "b"].map(|name| &*report[name].summary), ["1/2", "1/2"], "and one has none yet");
    }

    #[test]
    fn a_signer_name_is_unknown_only_if_all_signers_are_readable() {
        let answerer = Answerer { leaves_approval: false, problem: Some("p".to_owned()) };
        let refused = Arc::new(BTreeMap::from([("example.com/b".to_owned(), answerer)]));
        let signers = Signers { refused, is_readable: true, ..mk_signers(true) };
        let knows =
            |signers: &Signers, name: &str| Fleet::new(signers, &Trust::default()).answerers.get(name).is_some();
        assert!(knows(&signers, "example.com/a") && knows(&signers, "example.com/b"));
        assert!(!knows(&signers, "example.com/c"));
        assert!(knows(&Signers { is_readable: false, ..signers }, "example.com/c"), "it may be the unreadable one");
    }
}
