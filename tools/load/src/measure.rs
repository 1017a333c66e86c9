//! What Linux' /proc says about a process, and the API server about its calls.

use std::time::Duration;

use kube::Client;

/// `VmRSS` of Linux' /proc, in MB of 10^6 bytes.
pub fn resident_mb(id: u32) -> f64 {
    kib(id, "VmRSS:") * 1024.0 / 1e6
}

/// `RssAnon` of Linux' /proc in MB of 10^6 bytes: what the process alone has. The rest is pages of its file, which the
/// kernel can drop, and which all processes of the same image on a node share.
pub fn own_mb(id: u32) -> f64 {
    kib(id, "RssAnon:") * 1024.0 / 1e6
}

/// User and system time of Linux' /proc in ms. The file counts hundredths of a second.
pub fn cpu_ms(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().unwrap());
    ticks.sum::<f64>() * 10.0
}

/// `VmHWM` of Linux' /proc, the most that was ever resident, in MB of 10^6 bytes.
pub fn peak_mb(id: u32) -> f64 {
    kib(id, "VmHWM:") * 1024.0 / 1e6
}

fn kib(id: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How many calls the API server answers in this time, without those of this program.
pub async fn calls_in(admin: &Client, time: Duration) -> f64 {
    let before = total_requests(admin).await;
    tokio::time::sleep(time).await;
    total_requests(admin).await - before - 1.0
}

/// `apiserver_request_total` over everything but watches, which count when they end.
pub async fn total_requests(admin: &Client) -> f64 {
    let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = admin.request_text(request).await.unwrap();
    let counts = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}
