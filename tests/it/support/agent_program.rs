//! Builds the agent's program with cargo, because a test of another package cannot ask cargo for its path.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let hub = PathBuf::from(env!("CARGO_BIN_EXE_addon-signer"));
    let profile = if cfg!(debug_assertions) { "dev" } else { "bench" };
    // Build the tests too, so that the features are those of `cargo test`, which has then built the program already.
    let arguments = ["build", "--locked", "--offline", "--quiet", "--bins", "--tests", "--profile", profile];
    let mut command = Command::new(cargo());
    // Remove the variables that cargo set for this test's package: build scripts watch them, and would run again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|told| name.to_string_lossy().starts_with(told)) {
            command.env_remove(name);
        }
    }
    let built = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .arg("--target-dir")
        .arg(hub.parent().and_then(|profile| profile.parent()).unwrap())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    hub.with_file_name("addon-signer-agent")
});

/// The path of the agent's program.
pub(crate) fn agent_program() -> PathBuf {
    PROGRAM.clone()
}

/// The cargo that runs this test, so that it finds what it has built; another version would build everything again.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
