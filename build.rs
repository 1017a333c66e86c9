//! Puts the functions that `addon-signer agent` runs next to each other in the release build.
//!
//! The program is also hub and gateway, and the kernel maps a file in windows of 64 KiB around each page that is touched: an
//! agent whose functions are strewn about has nearly the whole program resident. `link/agent.symbols` names what
//! an agent ran (`link/record.sh`). A function that is missing there costs a window and nothing else.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

const SYMBOLS: &str = "link/agent.symbols";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SYMBOLS}");
    if env::var("CARGO_CFG_TARGET_OS")? == "linux" && env::var("PROFILE")? == "release" {
        let script = PathBuf::from(env::var("OUT_DIR")?).join("agent.ld");
        fs::write(&script, linker_script(&fs::read_to_string(SYMBOLS)?)?)?;
        println!("cargo::rustc-link-arg-bin=addon-signer=-Wl,-T,{}", script.display());
    }
    Ok(())
}

/// A section of its own for these functions, in front of the others. First those whose names match with their hashes;
/// after them those of which only the hash has changed, as with another compiler, or which are the same for other types.
fn linker_script(symbols: &str) -> Result<String, std::fmt::Error> {
    let mut script = "SECTIONS {\n  .text.agent : {\n".to_owned();
    let mut placed = HashSet::new();
    for pattern in symbols.lines().map(str::to_owned).chain(symbols.lines().map(without_hash)) {
        if placed.insert(pattern.clone()) {
            writeln!(script, "    *(.text.{pattern} .text.unlikely.{pattern})")?;
        }
    }
    script.push_str("  }\n}\nINSERT BEFORE .text;\n");
    Ok(script)
}

/// The pattern for a function in any build: `_ZN…17h<hash>E` in the one mangling of Rust, `Cs<hash>_<crate>` in the other.
fn without_hash(symbol: &str) -> String {
    if let Some((name, _)) = symbol.rsplit_once("17h").filter(|_| symbol.starts_with("_ZN")) {
        return format!("{name}17h*");
    }
    if !symbol.starts_with("_R") {
        return symbol.to_owned();
    }
    let mut parts = symbol.split("Cs");
    let mut pattern = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('_') {
            Some((_, rest)) => pattern.push_str(&format!("Cs*_{rest}")),
            None => pattern.push_str(&format!("Cs{part}")),
        }
    }
    pattern
}
