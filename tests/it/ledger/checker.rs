//! tests/ledger/check.py, the checker that shares no code with the program.

use std::path::Path;

use tokio::process::Command;

/// Runs the checker on these files; returns whether they are good, and what it printed.
pub(crate) async fn check(files: &[&Path], checkpoint: Option<&Path>) -> (bool, String) {
    check_with(files, checkpoint, None).await
}

/// As [`check`], with the table of archives of a ledger in PostgreSQL.
pub(super) async fn check_with(files: &[&Path], checkpoint: Option<&Path>, archives: Option<&Path>) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ledger/check.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(script).args(files);
    if let Some(checkpoint) = checkpoint {
        command.arg("--head").arg(checkpoint);
    }
    if let Some(archives) = archives {
        command.arg("--archives").arg(archives);
    }
    let output = command.output().await.expect("these tests need python3");
    let message = String::from_utf8(output.stdout).unwrap();
    match output.status.code() {
        Some(code @ (0 | 1)) => (code == 0, message),
        _ => panic!("check.py failed: {}", String::from_utf8_lossy(&output.stderr)),
    }
}
