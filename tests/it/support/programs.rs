//! Unmodified programs that run beside our hub on a real one: OCM's addon-manager, and an addon's own controller that
//! uses addon-framework.

use std::path::PathBuf;

use super::process::{Process, free_port};
use super::real::RealHub;
use super::{AddOnApi, client, objects};

const ADDON_MANAGER_NAMESPACE: &str = "open-cluster-management-hub";

/// Starts OCM's addon-manager, which runs the addons that have AddOnTemplates. Dropping it kills it.
pub(crate) async fn start_addon_manager(hub: &RealHub) -> Process {
    let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
    objects::create_namespace(&admin, ADDON_MANAGER_NAMESPACE).await;
    let flags = [
        format!("--kubeconfig={}", kubeconfig(hub, "addon-manager").display()),
        format!("--namespace={ADDON_MANAGER_NAMESPACE}"),
        "--disable-leader-election".to_owned(),
        format!("--listen=127.0.0.1:{}", free_port()),
    ];
    Process::start(&hub.binary("addon-manager"), &flags, hub.dir())
}

/// What an addon's own controller names in `status.registrations`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Registers {
    /// No registration at all: it reports `NilRegistration` and leaves the list alone.
    Nothing,
    /// The agent's access to the kube-apiserver, as nearly every addon does.
    KubeClient,
    /// This signer.
    Signer(&'static str),
}

/// Starts an addon's own controller, with the addon-framework that uses `api`. Dropping it kills it.
pub(crate) fn start_framework_addon(hub: &RealHub, api: AddOnApi, addon: &str, registers: Registers) -> Process {
    let program = match api {
        AddOnApi::V1alpha1 => "framework-addon-v1alpha1",
        AddOnApi::V1beta1 => "framework-addon-v1beta1",
    };
    let registers = match registers {
        Registers::Nothing => "nothing",
        Registers::KubeClient => "kube-client",
        Registers::Signer(name) => name,
    };
    let dir = hub.dir().join(addon);
    std::fs::create_dir_all(&dir).unwrap();
    let flags = [
        format!("--kubeconfig={}", kubeconfig(hub, addon).display()),
        format!("--addon={addon}"),
        format!("--registers={registers}"),
    ];
    Process::start(&hub.binary(program), &flags, &dir)
}

fn kubeconfig(hub: &RealHub, user: &str) -> PathBuf {
    hub.kubeconfig_file(user, user, &["system:masters"])
}
