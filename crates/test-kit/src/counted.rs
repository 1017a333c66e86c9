//! What a running gateway has counted.

use crate::gateway::GatewayWorld;

impl GatewayWorld {
    /// The samples of a metric, each with its labels: `{addon="telemetry"} 1` for `sessions`.
    pub fn samples(&self, metric: &str) -> Vec<String> {
        let text = self.metrics.render().unwrap();
        let start = format!("addon_signer_gateway_{metric}");
        let samples = text.lines().filter_map(|line| line.strip_prefix(&start)).filter(|rest| rest.starts_with('{'));
        let mut samples: Vec<_> = samples.map(str::to_owned).collect();
        samples.sort();
        samples
    }

    /// The sum of all samples of a metric.
    pub fn sum(&self, metric: &str) -> u64 {
        let value = |sample: &String| sample.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        self.samples(metric).iter().map(value).sum()
    }
}
