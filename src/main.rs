//! `addon-signer`: parse, run, exit with a code that a script can use.

use std::process::ExitCode;

fn main() -> ExitCode {
    addon_signer_platform::crypto::install_provider();
    addon_signer::cli::main()
}
