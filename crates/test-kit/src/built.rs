//! Programs, built with cargo, because only a test of the same package can ask cargo for a program's path.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::deploy::checkout;

/// The directory with the programs: debug builds, or builds as for images where something is measured.
static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    let own = std::env::current_exe().unwrap();
    let mut profile_dir = own.parent().unwrap();
    if profile_dir.ends_with("deps") {
        profile_dir = profile_dir.parent().unwrap();
    }
    // Build the tests too, so that the features are those of `cargo test`, which has then built the programs already.
    let (arguments, profile): (&[_], _) =
        if cfg!(debug_assertions) { (&["--tests"], "debug") } else { (&["--profile", "image"], "image") };
    let target = profile_dir.parent().unwrap();
    build(&[&["--offline", "--bins"], arguments].concat(), target);
    target.join(profile)
});

/// The directory with the example's programs. It is a workspace of its own, with a target directory of its own.
static EXAMPLE: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = BUILT.parent().unwrap().join("example");
    build(&["--manifest-path", "examples/telemetry/Cargo.toml"], &target);
    target.join("debug")
});

fn build(arguments: &[&str], target: &Path) {
    let mut command = Command::new(cargo());
    // Remove the variables that cargo set for this test's package: build scripts watch them, and would run again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|set| name.to_string_lossy().starts_with(set)) {
            command.env_remove(name);
        }
    }
    command.current_dir(checkout()).args(["build", "--locked", "--quiet"]).args(arguments);
    let built = command.arg("--target-dir").arg(target).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// The path of the agent's program.
pub fn agent_program() -> PathBuf {
    BUILT.join("addon-signer-agent")
}

/// The path of the hub's program.
pub fn hub_program() -> PathBuf {
    BUILT.join("addon-signer")
}

/// The path of a program of examples/telemetry.
pub fn example_program(name: &str) -> PathBuf {
    EXAMPLE.join(name)
}

/// The cargo that runs this test, so that it finds what it has built; another version would build everything again.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
