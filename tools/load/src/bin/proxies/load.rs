//! Runs a load program, and reads what it measured.

use std::net::SocketAddr;
use std::path::PathBuf;

use addon_signer_load::measure::cpu_ms;
use serde_json::Value;
use test_kit::process::command_that_dies_with_us;

use crate::cases::Case;

/// The server that gets the requests.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    /// Its process, which may have children.
    pub(crate) id: u32,
}

impl Target {
    /// In ms.
    fn cpu(&self) -> f64 {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.id)).unwrap();
        let children = children.split_whitespace().map(|id| cpu_ms(id.parse().unwrap()));
        cpu_ms(self.id) + children.sum::<f64>()
    }
}

/// What one case costs at one target.
pub(crate) struct Figure {
    /// Requests per second.
    pub(crate) rate: f64,
    /// In µs, like all latencies.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Processor time of the target for each request, in µs.
    pub(crate) cpu: f64,
}

impl Figure {
    /// The figure with the median rate.
    pub(crate) fn median(mut figures: Vec<Self>) -> Self {
        figures.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        figures.swap_remove(figures.len() / 2)
    }
}

pub(crate) struct LoadProgram {
    pub(crate) program: PathBuf,
    /// Has the client's certificates.
    pub(crate) directory: PathBuf,
}

impl LoadProgram {
    pub(crate) fn run(&self, case: &Case, target: &Target, seconds: u64) -> Figure {
        let mut command = command_that_dies_with_us(None, &self.program);
        command.current_dir(&self.directory).args(&case.flags).args([
            format!("--gateway={}", target.address),
            format!("--connections={}", case.connections),
            format!("--rounds={}", case.calls),
            format!("--lasts={seconds}s"),
        ]);
        if target.tls {
            command.args(["--cert=agent.crt", "--key=agent.key", "--ca=serving-ca.crt"]);
        }
        let before = target.cpu();
        let output = command.output().unwrap();
        let cpu = target.cpu() - before;
        assert!(output.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&output.stderr));
        let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
        let number = |name: &str| figures[name].as_f64().unwrap();
        let [rate, p50, p99] = ["rate", "p50_us", "p99_us"].map(number);
        Figure { rate, p50, p99, cpu: cpu * 1000.0 / number("calls") }
    }
}
