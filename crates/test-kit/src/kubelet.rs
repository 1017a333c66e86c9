//! Plays the kubelet of a managed cluster, which no test has: it runs the containers of an applied Deployment as
//! processes of this machine, with their Secrets and ConfigMaps as files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, Secret, Volume};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::process::Process;
use super::wait::wait_until;

/// How long a volume may take to appear.
const APPEARS: Duration = Duration::from_secs(120);
/// How often the kubelet looks; a real one takes up to two minutes.
const LOOK: Duration = Duration::from_millis(500);

/// One version of a volume: its files, or nothing if the object is not there.
type Files = BTreeMap<String, Vec<u8>>;

/// A managed cluster's node.
pub struct Kubelet {
    /// What may do everything on the managed cluster.
    pub client: Client,
    pub namespace: String,
    /// The program and its first arguments by the image's name without its tag.
    pub images: BTreeMap<&'static str, Vec<PathBuf>>,
    /// What a pod mounts as its account: the kubeconfig of a ServiceAccount.
    pub account: PathBuf,
}

/// The pod of a Deployment. Its processes end when the Deployment is gone, and when this is dropped.
pub struct Pod {
    dir: TempDir,
    keeper: JoinHandle<()>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Pod {
    /// The log of a container.
    pub fn log(&self, container: &str) -> String {
        fs::read_to_string(self.dir.path().join(container).join("env.log")).unwrap_or_default()
    }
}

impl Kubelet {
    /// Waits until the Deployment is applied and its volumes are there, starts its containers, and says that it is
    /// available.
    pub async fn run(self, name: &'static str) -> Pod {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let what = format!("the Deployment {name} in {}", self.namespace);
        let applied = wait_until(APPEARS, &what, async || deployments.get_opt(name).await.unwrap()).await;
        let spec = applied.spec.template.spec.unwrap();
        let dir = TempDir::new().unwrap();
        let volumes = spec.volumes.clone().unwrap_or_default();
        for volume in &volumes {
            let what = format!("the volume {} of {name} in {}", volume.name, self.namespace);
            let files = wait_until(APPEARS, &what, async || self.files(volume).await).await;
            mount(&dir.path().join("volumes").join(&volume.name), &files);
        }
        let containers = self.start(&spec, dir.path());
        let status = json!({ "status": {
            "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1,
        } });
        deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        let mounted = dir.path().join("volumes");
        let keeper = tokio::spawn(async move {
            while deployments.get_opt(name).await.unwrap().is_some() {
                for volume in &volumes {
                    // Of an object that is away for a moment a kubelet shows the files that it knows.
                    if let Some(files) = self.files(volume).await.filter(|files| !files.is_empty()) {
                        mount(&mounted.join(&volume.name), &files);
                    }
                }
                sleep(LOOK).await;
            }
            drop(containers);
        });
        Pod { dir, keeper }
    }

    fn start(&self, spec: &PodSpec, dir: &Path) -> Vec<Process> {
        let container = |container: &Container| {
            let own = dir.join(&container.name);
            fs::create_dir(&own).unwrap();
            let mounts = container.volume_mounts.iter().flatten();
            let mounts: Vec<_> =
                mounts.map(|mount| (&mount.mount_path, dir.join("volumes").join(&mount.name))).collect();
            // There are no containers here, so each path in one becomes the path where this kubelet has put its volume.
            let here = |text: &str| {
                let mut text = text.to_owned();
                for (path, place) in &mounts {
                    text = text.replace(path.as_str(), &place.display().to_string());
                }
                text
            };
            let image = container.image.as_deref().unwrap().split(':').next().unwrap();
            let program = &self.images[image];
            if let Some(command) = &container.command {
                assert_eq!(Path::new(&command[0]).file_name(), program[0].file_name(), "a program of {image}");
            }
            let variables = container.env.iter().flatten();
            let variables =
                variables.map(|entry| format!("{}={}", entry.name, here(entry.value.as_deref().unwrap_or_default())));
            let mut arguments: Vec<String> = variables.collect();
            arguments.push(format!("KUBECONFIG={}", self.account.display()));
            arguments.push("ADDON_SIGNER_REFRESH=5s".to_owned()); // a test has no five minutes
            arguments.extend(program.iter().map(|part| part.display().to_string()));
            arguments.extend(container.args.iter().flatten().map(|argument| here(argument)));
            Process::start(Path::new("/usr/bin/env"), &arguments, &own)
        };
        spec.containers.iter().map(container).collect()
    }

    /// What is in the volume; `None` while its object is not there and the pod may not start without it.
    async fn files(&self, volume: &Volume) -> Option<Files> {
        if let Some(source) = &volume.secret {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
            let secret = secrets.get_opt(source.secret_name.as_deref().unwrap()).await.unwrap();
            let files =
                secret.map(|secret| secret.data.into_iter().flatten().map(|(name, data)| (name, data.0)).collect());
            return files.or_else(|| source.optional.unwrap_or_default().then(Files::new));
        }
        let source = volume.config_map.as_ref().expect("this kubelet mounts Secrets and ConfigMaps");
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = maps.get_opt(&source.name).await.unwrap();
        let files =
            map.map(|map| map.data.into_iter().flatten().map(|(name, data)| (name, data.into_bytes())).collect());
        files.or_else(|| source.optional.unwrap_or_default().then(Files::new))
    }
}

/// Puts the files in the place of those that are there, all at once, as a kubelet does: by a link to a directory.
fn mount(volume: &Path, files: &Files) {
    let read = |name: &String| fs::read(volume.join("..data").join(name));
    let is_same = |(name, bytes): (&String, &Vec<u8>)| read(name).is_ok_and(|there| there == *bytes);
    if volume.join("..data").exists() && files.iter().all(is_same) {
        return;
    }
    fs::create_dir_all(volume).unwrap();
    let version = (1..).map(|n: u32| volume.join(format!("..{n}"))).find(|path| !path.exists()).unwrap();
    fs::create_dir(&version).unwrap();
    for (name, bytes) in files {
        fs::write(version.join(name), bytes).unwrap();
        if !volume.join(name).is_symlink() {
            symlink(Path::new("..data").join(name), volume.join(name)).unwrap();
        }
    }
    let fresh = volume.join("..fresh");
    symlink(version.file_name().unwrap(), &fresh).unwrap();
    fs::rename(&fresh, volume.join("..data")).unwrap();
}
