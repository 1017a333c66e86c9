//! `addon-signer-agent`: parse, run, exit with a code that a script can use.

use std::process::ExitCode;

fn main() -> ExitCode {
    addon_signer_agent::cli::main()
}
