//! Tests the supervisor by itself, without an API server.

use std::collections::BTreeSet;
use std::convert::Infallible;

use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::time::Instant;

use super::entry::SignerState;
use super::*;
use crate::HubConfig;
use crate::csrs::dispatcher::{Dispatcher, DispatcherLinks};
use crate::tasks::EligibilityWatch;
use crate::{Hub, HubEnds, HubParts, lease};
use addon_signer_api::AddOnSignerSpec;
use addon_signer_api::ocm::AddOnApi;
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::signer::Approval;
use addon_signer_core::identity::SignerName;
use addon_signer_core::policy::GatewayRules;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_telemetry::pulse::Pulses;

/// What tests see of a supervisor.
impl Supervisor {
    /// Why the hub does not serve an object.
    fn refusal(&self, name: &str) -> Option<&(&'static str, String)> {
        match &self.entries.get(name)?.state {
            SignerState::Refused(refusal, _) => Some(refusal),
            SignerState::Idle(_) | SignerState::Served(_) => None,
        }
    }

    fn is_undecodable(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(Entry::is_undecodable)
    }

    /// Whether it remembers an AddOnSigner that is no longer served.
    fn has_stopped(&self) -> bool {
        self.entries
            .values()
            .any(|entry| matches!(entry.state, SignerState::Idle(Some(_)) | SignerState::Refused(_, Some(_))))
    }

    /// What the supervisor last sent to the writer of registrations.
    fn signers(&self) -> Option<Signers> {
        self.ends.signers.borrow().clone()
    }

    /// The next AddOnSigner that needs a SubjectAccessReview.
    fn next_asked(&mut self) -> Option<String> {
        self.calls.asking.begin().inspect(|name| self.calls.asking.end(name))
    }

    /// The AddOnSigners with registrations that the ledger knows.
    fn set_recorded(&mut self, specs: &[AddOnSignerSpec]) {
        let configs = specs.iter().map(|spec| Arc::new(SignerConfig::read(spec, None).unwrap())).collect();
        self.registered.recorded = watch::channel(configs).1;
    }
}

/// A client without an API server.
fn mk_client() -> Client {
    let service =
        tower::service_fn(async |_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>().await);
    Client::new(service, "default")
}

fn mk_supervisor(pulses: &Pulses) -> (Supervisor, lease::Announcer, HubEnds) {
    let (announcer, leading) = lease::channel();
    announcer.lead(1, Instant::now() + Duration::from_secs(1_000_000));
    let parts = HubParts {
        client: mk_client(),
        clock: Clock::default(),
        leading,
        metrics: Default::default(),
        ledger: "sqlite:///nowhere".parse().unwrap(),
        replica: "hub-a".to_owned(),
        pulses: pulses.clone(),
        contacts: Contacts::default(),
        has_gateway: true,
    };
    let settings = HubSettings {
        config: HubConfig::default(),
        gateway: GatewayRules {
            account: "hub".to_owned(),
            dns_names: BTreeSet::new(),
            ip_addresses: BTreeSet::new(),
            duration: Duration::from_secs(3600),
        },
        inventory: None,
    };
    let (Hub { links, .. }, ends) = Hub::wire(parts);
    let (refused, forbidden) = mpsc::channel(1);
    let (signed, foreign) = watch::channel(Default::default());
    let eligibility = EligibilityWatch::default();
    let news = DispatcherLinks { eligibility, forbidden: refused, foreign: signed, newest: Default::default() };
    let (_, signing) = Dispatcher::new(&links.client, links.clock.clone(), Default::default(), news);
    let links_of_supervisor = SupervisorLinks {
        needs_certificate: watch::Sender::new(false).subscribe(),
        signers: watch::channel(None).0,
        registrations: watch::channel(None).1,
        distributed: watch::channel(Default::default()).1,
        published: watch::channel(Report::AsBefore).1,
        protected: watch::channel(Report::AsBefore).1,
        signing,
        forbidden,
        foreign,
        agents: watch::channel(Default::default()).1,
        objects: crate::authorities::versions::channel().1,
        notes: Notes::default(),
    };
    (Supervisor::new(links, settings, AddOnApi::V1Beta1.into(), links_of_supervisor), announcer, ends)
}

fn mk_object(name: &str) -> AddOnSigner {
    let spec = json!({ "signerName": format!("example.com/{name}"), "addOns": ["telemetry"] });
    AddOnSigner::new(name, serde_json::from_value(spec).unwrap())
}

/// The object as the watch shows it.
fn guarded(object: &AddOnSigner) -> GuardedSigner {
    GuardedSigner::from(DeserializeGuard(Ok(object.clone())))
}

/// Shows the supervisor a list of these objects.
fn list(supervisor: &mut Supervisor, objects: &[AddOnSigner]) {
    supervisor.observe(Event::Init);
    objects.iter().for_each(|object| supervisor.observe(Event::InitApply(guarded(object))));
    supervisor.observe(Event::InitDone);
}

#[tokio::test]
async fn recorded_signer_is_gone_only_if_no_object_may_be_it() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    supervisor.set_recorded(&["here", "gone"].map(|name| mk_object(name).spec));
    list(&mut supervisor, &[]);
    // What this hub has seen.
    for name in ["here", "seen"] {
        supervisor.observe(Event::Apply(guarded(&mk_object(name))));
        supervisor.observe(Event::Delete(guarded(&mk_object(name))));
    }
    let renamed = AddOnSigner::new("renamed", mk_object("here").spec);
    supervisor.observe(Event::Apply(guarded(&renamed)));
    let gone = |supervisor: &mut Supervisor| {
        supervisor.tell_signers();
        let signers = supervisor.signers().unwrap();
        signers.deleted.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(gone(&mut supervisor), ["example.com/gone", "example.com/seen"]);
    let bad = serde_json::from_value(json!({ "metadata": { "name": "any" }, "spec": 1 })).unwrap();
    supervisor.observe(Event::Apply(bad));
    assert_eq!(gone(&mut supervisor), ["example.com/seen"]);
}

#[tokio::test]
async fn only_complete_list_counts_and_absent_signers_lose_claims() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    let good = |name: &str| guarded(&mk_object(name));
    let bad: GuardedSigner = serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": 1 })).unwrap();
    let see = |supervisor: &mut Supervisor, events: Vec<Event<GuardedSigner>>| {
        events.into_iter().for_each(|event| supervisor.observe(event));
        (supervisor.is_undecodable("a"), supervisor.ownership.not_of("b").len())
    };
    see(&mut supervisor, vec![Event::Init, Event::InitApply(good("a")), Event::InitDone]);
    assert_eq!(see(&mut supervisor, vec![Event::Apply(bad.clone()), Event::Apply(good("b"))]), (true, 1));
    let mended = vec![Event::Init, Event::InitApply(good("a")), Event::InitApply(good("b"))];
    assert_eq!(see(&mut supervisor, mended), (true, 1), "the list is not complete");
    assert_eq!(see(&mut supervisor, vec![Event::InitDone]), (false, 1));
    assert_eq!(see(&mut supervisor, vec![Event::Apply(bad)]), (true, 1));
    let without = vec![Event::Init, Event::InitApply(good("b")), Event::InitDone];
    assert_eq!(see(&mut supervisor, without), (false, 0));
}

#[tokio::test]
async fn unserved_signer_is_awaited_until_last_certificate_expires() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    let mut other = mk_object("b");
    let ends = supervisor.links.clock.now().plus(Duration::from_secs(600)).to_string();
    let authority =
        json!({ "id": "x", "state": "Active", "notBefore": ends, "notAfter": ends, "lastLeafExpires": ends });
    other.status = Some(serde_json::from_value(json!({ "authorities": [authority] })).unwrap());
    list(&mut supervisor, &[mk_object("a")]);
    supervisor.observe(Event::Apply(guarded(&other)));
    let awaited = |supervisor: &Supervisor| supervisor.trust_publisher.last_leaf().unwrap_err().to_string();
    let unserved = |name: &str| format!("the AddOnSigner {name}, which is not served, to be fixed or deleted");
    assert_eq!(awaited(&supervisor), unserved("b"));
    supervisor.links.clock.advance(Duration::from_secs(601));
    assert!(supervisor.find_unserved());
    assert!(!supervisor.find_unserved());
    let served = "the authorities of the AddOnSigner a to be read";
    assert_eq!(awaited(&supervisor), served);
    supervisor.stop("a");
    assert_eq!(awaited(&supervisor), unserved("a"), "until the supervisor has looked at all");
}

#[tokio::test]
async fn permits_for_authorities_are_limited_and_freed_ones_reused() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    let names: Vec<_> = (0..=MAX_LINES).map(|n| format!("a{n}")).collect();
    let mk_object = |name: &str| {
        let mut object = mk_object(name);
        object.spec.add_ons = vec![name.to_owned()];
        object
    };
    let objects: Vec<_> = names.iter().map(|name| mk_object(name)).collect();
    list(&mut supervisor, &objects);
    let places = |supervisor: &Supervisor| {
        let of = |served: &Served| served.plan.borrow().may_create;
        supervisor.all_served().filter(|(_, served)| of(served)).count()
    };
    assert_eq!(places(&supervisor), 0, "nobody has asked");
    let of = |name: &str| -> SignerName { format!("example.com/{name}").parse().unwrap() };
    let refused = Err(("NotPermitted", "no".to_owned()));
    supervisor.take_answer("a0", &of("a0"), Ok(refused.clone()));
    assert_eq!(places(&supervisor), 0);
    for name in &names[1..] {
        supervisor.take_answer(name, &of(name), Ok(Ok(())));
    }
    assert_eq!(places(&supervisor), MAX_LINES);
    supervisor.take_answer("a0", &of("a0"), Ok(Ok(())));
    assert_eq!(supervisor.served("a0").unwrap().permission.as_ref().unwrap_err().0, "TooManySigners");
    supervisor.observe(Event::Delete(guarded(&mk_object("a1"))));
    assert!(supervisor.served("a0").unwrap().is_unsure(), "it is asked about again in the next round");
    supervisor.take_answer("a0", &of("a0"), Ok(Ok(())));
    assert_eq!(places(&supervisor), MAX_LINES);
    // A recreated AddOnSigner is another one, and inherits no permit.
    let mut another = mk_object("a2");
    another.metadata.uid = Some("another".to_owned());
    supervisor.observe(Event::Apply(guarded(&another)));
    assert_eq!(places(&supervisor), MAX_LINES - 1);
    // The one before was refused.
    let mut a3 = mk_object("a3");
    a3.spec.certificate.duration = "1m".to_owned();
    supervisor.observe(Event::Apply(guarded(&a3)));
    assert_eq!(places(&supervisor), MAX_LINES - 2);
    (a3.spec.certificate.duration, a3.metadata.uid) = ("24h".to_owned(), Some("another".to_owned()));
    supervisor.observe(Event::Apply(guarded(&a3)));
    assert_eq!(places(&supervisor), MAX_LINES - 2);
}

#[tokio::test]
async fn unserved_signer_is_deleted_only_once_its_object_goes() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    let mut refused = mk_object("a");
    refused.spec.certificate.duration = "1m".to_owned();
    let good = guarded(&mk_object("a"));
    let bad = serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": 1 })).unwrap();
    for unserved in [guarded(&refused), bad] {
        let mut see = |events: Vec<Event<GuardedSigner>>| {
            events.into_iter().for_each(|event| supervisor.observe(event));
            let signers = supervisor.signers().unwrap();
            (signers.served.len(), signers.deleted.len())
        };
        assert_eq!(see(vec![Event::Init, Event::InitApply(good.clone()), Event::InitDone]), (1, 0));
        assert_eq!(see(vec![Event::Apply(unserved.clone())]), (0, 0), "it is there");
        assert_eq!(see(vec![Event::Delete(unserved)]), (0, 1));
        assert_eq!(see(vec![Event::Apply(good.clone())]), (1, 0));
        assert!(!supervisor.has_stopped());
    }
}

#[tokio::test]
async fn one_deleted_during_a_list_that_breaks_off_is_stopped() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    let mut see = |events: Vec<Event<GuardedSigner>>| {
        events.into_iter().for_each(|event| supervisor.observe(event));
        supervisor.all_served().count()
    };
    assert_eq!(see(vec![Event::Init, Event::InitApply(guarded(&mk_object("a"))), Event::InitDone]), 1);
    let mut deleting = mk_object("a");
    deleting.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(see(vec![Event::Init, Event::InitApply(guarded(&deleting)), Event::Init]), 1);
    assert_eq!(see(vec![Event::InitDone]), 0);
}

#[tokio::test]
async fn the_name_of_the_gateways_own_signer_is_refused() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    supervisor.observe(Event::Apply(guarded(&mk_object("gateway-serving"))));
    assert_eq!(supervisor.all_served().count(), 0);
    assert_eq!(supervisor.refusal("gateway-serving").unwrap().0, "InvalidName");
}

#[tokio::test]
async fn an_edit_is_a_reason_to_ask_about_the_right_again() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    let mut object = mk_object("a");
    supervisor.observe(Event::Apply(guarded(&object)));
    assert_eq!((supervisor.next_asked().as_deref(), supervisor.next_asked()), (Some("a"), None));
    object.spec.approval = Approval::External;
    supervisor.observe(Event::Apply(guarded(&object)));
    assert_eq!((supervisor.next_asked().as_deref(), supervisor.next_asked()), (Some("a"), None));
}
