//! The program `addon-signer-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    addon_signer_agent::cli::main()
}
