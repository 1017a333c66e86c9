//! `addon-signer`: parse, run, exit with a code that a script can use.

use std::process::ExitCode;

fn main() -> ExitCode {
    addon_signer::cli::install_crypto_provider();
    addon_signer::cli::main()
}
