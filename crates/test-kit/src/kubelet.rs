//! Plays the kubelet of a managed cluster, which no test has: it runs the containers of an applied Deployment as
//! processes of this machine, with their Secrets and ConfigMaps as files. `tests/it/cluster` has a real one, but only
//! one; here a hub has several clusters.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Secret, Volume};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::process::{Process, free_port};
use super::wait::wait_until;

/// How long a volume may take to appear.
const APPEARS: Duration = Duration::from_secs(120);
/// How often the kubelet looks; a real one takes up to two minutes.
const POLL: Duration = Duration::from_millis(500);

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
    /// Waits until the Deployment is applied and its volumes are there, starts its sidecars, then its containers, and
    /// says that it is available.
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
        let mut containers = Vec::new();
        for sidecar in spec.init_containers.iter().flatten() {
            containers.push(self.start_sidecar(sidecar, dir.path()).await);
        }
        containers.extend(spec.containers.iter().map(|container| self.start(container, dir.path(), None)));
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
                sleep(POLL).await;
            }
            drop(containers);
        });
        Pod { dir, keeper }
    }

    /// Starts an init container that stays, and waits until its startup probe succeeds. It gets another port, because
    /// all pods share those of this machine.
    async fn start_sidecar(&self, container: &Container, dir: &Path) -> Process {
        assert_eq!(container.restart_policy.as_deref(), Some("Always"), "{} stays", container.name);
        let probe =
            container.startup_probe.as_ref().and_then(|probe| probe.http_get.as_ref()).expect("a startup probe");
        let IntOrString::Int(port) = &probe.port else { panic!("{:?} is not a number", probe.port) };
        let free = free_port();
        let process = self.start(container, dir, Some((format!(":{port}"), format!(":{free}"))));
        let path = probe.path.as_deref().unwrap_or("/");
        let what = format!("{path} of {} in {}", container.name, self.namespace);
        wait_until(APPEARS, &what, async || succeeds(free, path).await.then_some(())).await;
        process
    }

    /// Starts a container, with the second text of `port` in place of the first in its arguments.
    fn start(&self, container: &Container, dir: &Path, port: Option<(String, String)>) -> Process {
        let own = dir.join(&container.name);
        fs::create_dir(&own).unwrap();
        let mounts = container.volume_mounts.iter().flatten();
        let mounts = mounts.map(|mount| {
            let place = dir.join("volumes").join(&mount.name);
            (mount.mount_path.clone(), place.display().to_string())
        });
        // There are no containers here, so each path in one becomes the path where this kubelet has put its volume.
        let replaced: Vec<(String, String)> = mounts.chain(port).collect();
        let here = |text: &str| replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
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

/// Whether a probe of this path is answered with 200.
async fn succeeds(port: u16, path: &str) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    asked.await.is_ok_and(|answer| answer.starts_with("HTTP/1.0 200 "))
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
