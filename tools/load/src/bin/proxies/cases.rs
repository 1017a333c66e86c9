//! What is measured.

use std::fmt;

pub(crate) const MIB: usize = 1024 * 1024;

/// A request that is repeated.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) connections: usize,
    /// How many requests each connection carries at a time.
    pub(crate) calls: usize,
    /// Further flags of the load program.
    pub(crate) flags: Vec<String>,
}

impl Case {
    fn new(name: &str, [connections, calls]: [usize; 2], flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self { name: name.to_owned(), connections, calls, flags }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} x {}", self.name, self.connections, self.calls)
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let http1 = ["load-http", "--over=http1", "--path=/item"];
    let http2 = ["load-http", "--over=http2", "--path=/item"];
    let small = [[1, 1], [16, 1], [64, 1], [1, 64]];
    let mut cases: Vec<_> = small.iter().take(3).map(|load| Case::new("HTTP/1.1", *load, &http1)).collect();
    cases.extend(small.iter().map(|load| Case::new("HTTP/2", *load, &http2)));
    cases.extend(small.iter().map(|load| Case::new("gRPC", *load, &["load-grpc"])));
    let upload = format!("--body={MIB}");
    let http1 = &http1[..2];
    cases.extend([
        Case::new("1 MiB down", [4, 1], &[http1, &["--path=/mib"]].concat()),
        Case::new("1 MiB up", [4, 1], &[http1, &["--path=/up", &upload]].concat()),
        Case::new("new connections", [16, 1], &[http1, &["--path=/item", "--reconnect"]].concat()),
    ]);
    cases
}
