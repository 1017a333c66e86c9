//! Makes an installation by running all that stores something, and writes down what is then stored.

use std::fs;
use std::path::Path;
use std::time::Duration;

use addon_signer::process::{HubOptions, Roles};
use addon_signer_agent::Agent;
use addon_signer_agent::store::Store;
use addon_signer_api::AddOnSigner;
use addon_signer_core::names::{ANNOTATION_AUTHORITY_OF, ANNOTATION_ROTATE};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::HubConfig;
use addon_signer_platform::clock::Clock;
use hyper::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{AGENTS, AGENTS_NAMESPACE, Kind, settings_of};
use crate::cli::{run, write};
use crate::gateway::backend;
use crate::hub::issuers::put_authority_in;
use crate::hub::{allow, mk_csr, submit};
use crate::whole::split::start_gateway;
use crate::whole::{Whole, active, options, prepare, rotate};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::cert_manager::{Approver, CertManager};
use test_kit::company::CompanyCa;
use test_kit::deploy::{apply, part};
use test_kit::gateways::deploy_gateways;
use test_kit::hub::{TIMEOUT, apply_route, certificate, change_signer, condition, create_signer, wait_csr, wait_ready};
use test_kit::lease::leases;
use test_kit::objects::{create_namespace, serve_manifest_works};
use test_kit::pki::TestCa;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

const NAMESPACE: &str = "addon-signer";
const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);
/// The kinds of objects in which an installation keeps something, or on which what it keeps depends.
const LISTS: [&str; 13] = [
    "/api/v1/namespaces",
    "/api/v1/secrets",
    "/api/v1/configmaps",
    "/api/v1/services",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "/apis/certificates.k8s.io/v1beta1/clustertrustbundles",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/cluster.open-cluster-management.io/v1/managedclusters",
    "/apis/addon.open-cluster-management.io/v1alpha1/managedclusteraddons",
    "/apis/work.open-cluster-management.io/v1/manifestworks",
    "/apis/cert-manager.io/v1/certificaterequests",
    "/apis/addon-signer.io/v1alpha1/addonsigners",
    "/apis/addon-signer.io/v1alpha1/addonroutes",
];

/// A hub cluster on which everything is being set up.
struct Site {
    hub: TestHub,
    admin: Client,
    /// Its URL, with a password.
    ledger: String,
    kind: Kind,
    /// The company's.
    root: CompanyCa,
    dir: TempDir,
}

/// Makes one with this ledger. Writes its objects, the files of its agents and an archive of the ledger into `folder`.
pub(super) async fn make(ledger: &str, kind: Kind, folder: &Path) {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "1h").await;
    let (ledger, root, dir) = (ledger.to_owned(), CompanyCa::root(), tempfile::tempdir().unwrap());
    let site = Site { hub, admin, ledger, kind, root, dir };
    site.prepare().await;
    let issuer = site.start_issuer().await;
    site.hours_ago().await;
    let signer = site.start_signer(Clock::default()).await;
    let gateway = start_gateway(&site.hub, "gateway-1").await;
    site.enrol(&gateway, folder).await;
    site.ask().await;
    site.rotate_twice().await;
    site.archive(folder).await;
    drop((signer, gateway, issuer)); // killed: nobody gives anything back
    let objects = objects(&site.admin).await;
    fs::write(folder.join("objects.json"), serde_json::to_string_pretty(&objects).unwrap()).unwrap();
    fs::write(folder.join("time"), format!("{}\n", Clock::default().now())).unwrap();
}

impl Site {
    /// Signers, routes, clusters and addons.
    async fn prepare(&self) {
        let Self { hub, admin, kind, root, .. } = self;
        deploy_gateways(hub).await;
        if hub.is_real() {
            apply(admin, &part("manifest-works")).await;
            apply(admin, &part("cluster-trust-bundle")).await;
        } else {
            serve_manifest_works(admin).await;
        }
        put_authority_in(admin, "of-secret", &root.authority("Secret CA"), &[], root).await;
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
        let of = json!({ "metadata": { "annotations": { ANNOTATION_AUTHORITY_OF: "secret" } } });
        secrets.patch("of-secret", &PatchParams::default(), &Patch::Merge(&of)).await.unwrap();
        if *kind == Kind::ByRoot {
            put_authority_in(admin, "serving", &root.authority("Gateway CA"), &[], root).await;
        }
        self.sign_for("secret", json!({ "issuer": { "type": "Imported", "secretName": "of-secret" } })).await;
        self.sign_for("asked", json!({ "issuer": { "type": "Imported" } })).await;
        allow(hub, admin, "example.com/approved").await;
        let spec = json!({ "signerName": "example.com/approved", "addOns": ["approved"], "approval": "External" });
        create_signer(admin, "approved", spec).await;
        let elsewhere = json!({
            "signer": "telemetry", "match": { "http": [{ "path": "/elsewhere", "methods": ["GET"] }] },
            "backend": { "address": "127.0.0.1:9" },
        });
        create_namespace(admin, "elsewhere").await;
        apply_route(admin, "elsewhere", "refused", elsewhere).await;
        for (cluster, addon) in AGENTS.into_iter().chain([("spoke1", "approved")]) {
            accept_cluster(admin, cluster).await;
            install_addon(admin, cluster, addon).await;
        }
    }

    /// An AddOnSigner of this name, for the addon of that name.
    async fn sign_for(&self, name: &str, authority: Value) {
        let signer_name = format!("example.com/{name}");
        allow(&self.hub, &self.admin, &signer_name).await;
        let spec = json!({ "signerName": signer_name, "addOns": [name], "authority": authority });
        create_signer(&self.admin, name, spec).await;
    }

    /// cert-manager, with a signer; there is none on the stand-in.
    async fn start_issuer(&self) -> Option<CertManager> {
        let real = self.hub.real()?;
        let cert_manager = CertManager::start(real, Approver::CertManager).await;
        cert_manager.add_ca_issuer(NAMESPACE, "corporate", &TestCa::named("corporate root").pair()).await;
        apply(&self.admin, &part("cert-manager")).await;
        let issuer = json!({ "type": "CertManager", "issuerRef": { "name": "corporate" } });
        self.sign_for("issuer", json!({ "issuer": issuer })).await;
        Some(cert_manager)
    }

    async fn start_signer(&self, clock: Clock) -> Whole {
        let client = self.hub.client_at(HUB_USER, &HUB_GROUPS, &clock).await;
        let options = options();
        let serving_source = self.kind.serving_source(Some(self.root.roots()));
        let options = HubOptions {
            hub: HubConfig { serving_source, retention: DAY, ..options.hub },
            roles: Roles::Signer,
            replica: "signer-1".to_owned(),
            ledger: self.ledger.parse().unwrap(),
            ..options
        };
        Whole::start_on(client, options, clock).await
    }

    /// What happened earlier: a certificate that has expired since then.
    async fn hours_ago(&self) {
        let clock = Clock::default();
        clock.set_back(20 * HOUR);
        let signer = self.start_signer(clock).await;
        let request = submit(&self.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
        wait_csr(&self.admin, &request, "issued", certificate).await;
        wait_until(TIMEOUT, "a checkpoint", async || self.checkpoint().await).await;
        signer.stop().await.unwrap();
    }

    async fn checkpoint(&self) -> Option<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), NAMESPACE);
        maps.get_opt("addon-signer-ledger").await.unwrap()?.data?.remove("head.json")
    }

    /// All agents get their certificates; that of spoke3 is revoked.
    async fn enrol(&self, gateway: &Whole, folder: &Path) {
        for (cluster, addon) in AGENTS {
            // An earlier version asked Vault.
            if addon == "vault" || addon == "issuer" && !self.hub.is_real() {
                continue;
            }
            wait_ready(&self.admin, addon, "True").await;
            let store = folder.join("agents").join(format!("{cluster}-{addon}"));
            self.agent(gateway, cluster, addon, Store::directory(store)).once().await.unwrap();
        }
        create_namespace(&self.admin, AGENTS_NAMESPACE).await;
        let store = Store::secret(self.admin.clone(), AGENTS_NAMESPACE, &"telemetry".parse().unwrap());
        self.agent(gateway, "spoke2", "telemetry", store).once().await.unwrap();
        let home = self.dir.path();
        let kubeconfig = self.kubeconfig();
        let arguments = ["certs", "revoke", "--cluster", "spoke3", "--addon", "telemetry", "--kubeconfig", &kubeconfig];
        let revoked = run(home, &arguments).await;
        assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    }

    fn kubeconfig(&self) -> String {
        write(self.dir.path(), &self.hub.kubeconfig("ann", &["system:masters"])).display().to_string()
    }

    fn agent(&self, gateway: &Whole, cluster: &str, addon: &str, store: Store) -> Agent {
        let settings = settings_of(&self.hub, self.dir.path(), gateway.gateway, cluster, addon);
        Agent::new(settings, store, Clock::default())
    }

    /// A request that is denied, and one that waits for an approval.
    async fn ask(&self) {
        let denied = submit(&self.hub, "spoke1", &mk_csr("spoke2", "telemetry")).await;
        wait_csr(&self.admin, &denied, "denied", |csr| condition(csr, "Denied")).await;
        let mut waiting = mk_csr("spoke1", "approved");
        waiting.spec.signer_name = "example.com/approved".to_owned();
        submit(&self.hub, "spoke1", &waiting).await;
        wait_ready(&self.admin, "approved", "True").await;
    }

    /// One rotation ends. The next one waits for a gateway that says nothing any more.
    async fn rotate_twice(&self) {
        let api = leases(&self.admin);
        rotate(&self.admin).await;
        let mut silent = api.get("gateway-1").await.unwrap();
        silent.metadata = ObjectMeta {
            name: Some("gateway-2".to_owned()),
            labels: silent.metadata.labels,
            annotations: silent.metadata.annotations,
            ..ObjectMeta::default()
        };
        api.create(&Default::default(), &silent).await.unwrap();
        let signers: Api<AddOnSigner> = Api::all(self.admin.clone());
        let again = json!({ "metadata": { "annotations": { ANNOTATION_ROTATE: "again" } } });
        change_signer(&self.admin, again).await;
        let named = "1 of 2 gateways to trust the new authority: gateway-2";
        wait_until(TIMEOUT, named, async || {
            let waits = signers.get("telemetry").await.unwrap().status?.rotation?.waiting_for?;
            (waits == named).then_some(())
        })
        .await;
        assert!(active(&self.admin).await.is_some());
    }

    /// Moves what has expired into a file, once a checkpoint lets it go.
    async fn archive(&self, folder: &Path) {
        let before = Timestamp::from_unix(Clock::default().now().unix() - 7_200).to_string();
        let file = folder.join("archive.jsonl").display().to_string();
        let kubeconfig = self.kubeconfig();
        wait_until(3 * TIMEOUT, "an archive", async || {
            let arguments = [
                "certs",
                "archive",
                "--ledger",
                &self.ledger,
                "--before",
                &before,
                "--to",
                &file,
                "--kubeconfig",
                &kubeconfig,
            ];
            let moved = run(self.dir.path(), &arguments).await;
            assert_eq!(moved.code, 0, "{}", moved.stderr);
            Path::new(&file).exists().then_some(())
        })
        .await;
    }
}

/// Everything that is stored in these kinds, except what belongs to Kubernetes.
async fn objects(admin: &Client) -> Vec<Value> {
    let mut all = Vec::new();
    for list in LISTS {
        let request = Request::get(list).body(Vec::new()).unwrap();
        let Ok(mut found) = admin.request::<Value>(request).await else { continue }; // not served
        let kind = found["kind"].as_str().unwrap().trim_end_matches("List").to_owned();
        for mut object in found["items"].take().as_array().unwrap().clone() {
            let belongs_to = object["metadata"]["namespace"].as_str().or(object["metadata"]["name"].as_str());
            if belongs_to.is_some_and(|name| name.starts_with("kube-")) {
                continue;
            }
            object["kind"] = json!(kind);
            object["apiVersion"] = found["apiVersion"].clone();
            all.push(object);
        }
    }
    all
}
